"""LipFlatnet: one size of image from stem to neck."""

import dataclasses
from pathlib import Path

import pytest
import torch

from lotnet.cli import main
from lotnet.errors import InputError
from lotnet.layers import ConvexResidual, Normalize, OrthogonalLinear
from lotnet.models import Images, LipFlatnet, describe
from lotnet.training.run import Run

COLOUR = Images(3, 32, 32, 10, (0.49, 0.48, 0.45), 0.2507)


@pytest.mark.parametrize("residual", [False, True])
def test_shapes(residual: bool) -> None:
    model = LipFlatnet(blocks=3, channels=4, patch=4, features=16, dense_layers=2, residual=residual).build(COLOUR)
    assert isinstance(model[0], Normalize) and isinstance(model[-1], OrthogonalLinear)
    shapes = [shape for *_, shape, _ in describe(model, torch.zeros(1, 3, 32, 32))]
    assert shapes[1:] == [(4, 16, 16)] * 4 + [(8, 4, 4), (128,), (16,), (16,), (10,)]
    assert sum(isinstance(m, ConvexResidual) for m in model) == (3 if residual else 0)


def test_a_quasi_residual_start_counts_the_blocks() -> None:
    """Its kernels are those of the identity, sqrt(blocks) / gamma times as large, and a random one."""
    torch.manual_seed(0)
    model = LipFlatnet(blocks=9, channels=8, start="quasi-residual", gamma=0.1).build(COLOUR)
    centre = torch.stack([block[0].weight.detach()[:, :, 1, 1].diagonal() for block in model[2:11]])
    assert abs(float(centre.mean()) - 30) < 0.1


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"channels": 3}, "channels must be a positive even number, not 3"),
        ({"features": 0}, "features must be a positive even number, not 0"),
        ({"blocks": 0}, "blocks must be at least 1, not 0"),
        ({"patch": 0}, "patch must be at least 1"),
        ({"dense_layers": 0}, "dense_layers must be at least 1"),
        ({"patch": 3}, "32 x 32 is no multiple of 6: choose another patch or resize"),
    ],
)
def test_what_cannot_be_built_is_a_sentence(settings: dict[str, int], word: str) -> None:
    with pytest.raises(InputError, match=word):
        LipFlatnet(**settings).build(COLOUR)


def test_sides_may_differ() -> None:
    model = LipFlatnet(blocks=1, channels=4, patch=2, features=16).build(
        dataclasses.replace(COLOUR, height=8, width=16)
    )
    assert model(torch.rand(2, 3, 8, 16)).shape == (2, 10)


def test_it_is_trained_and_certified_from_the_command_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    sizes = ["--model.blocks=2", "--model.channels=8", "--model.features=32", "--model.dense_layers=1"]
    start = ["--model.start=quasi-residual", "--model.head=lln"]
    steps = ["--trainer.epochs=2", "--limit=300", "--trainer.batch_size=64", "--device=cpu"]
    assert main(["train", "--model.kind=lipflatnet", *sizes, *start, *steps, "--out", str(run)]) == 0
    assert isinstance(Run.open(run).config.model, LipFlatnet)
    assert main(["certify", str(run), "--limit", "20"]) == 0
