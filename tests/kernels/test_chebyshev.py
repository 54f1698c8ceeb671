"""Triton kernels against the same formula in PyTorch. Without a GPU they run under Triton's interpreter."""

import interpreted  # noqa: F401  before the kernels
import pytest
import torch

from lotnet.kernels import chebyshev, plain
from lotnet.linalg.complex_layout import stacked, unstacked

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("m", (1, 5, 64, 70))
@pytest.mark.parametrize("kind", ("random", "large", "zero"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.complex64))
def test_chebyshev_update_equals_its_formula(dtype: torch.dtype, kind: str, m: int) -> None:
    torch.manual_seed(m)
    scale = {"random": 1.0, "large": 1e6, "zero": 0.0}[kind]
    s, before, k, product = (scale * torch.randn(3, m, m, dtype=dtype, device=DEVICE) for _ in range(4))
    expected = s + 0.3 * (s - before) + 0.7 * (k - product + product.mH)
    arguments = [stacked(t) if t.is_complex() else t for t in (s, before, k, product)]
    actual = chebyshev.chebyshev_update(*arguments, 0.3, 0.7)
    actual = unstacked(actual) if dtype.is_complex else actual
    assert (actual - expected).abs().max() <= 1e-5 * max(1.0, scale)
    twin = plain.chebyshev_update(*arguments, 0.3, 0.7)
    twin = unstacked(twin) if dtype.is_complex else twin
    assert (actual - twin).abs().max() <= 1e-5 * max(1.0, scale)
