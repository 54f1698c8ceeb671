"""A frozen module outside its declared domain is refused, whoever wrote it; whatever is accepted is truly bounded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hand_made import folder, fuzz

from lotnet import FrozenModel
from lotnet.errors import InputError
from lotnet.frozen import FROZEN
from lotnet.frozen.model import assemble
from lotnet.records import Between

KERNEL = {"height": 4, "width": 4, "padding_mode": "zeros", "dilation": [1, 1], "extra": [0, 0]}
BIAS, MATRIX = torch.zeros(1), torch.ones(1, 1, 3, 3)


def folded() -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """An 8 x 8 image with a padding of -3: the transform folds 64 pixels onto four, and its norm is 16."""
    ones = torch.ones(4, 1, 1)
    return {"height": 8, "width": 8, "padding": -3}, {"bias": BIAS, "real": ones, "imaginary": torch.zeros(4, 1, 1)}


OUTSIDE: list[tuple[str, dict[str, Any], dict[str, torch.Tensor], str]] = [
    ("spectrum", *folded(), "padding must be from 0 to 4096, not -3"),
    ("spectrum", folded()[0] | {"padding": "3"}, folded()[1], "padding must be a whole number"),
    ("spectrum", folded()[0] | {"padding": 1}, folded()[1], r"real must have the shape f gp i with f = 60, .*, not"),
    ("spectrum", {"height": 8, "width": 8}, folded()[1], "padding is missing"),
    ("kernel", KERNEL | {"dilation": [1, 0]}, {"bias": BIAS, "kernel": MATRIX}, r"dilation\[1\] must be from 1"),
    ("kernel", KERNEL | {"dilation": [1, 1, 9]}, {"bias": BIAS, "kernel": MATRIX}, "dilation must be a list of 2"),
    ("kernel", KERNEL | {"extra": [-1, 0]}, {"bias": BIAS, "kernel": MATRIX}, r"extra\[0\] must be from 0"),
    ("kernel", KERNEL | {"padding_mode": "reflect"}, {"bias": BIAS, "kernel": MATRIX}, "must be one of zeros, circ"),
    ("kernel", KERNEL | {"dilation": [9, 1]}, {"bias": BIAS, "kernel": MATRIX}, "reaches beyond 8 pixels"),
    ("kernel", KERNEL | {"height": 4096}, {"bias": torch.zeros(512), "kernel": torch.ones(512, 512, 1, 1)}, "to prove"),
    ("series", KERNEL | {"terms": 0, "out_channels": 1}, {"bias": BIAS, "kernel": MATRIX}, "terms must be from 1 to"),
    ("dense", {"height": 1, "width": True}, {"bias": BIAS, "matrix": torch.ones(1, 1)}, "width must be a whole number"),
    ("dense", {"height": 1, "width": 2}, {"bias": BIAS, "matrix": torch.ones(1, 2)}, "matrix must have the shape hwo"),
    ("shift", {"pixels": -4}, {"shift": BIAS}, "pixels must be from 1"),
    ("max_pool", {"size": 2.0}, {}, "size must be a whole number"),
    ("downsampling", {"stride": 0}, {}, "stride must be from 1 to 4096, not 0"),
    ("householder", {}, {"normals": torch.ones(1, 3, 2)}, "normals must have the shape n 2 p"),
    ("linear", {"scale": 1}, {"weight": torch.ones(1, 1), "bias": BIAS}, "scale is unknown"),
    ("linear", {}, {"weight": torch.ones(1, 1)}, "tensor 'bias' is missing"),
    ("linear", {}, {"weight": torch.ones(1, 1), "bias": BIAS, "forward": BIAS}, "tensor 'forward' is unknown"),
    ("linear", {}, {"weight": torch.ones(1, 1).cfloat(), "bias": BIAS}, "weight must hold real floating-point numbers"),
    ("flatten", {}, {"bias": BIAS}, "tensor 'bias' is unknown"),
    ("leaky_relu", {}, {"slope": BIAS * torch.nan}, "slope must hold numbers, not NaN"),
    ("hardtanh", {}, {"low": torch.tensor(torch.nan), "high": torch.tensor(1.0)}, "low must hold numbers, not NaN"),
]


@pytest.mark.parametrize(("kind", "settings", "tensors", "sentence"), OUTSIDE)
def test_a_module_outside_its_domain_is_refused(
    kind: str, settings: dict[str, Any], tensors: dict[str, torch.Tensor], sentence: str
) -> None:
    with pytest.raises(
        InputError, match=f"^{FROZEN[kind].__name__}: .*{sentence}.*; freeze the model again"
    ) as refused:
        FROZEN[kind](torch.float32, settings, tensors)
    assert "\n" not in str(refused.value)


def test_a_precision_without_proofs_is_refused() -> None:
    with pytest.raises(InputError, match=r"must be float32 or float64, not torch\.float16"):
        FROZEN["flatten"](torch.float16, {}, {})


def test_a_proof_refuses_a_tensor_that_was_replaced_by_one_of_another_shape() -> None:
    module = FROZEN["residual"](
        torch.float64, {}, {"weights": torch.ones(2)}, *(FROZEN["flatten"](torch.float64, {}, {}),) * 2
    )
    assert float(module.lipschitz_bound()) == pytest.approx(2)
    module.weights = torch.ones(3)
    with pytest.raises(InputError, match="weights must have the shape 2, not"):
        module.lipschitz_bound()


def test_assemble_refuses_stages_that_do_not_fit_together() -> None:
    double = torch.float64
    flatten, linear = (
        FROZEN["flatten"](double, {}, {}),
        FROZEN["linear"](double, {}, {"weight": torch.ones(1, 9), "bias": BIAS}),
    )
    assert assemble([flatten, linear], (1, 3, 3), double).is_intact()
    with pytest.raises(InputError, match=r"do not fit together on inputs of shape \(1, 2, 2\)"):
        assemble([flatten, linear], (1, 2, 2), double)
    with pytest.raises(InputError, match=r"stored in torch\.float64, not in torch\.float32"):
        assemble([flatten, linear], (1, 3, 3), torch.float32)
    with pytest.raises(InputError, match="a FrozenModel is no frozen module"):
        assemble([assemble([flatten, linear], (1, 3, 3), double)], (1, 3, 3), double)  # type: ignore[list-item]


@pytest.mark.parametrize("kind", ["max_pool", "flatten", "from_column", "norm_pool"])
def test_only_convolutions_lie_in_groups_and_dilations(kind: str) -> None:
    """Their proof is about convolutions. A pool in a dilation has another output than the dilation declares."""
    double, window = torch.float64, {"max_pool": {"size": 2}, "norm_pool": {"height": 1, "width": 1}}
    phases = {"height": 1, "width": 4, "dilation": [1, 1], "shift": [0, 0], "circular": True}
    for container, settings in (("grouped", {}), ("dilated", phases)):
        inner = FROZEN[kind](double, window.get(kind, {}), {})
        with pytest.raises(InputError, match="do not fit together"):
            assemble([FROZEN[container](double, settings, {}, inner)], (1, 1, 4), double)
        kernel = FROZEN["kernel"](double, KERNEL | {"height": 1}, {"bias": BIAS, "kernel": MATRIX})
        assert assemble([FROZEN[container](double, settings, {}, kernel)], (1, 1, 4), double).is_intact()


def test_a_folder_with_a_valid_checksum_is_refused_too(tmp_path: Path) -> None:
    """The unchanged folder loads, so this test notices if the forger's checksum goes out of date."""
    intact = next(seed for seed in range(100) if fuzz(range(seed, seed + 1))[0]["bounded"])
    made = folder(intact)
    made.write(tmp_path)
    FrozenModel.load(tmp_path)
    made.stages[0]["settings"]["padding"] = -3
    made.write(tmp_path)
    with pytest.raises(InputError, match=r"is damaged: write it again with `lotnet certify RUN` \(Frozen.*padding"):
        FrozenModel.load(tmp_path)


def test_hand_made_modules_are_refused_or_truly_bounded() -> None:
    """The first seeds of `make fuzz`."""
    ends, wrong = fuzz(range(400))
    assert not wrong
    assert ends["refused"] > 100 and ends["bounded"] > 80  # neither is everything refused, nor everything let in


MUTANTS = {
    "ranges are not checked": (Between, "check", lambda self, value, name: value),
    "shapes are not compared": ("lotnet.frozen.base.solve", lambda declared, shapes, sizes: {"r": 1, "s": 1, **sizes}),
    "the reach of a kernel is not checked": (FROZEN["kernel"], "check_sizes", lambda self, sizes: None),
    "anything may lie in a dilation": ("lotnet.frozen.direct_sum.FrozenDirectSum.fits", lambda self, shape: True),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_same_seeds_notice_a_validation_that_does_less(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    for start in range(0, 2000, 100):
        if fuzz(range(start, start + 100))[1]:
            return
    pytest.fail("survived")
