"""Many layers orthogonalised together."""

import pytest
import torch

from lotnet.kernels import dispatch
from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations import lot as module
from lotnet.parametrizations.lot import operators


def test_joint_orthogonalisation_equals_one_by_one() -> None:
    torch.manual_seed(0)
    shapes = [(4, 4, 3, 6), (4, 4, 3, 6), (4, 8, 3, 6), (4, 4, 3, 3), (4, 8, 1, 2), (6, 2, 2, 5)]
    geometries = [Geometry(o, i, k, side, side) for o, i, k, side in shapes]
    weights = [torch.randn(o, i, k, k, dtype=torch.float64, requires_grad=True) for o, i, k, _ in shapes]
    lots = [LOT(), LOT(), LOT(), LOT(condition=50.0), LOT(), LOT()]
    images = [torch.randn(2, i, side, side, dtype=torch.float64) for _, i, _, side in shapes]
    together = operators(list(zip(lots, weights, geometries, strict=True)))
    for lot, weight, geometry, image, operator in zip(lots, weights, geometries, images, together, strict=True):
        expected, actual = lot.operator(weight, geometry).apply(image), operator.apply(image)
        assert torch.allclose(actual, expected, atol=1e-12)
        cotangent = torch.randn_like(expected)
        (a,) = torch.autograd.grad(actual, weight, cotangent, retain_graph=True)
        (b,) = torch.autograd.grad(expected, weight, cotangent)
        assert torch.allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("apart", (1, 100))
def test_tensor_cores_compute_the_same_to_their_precision(apart: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real matrices in their own batch, or mixed with complex ones; without a GPU under Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    torch.manual_seed(0)
    monkeypatch.setattr(module, "_MIN_CHANNELS_TO_SPLIT", apart)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = [(6, 4, 3, 2), (4, 6, 3, 2), (4, 6, 3, 2), (5, 7, 1, 2)]
    geometries = [Geometry(o, i, k, side, side) for o, i, k, side in shapes]
    weights = [torch.randn(o, i, k, k, device=device, requires_grad=True) for o, i, k, _ in shapes]
    images = [torch.randn(2, i, side, side, device=device) for _, i, _, side in shapes]
    found = []
    for fast in (False, True):
        monkeypatch.setattr(dispatch, "tensor_cores_allowed", lambda x, fast=fast: fast)
        made = operators([(LOT(condition=50.0), w, g) for w, g in zip(weights, geometries, strict=True)])
        outputs = [operator.apply(image) for operator, image in zip(made, images, strict=True)]
        gradients = torch.autograd.grad(sum(y.square().sum() + y.sum() for y in outputs), weights)
        found.append((outputs, gradients))
    for plain, fast in zip(*found, strict=True):
        for expected, actual in zip(plain, fast, strict=True):
            assert (actual - expected).norm() <= 1e-2 * expected.norm()
