"""Many layers orthogonalised together."""

import torch

from lotnet.parametrizations import LOT, Geometry
from lotnet.parametrizations.lot import operators


def test_together_is_the_same_as_one_by_one() -> None:
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
