"""Sums of products in one Triton kernel, against torch. Without a GPU it runs under Triton's interpreter."""

import interpreted  # noqa: F401  before the kernels
import pytest
import torch
from torch import Tensor

from lotnet.kernels.products import planes, skew_part, sum_of_products

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def random(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device=DEVICE)


def to_planes(z: Tensor) -> Tensor:
    parts = torch.stack((z.real, z.imag), dim=1) if z.is_complex() else z[:, None]
    return planes(parts, torch.ones(len(z), device=DEVICE), z.real.dtype)


def to_matrix(p: Tensor) -> Tensor:
    if p.shape[1] == 3:
        assert torch.equal(p[:, 2], -p[:, 1])
    return p[:, 0] if p.shape[1] == 1 else torch.complex(p[:, 0], p[:, 1])


@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
@pytest.mark.parametrize(("m", "n", "k"), ((3, 5, 2), (20, 40, 33)))
def test_product_with_everything_added(dtype: torch.dtype, m: int, n: int, k: int) -> None:
    torch.manual_seed(m)
    a, b, z1, z2, z3 = (random(2, *size, dtype=dtype) for size in ((m, k), (k, n), (m, n), (m, n), (m, n)))
    factor = torch.tensor([2.0, 0.5], device=DEVICE)
    plus = [(0.3, to_planes(z1)), (-0.7, to_planes(z2)), (1.5, to_planes(z3))]
    actual = sum_of_products([(to_planes(a), to_planes(b))], alpha=0.9, plus=plus, identity=0.25, factor=factor)
    eye = torch.eye(m, n, device=DEVICE)
    expected = (0.9 * a @ b + 0.3 * z1 - 0.7 * z2 + 1.5 * z3 + 0.25 * eye) * factor[:, None, None]
    assert (to_matrix(actual) - expected).abs().max() < 3e-5


@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
def test_adjoint_and_hermitian_mirror(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a = random(2, 40, 5, dtype=dtype)
    gram = sum_of_products([(to_planes(a), to_planes(a))], adjoint=True, mirror=1)
    assert (to_matrix(gram) - a @ a.mH).abs().max() < 1e-5
    b = random(2, 7, 5, dtype=dtype)
    product = sum_of_products([(to_planes(a), to_planes(b))], adjoint=True, result=True)
    assert product.shape[1] == (2 if dtype.is_complex else 1)
    assert (to_matrix(product) - a @ b.mH).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
def test_two_terms_and_skew_mirror(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    h, k = random(2, 40, 40, dtype=dtype), random(2, 40, 40, dtype=dtype)
    h = h + h.mH
    s = skew_part(to_planes(k))
    assert (to_matrix(s) - (k - k.mH)).abs().max() < 1e-6
    actual = sum_of_products([(to_planes(h), s), (s, to_planes(h))], mirror=-1)
    expected = h @ (k - k.mH) + (k - k.mH) @ h
    assert (to_matrix(actual) - expected).abs().max() < 2e-4
