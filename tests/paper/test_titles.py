"""Networks in words, for legends and tables."""

import pytest

from lotnet.config import RunConfig
from lotnet.losses import LOSSES
from lotnet.paper.titles import data_title, distinguished, joined, layer, words
from lotnet.parametrizations import PARAMETRIZATIONS


def named(**overrides: object) -> dict[str, str]:
    config = RunConfig.from_recipe("cifar10/plain", {name.replace("__", "."): v for name, v in overrides.items()})
    return words(config.model, config.loss)


@pytest.mark.parametrize(
    ("overrides", "title"),
    [
        ({}, "LipConvnet-5, LOT, cross-entropy"),
        ({"model__depth": 20, "loss__kind": "emma"}, "LipConvnet-20, LOT, EMMA loss"),
        ({"model__channels": 64, "loss__kind": "creg"}, "LipConvnet-5 with 64 channels, LOT, CReg loss"),
        ({"model__head": "lln"}, "LipConvnet-5, LOT, cross-entropy, last-layer normalisation"),
        ({"model__padding_mode": "circular"}, "LipConvnet-5, LOT, cross-entropy, circular padding"),
        ({"model__depth": 20, "model__residual": False}, "LipConvnet-20, LOT, cross-entropy, no residual connections"),
        ({"model__residual": False}, "LipConvnet-5, LOT, cross-entropy"),
    ],
)
def test_a_title_says_what_is_unusual(overrides: dict[str, object], title: str) -> None:
    assert joined(named(**overrides)) == title


def test_every_layer_and_loss_has_a_name() -> None:
    assert {layer(name) for name in PARAMETRIZATIONS} >= {"LOT", "SOC", "Cayley", "BCOP", "ECO"}
    for name in LOSSES:
        found = named(loss__kind=name)["loss"]
        assert (found and "_" not in found and found != name) or name == "cross-entropy"
    assert data_title("cifar10") == "CIFAR-10" and data_title("folder:/home/me/clothes") == "the folder clothes"


def test_networks_side_by_side_are_named_by_their_differences() -> None:
    lot, soc = named(), named(model__parametrization="soc", model__residual=False)
    assert distinguished([lot]) == ("", ["LipConvnet-5, LOT, cross-entropy"])
    assert distinguished([lot, soc]) == ("LipConvnet-5, cross-entropy", ["LOT", "SOC"])
    deep = named(model__depth=20)
    assert distinguished([lot, deep]) == ("LOT, cross-entropy", ["LipConvnet-5", "LipConvnet-20"])
    without = named(model__depth=20, model__residual=False)
    assert distinguished([deep, without])[1] == ["residual connections", "no residual connections"]
    assert distinguished([lot, lot])[1] == ["", ""]
