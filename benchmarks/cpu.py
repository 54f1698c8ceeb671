"""How much faster the decompositions of `linalg.polar_svd` are on a CPU than the iteration before: one run, ratios.

    python benchmarks/cpu.py [--rounds 5] [--threads 1] [--out results/cpu.md]

`before` is what a CPU computed until these decompositions: the polynomials, from the smallest singular value that a
Cholesky factorisation proves, and a gradient by an eigendecomposition of `H`. Both run in each round, one after the
other, so that a busy moment of the machine affects both alike; the table has the medians of the times and of the ratios
of each round. Kernels are random, or have singular values from 1 down to 1/300 (ill-conditioned).
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.linalg import polar as ours
from lotnet.linalg import polar_svd
from lotnet.linalg.polynomials import schedule
from networks import network
from sections import write_section

SHAPES = (
    (164, 12, 64, torch.complex64),
    (52, 128, 256, torch.complex64),
    (20, 256, 512, torch.complex64),
    (10, 512, 1024, torch.complex64),
    (1, 1024, 2048, torch.float32),
)
TOLERANCE = 1e-5


class Before(torch.autograd.Function):
    """The polar factor as a CPU computed it before, m <= n."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lower: float) -> Tensor:
        w, scale = iterated(x, lower, TOLERANCE)
        ctx.save_for_backward(x, w, scale)
        ctx.lower = lower
        return w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        x, w, scale = ctx.saved_tensors
        return ours.pullback(x, w, scale, None, g, ctx.lower, use_products=False), None


def iterated(x: Tensor, lower: float, tolerance: float) -> tuple[Tensor, Tensor]:
    scaled, scale, gram, square = ours.normalize(x)
    proved = next((s for s in (0.3, 0.06, 0.01) if ours.all_above(gram, s)), 0.0)
    return ours.iterate(scaled, gram, square, schedule(max(lower, proved), tolerance))[0], scale


def accurate_before(x: Tensor) -> Tensor:
    for condition in (1e1, 1e3, 1e6, 1e12):
        w, _ = iterated(x, ours.sigma_min(x.shape[-2], condition), 1e-15)
        if ours.deviation(w) < 500 * torch.finfo(w.dtype).eps:
            break
    return w


@contextmanager
def before() -> Iterator[None]:
    with mock.patch.multiple(polar_svd, polar=Before.apply, accurate_polar=accurate_before):
        yield


def compare(work: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Median seconds before and now, and the median ratio of a round."""
    old, new = [], []
    for _ in range(rounds + 1):  # the first round warms up
        with before():
            old.append(seconds(work))
        new.append(seconds(work))
    ratios = [a / b for a, b in zip(old[1:], new[1:], strict=True)]
    return statistics.median(old[1:]), statistics.median(new[1:]), statistics.median(ratios)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def matrices(f: int, m: int, n: int, dtype: torch.dtype, ill_conditioned: bool) -> Tensor:
    torch.manual_seed(0)
    v = torch.randn(f, m, n, dtype=dtype) / n**0.5
    if not ill_conditioned:
        return v
    u, _, vh = torch.linalg.svd(v, full_matrices=False)
    return (u * torch.logspace(0, -2.5, m)) @ vh


def rows() -> Iterator[tuple[str, Callable[[], object]]]:
    for channels in (8, 32):
        model, images = network("lot", 5, channels).train(), torch.rand(64, 3, 32, 32)
        with torch.no_grad():  # away from the identity, as in training
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.15 / parameter[0].numel() ** 0.5)
        labels = torch.randint(0, 10, (64,))
        yield (
            f"LipConvnet-5, {channels} channels: a training step of 64 images",
            lambda model=model, images=images, labels=labels: F.cross_entropy(model(images), labels).backward(),
        )
    for ill_conditioned in (False, True):
        for f, m, n, dtype in SHAPES:
            v = matrices(f, m, n, dtype, ill_conditioned).requires_grad_()
            g = torch.randn_like(v)
            name = f"{f} of {m} x {n} {'complex' if dtype.is_complex else 'real'}"
            name += ", ill-conditioned" if ill_conditioned else ""
            yield f"{name}, forward and backward", lambda v=v, g=g: torch.autograd.grad(ours.polar(v), v, g)
    for f, m, n in ((2, 512, 1024), (2, 512, 512)):
        v = torch.randn(f, m, n, dtype=torch.complex128)
        yield f"{f} of {m} x {n} complex, `accurate_polar`, float64", lambda v=v: ours.accurate_polar(v)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--out", type=Path, help="write the table into this page")
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    text = (
        f"Medians of one run; `ratio` is the median over rounds of before / now (benchmarks/cpu.py says what is "
        f"compared).\n\n    python benchmarks/cpu.py --rounds {settings.rounds} --threads {settings.threads} --out "
        f"results/cpu.md\n\nOn {platform.machine()}, {os.cpu_count()} cores shared with other work, torch "
        f"{torch.__version__}. On a busy machine the ratios say more than the seconds: both sides of one were measured "
        "in the same round.\n\n| work | before, s | now, s | ratio |\n|---|---|---|---|\n"
    )
    for name, work in rows():
        old, new, ratio = compare(work, settings.rounds)
        text += f"| {name} | {old:.3f} | {new:.3f} | {ratio:.2f} |\n"
        print(text.splitlines()[-1], flush=True)
    if settings.out:
        write_section(settings.out, "Orthogonalisation", text)


if __name__ == "__main__":
    main()
