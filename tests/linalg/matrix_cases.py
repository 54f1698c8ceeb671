"""Matrices for the tests of polar factors."""

import math

import torch
from torch import Tensor


def conditioned(m: int, n: int, condition: float, dtype: torch.dtype, seed: int = 0, batch: int = 3) -> Tensor:
    """Random singular vectors, singular values from 1 down to 1/condition."""
    g = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    p, _, q = torch.linalg.svd(torch.randn(batch, m, n, generator=g, dtype=wide), full_matrices=False)
    r = min(m, n)
    s = torch.logspace(0, -math.log10(condition), r, dtype=torch.float64) if r > 1 else torch.ones(1).double()
    return ((p * s) @ q).to(dtype)


def svd_polar(v: Tensor) -> Tensor:
    p, _, q = torch.linalg.svd(v, full_matrices=False)
    return p @ q
