"""The polar factor in Triton kernels: PyTorch's numbers in float32, singular values at most one in half precision."""

import interpreted  # noqa: F401  before the kernels
import pytest
import torch
from torch import Tensor

from lotnet.kernels import dispatch
from lotnet.linalg import polar_planes
from lotnet.linalg.polar import iterate, normalize, polar, pullback, sigma_min
from lotnet.linalg.polynomials import schedule

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CONDITION = 30.0


def example(kind: str, m: int, n: int, dtype: torch.dtype) -> Tensor:
    torch.manual_seed(m)
    v = torch.randn(2, m, n, dtype=dtype)
    u, s, vh = torch.linalg.svd(v, full_matrices=False)
    if kind == "ill-conditioned":
        s = torch.logspace(0, -1.4, min(m, n)).expand_as(s) * torch.tensor([[1.0], [1e-4]])
    if kind == "rank-deficient":
        s = torch.cat((s[:, :-2] + 1, torch.zeros_like(s[:, -2:])), dim=1)
    return ((u * s[:, None]) @ vh * (kind != "zero")).to(DEVICE)


def parts(z: Tensor) -> Tensor:
    return torch.stack((z.real, z.imag), dim=1) if z.is_complex() else z[:, None]


def matrices(p: Tensor) -> Tensor:
    return p[:, 0] if p.shape[1] == 1 else torch.complex(p[:, 0], p[:, 1])


@pytest.mark.parametrize("kind", ("random", "ill-conditioned", "rank-deficient", "zero"))
@pytest.mark.parametrize(("m", "n"), ((9, 9), (6, 11)))
@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
def test_equals_the_plain_path_in_float32(
    dtype: torch.dtype, m: int, n: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "products_are_cheap", lambda x: True)  # on a CPU, too, the plain path iterates
    v = example(kind, m, n, dtype)
    w = polar_planes.polar(parts(v), sigma_min(m, CONDITION), 1e-4, torch.float32)
    assert (matrices(w) - polar(v, tolerance=1e-4, condition=CONDITION)).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ("random", "ill-conditioned", "rank-deficient", "zero"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
def test_half_precision_keeps_singular_values_at_most_one(dtype: torch.dtype, kind: str) -> None:
    v = example(kind, 9, 12, dtype)
    w = polar_planes.polar(parts(v), sigma_min(9, CONDITION), 1e-4)
    values = torch.linalg.svdvals(matrices(w).to(torch.complex128))
    assert values.max() <= 1 + 1e-3
    if kind in ("random", "ill-conditioned"):  # inside the schedule's interval the last step is exact
        assert values.max() <= 1 + 1e-5
        assert values.min() >= 1 - 2e-4


@pytest.mark.parametrize(("m", "n"), ((9, 9), (6, 11)))
@pytest.mark.parametrize("condition", (1e3, 3e3))
def test_gradient_of_singular_matrices_is_finite(condition: float, m: int, n: int) -> None:
    """The inverse is largest here, and the gradient may align with its largest part."""
    v = example("rank-deficient", m, n, torch.float32)
    u, _, vh = torch.linalg.svd(v)
    lost = u[:, :, -1:]
    for g in (torch.randn_like(v), lost @ torch.randn(2, 1, n, device=DEVICE), lost @ vh[:, :1], lost @ vh[:, -1:]):
        p = parts(v).requires_grad_()
        matrices(polar_planes.polar(p, sigma_min(m, condition), 1e-4)).backward(g)
        assert p.grad is not None and p.grad.isfinite().all()


@pytest.mark.parametrize(("m", "n"), ((9, 9), (6, 11)))
@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
def test_gradient_beyond_its_condition_equals_the_one_by_products(dtype: torch.dtype, m: int, n: int) -> None:
    v = example("random", m, n, dtype)
    u, _, vh = torch.linalg.svd(v, full_matrices=False)
    v = (u * torch.logspace(0, -2.4, min(m, n), device=DEVICE).to(dtype)) @ vh
    g = torch.randn_like(v)
    lower = sigma_min(m, 300.0)
    p = parts(v).requires_grad_()
    matrices(polar_planes.polar(p, lower, 1e-4, torch.float32)).backward(g)
    wide = v.to(torch.complex128 if dtype.is_complex else torch.float64)
    x, scale, gram, square = normalize(wide)
    w, inverse = iterate(x, gram, square, schedule(lower, 1e-4), wants_inverse=m < n)
    expected = pullback(wide, w, scale, inverse, g.to(wide.dtype), lower, use_products=True)
    assert p.grad is not None
    assert (matrices(p.grad) - expected).norm() < 1e-2 * expected.norm()
    with_all = pullback(wide, w, scale, inverse, g.to(wide.dtype), lower, use_products=False)
    assert (with_all - expected).norm() > 5e-2 * expected.norm(), "the cut is to be seen"


@pytest.mark.parametrize("kind", ("ill-conditioned", "zero"))
@pytest.mark.parametrize(("m", "n"), ((9, 9), (6, 11)))
@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
def test_gradient(dtype: torch.dtype, m: int, n: int, kind: str) -> None:
    v = example(kind, m, n, dtype)
    g = torch.randn_like(v) * 1e-6  # gradients are small, and float16 ends at 6e-8
    p = parts(v).requires_grad_()
    matrices(polar_planes.polar(p, sigma_min(m, CONDITION), 1e-4)).backward(g)
    assert p.grad is not None and p.grad.isfinite().all()
    if kind == "ill-conditioned":
        exact = v.detach().to(torch.complex128 if dtype.is_complex else torch.float64).requires_grad_()
        polar(exact, tolerance=1e-12, condition=1e4).backward(g.to(exact.dtype))
        assert exact.grad is not None
        assert (matrices(p.grad) - exact.grad).norm() < 2e-2 * exact.grad.norm()
