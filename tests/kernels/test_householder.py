"""Householder activations in one kernel, against the formula, in every memory format of images."""

import interpreted  # noqa: F401  before the kernels
import pytest
import torch

from lotnet.kernels import householder, plain

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("order", (1, 2))
@pytest.mark.parametrize("lies", ("batch first", "batch last", "flat", "channels last"))
def test_reflection_equals_its_formula(lies: str, order: int) -> None:
    torch.manual_seed(0)
    x = {
        "batch first": torch.randn(3, 6, 5, 4),
        "batch last": torch.randn(5, 4, 6, 3).permute(3, 2, 0, 1),
        "flat": torch.randn(7, 6),
        "channels last": torch.randn(3, 6, 5, 4).to(memory_format=torch.channels_last),
    }[lies].to(DEVICE)
    normals = torch.randn(order, 2, 3, device=DEVICE)
    x.requires_grad_(), normals.requires_grad_()
    actual, expected = householder.reflect(x, normals), plain.reflect(x, normals)
    assert (actual - expected).abs().max() < 1e-5
    if lies == "batch last":
        assert actual.stride() == x.stride()
    g = torch.randn_like(expected)
    for ours, theirs in zip(*(torch.autograd.grad(y, (x, normals), g) for y in (actual, expected)), strict=True):
        assert (ours - theirs).abs().max() < 1e-4
