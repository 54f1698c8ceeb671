"""Spectral norms to fifty digits, and the falsification of `spectral_norm_bound` against them.

`check(count, seed)` is the experiment; the tests run it with a small count, by hand it is
`python tests/linalg/oracle.py 10000`.
"""

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import flint
import torch
from torch import Tensor

from lotnet.linalg.bounds import spectral_norm_bound

DIGITS = 50


def spectral_norm(w: Tensor) -> flint.arb:
    """The largest singular value of the stored matrix, enclosed to fifty digits.

    The Gram matrix of the real form `[[Re, -Im], [Im, Re]]` and its characteristic polynomial are computed in
    exact rationals, and the roots are isolated rigorously, so multiplicity and conditioning do no harm.
    """
    re, im = w.real, w.imag if w.is_complex() else torch.zeros_like(w)
    blocks = torch.cat([torch.cat([re, -im], 1), torch.cat([im, re], 1)], 0) if w.is_complex() else w
    exact = [[flint.fmpq(*Fraction(x).as_integer_ratio()) for x in row] for row in blocks.double().tolist()]
    matrix = flint.fmpq_mat(exact)
    short = matrix if matrix.nrows() <= matrix.ncols() else matrix.transpose()
    with flint.ctx.workdps(DIGITS + 10):
        roots = (short * short.transpose()).charpoly().numer().complex_roots()
        return max((root.real for root, _ in roots), key=lambda r: r.mid()).sqrt()


def matrices(count: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Small matrices of every awkward kind, each with the name of its kind."""
    g = torch.Generator().manual_seed(seed)
    for index in range(count):
        kind = list(KINDS)[index % len(KINDS)]
        dtype = DTYPES[index // len(KINDS) % len(DTYPES)]
        make, scales = KINDS[kind]
        m, n = torch.randint(1, 7, (2,), generator=g).tolist()
        w = make(m, n, g) * 10 ** _uniform(*scales(torch.finfo(dtype)), g)
        yield kind, w.to(dtype) if dtype.is_complex else w.real.to(dtype)


def _gaussian(m: int, n: int, g: torch.Generator) -> Tensor:
    return torch.randn(m, n, generator=g, dtype=torch.complex128)


def _uniform(low: float, high: float, g: torch.Generator) -> float:
    return low + (high - low) * torch.rand((), generator=g, dtype=torch.float64).item()


def _conditioned(m: int, n: int, g: torch.Generator) -> Tensor:
    """Singular values from 1 down to 1e-16, evenly spread in the exponent."""
    u, _, v = torch.linalg.svd(_gaussian(m, n, g), full_matrices=False)
    s = torch.logspace(0, -_uniform(0, 16, g), min(m, n), dtype=torch.float64)
    return (u * s) @ v


def _orthogonal(m: int, n: int, g: torch.Generator) -> Tensor:
    u, _, v = torch.linalg.svd(_gaussian(m, n, g), full_matrices=False)
    return u @ v


def _deficient(m: int, n: int, g: torch.Generator) -> Tensor:
    """Exactly rank-deficient: products of small integers."""
    left = torch.randint(-4, 5, (m, 1), generator=g).double()
    return (left @ torch.randint(-4, 5, (1, n), generator=g).double()).to(torch.complex128)


def _mixed(m: int, n: int, g: torch.Generator) -> Tensor:
    """Entries from subnormal to ordinary in one matrix."""
    exponent = torch.randint(-320, 1, (m, n), generator=g).double()
    return _gaussian(m, n, g) * 10.0**exponent


def _sparse(m: int, n: int, g: torch.Generator) -> Tensor:
    return _gaussian(m, n, g) * (torch.rand(m, n, generator=g) < 0.3)


def _zero(m: int, n: int, g: torch.Generator) -> Tensor:
    return torch.zeros(m, n, dtype=torch.complex128)


def _equal(m: int, n: int, g: torch.Generator) -> Tensor:
    return torch.full((m, n), _uniform(-1, 1, g), dtype=torch.complex128)


def _one(info: torch.finfo) -> tuple[float, float]:
    return 0, 0


def _wide(info: torch.finfo) -> tuple[float, float]:
    return -30, 30


def _subnormal(info: torch.finfo) -> tuple[float, float]:
    return math.log10(info.tiny) + math.log10(info.eps), math.log10(info.tiny)


def _largest(info: torch.finfo) -> tuple[float, float]:
    return math.log10(info.max) - 8, math.log10(info.max) - 2


DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)

# kind: how it is made, and the range of decimal exponents it is scaled by
KINDS = {
    "gaussian": (_gaussian, _one),
    "conditioned": (_conditioned, _one),
    "orthogonal": (_orthogonal, _one),
    "rank-deficient": (_deficient, _one),
    "sparse": (_sparse, _one),
    "zero": (_zero, _one),
    "equal entries": (_equal, _one),
    "conditioned, scaled": (_conditioned, _wide),
    "orthogonal, scaled": (_orthogonal, _wide),
    "mixed scales": (_mixed, _one),
    "subnormal": (_gaussian, _subnormal),
    "rank-deficient, subnormal": (_deficient, _subnormal),
    "largest": (_gaussian, _largest),
}


@dataclass
class Outcome:
    """The result of a check; `excess` is the largest `bound / norm - 1` among norms over 1e-290."""

    count: int = 0
    refused: int = 0
    excess: float = 0.0
    failures: list[str] = field(default_factory=list)


def check(count: int, seed: int) -> Outcome:
    """Every bound in `[norm, norm (1 + 1e-6) + 1e-300]`; infinite ("refused") only near overflow, if ever."""
    outcome = Outcome()
    for kind, w in matrices(count, seed):
        outcome.count += 1
        bound = spectral_norm_bound(w).item()
        if math.isinf(bound):
            outcome.refused += 1
            if kind != "largest":
                outcome.failures.append(f"{kind} {tuple(w.shape)} {w.dtype}: refused")
            continue
        with flint.ctx.workdps(DIGITS):
            norm = spectral_norm(w)
            limit = norm * (1 + flint.arb("1e-6")) + flint.arb("1e-300")
            if not (norm <= bound and bound <= limit):
                outcome.failures.append(f"{kind} {tuple(w.shape)} {w.dtype}: bound {bound!r}, norm {norm}")
            if norm > 1e-290:
                outcome.excess = max(outcome.excess, float(bound / norm - 1))
    return outcome


if __name__ == "__main__":
    start = time.perf_counter()
    found = check(int(sys.argv[1]), seed=0)
    print(found, f"{time.perf_counter() - start:.0f} s")
    sys.exit(bool(found.failures))
