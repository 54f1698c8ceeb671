"""Expand the distinct matrices of a real kernel's spectrum to the real blocks of all its frequencies, in one pass.

The result is that of `real_blocks(expand(...))` in plain PyTorch, without its six intermediate copies. The backward
pass is fused too.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lotnet.kernels.optional_triton import jit, tl, triton

_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class SpectrumIndex:
    """Maps between the frequencies of a half spectrum and its distinct matrices; all tensors are on one device."""

    source: Tensor
    """f: index of the distinct matrix of each frequency. Matrices of self-conjugate frequencies come first."""
    sign: Tensor
    """f: -1 where the frequency has the conjugate of that matrix, else 1."""
    first: Tensor
    """n: the frequency of each distinct matrix."""
    second: Tensor
    """n: the frequency of its conjugate, or -1 if the half spectrum has none."""
    self_conjugates: int
    """Number of distinct matrices that are real."""


def spectrum_blocks(reals: Tensor, pairs: Tensor, index: SpectrumIndex) -> Tensor:  # r 1 o i, p 2 o i -> f 2o 2i
    """Blocks `[[R, -I], [I, R]]` of all frequencies. If all matrices are in `pairs`, `reals` is empty."""
    blocks: Tensor = _SpectrumBlocks.apply(reals, pairs, index)
    return blocks


class _SpectrumBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, reals: Tensor, pairs: Tensor, index: SpectrumIndex) -> Tensor:
        r, (_, _, o, i), frequencies = len(reals), pairs.shape, len(index.source)
        ctx.index, ctx.shapes = index, (reals.shape, pairs.shape)
        out = pairs.new_empty(frequencies, 2 * o, 2 * i)
        launch = (triton.cdiv(o * i, _BLOCK), frequencies)
        _forward[launch](reals.contiguous(), pairs.contiguous(), index.source, index.sign, out, r, o, i, BLOCK=_BLOCK)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        g_reals, g_pairs = (g.new_empty(shape) for shape in ctx.shapes)
        r, (p, _, o, i), index = len(g_reals), g_pairs.shape, ctx.index
        launch = (triton.cdiv(o * i, _BLOCK), r + p)
        _backward[launch](
            g.contiguous(), index.first, index.second, g_reals, g_pairs, r, o, i,
            index.self_conjugates, BLOCK=_BLOCK,
        )  # fmt: skip
        return g_reals, g_pairs, None


@jit
def _forward(reals_ptr, pairs_ptr, source_ptr, sign_ptr, out_ptr, r, o, i, BLOCK: tl.constexpr):
    frequency = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < o * i
    source = tl.load(source_ptr + frequency)
    sign = tl.load(sign_ptr + frequency)
    if source < r:
        real = tl.load(reals_ptr + source * o * i + at, mask=inside)
        imaginary = tl.zeros_like(real)
    else:
        pair = pairs_ptr + 2 * (source - r) * o * i + at
        real = tl.load(pair, mask=inside)
        imaginary = sign * tl.load(pair + o * i, mask=inside)
    here = out_ptr + 4 * frequency * o * i + (at // i) * 2 * i + at % i
    tl.store(here, real, mask=inside)
    tl.store(here + i, -imaginary, mask=inside)
    tl.store(here + 2 * o * i, imaginary, mask=inside)
    tl.store(here + 2 * o * i + i, real, mask=inside)


@jit
def _backward(g_ptr, first_ptr, second_ptr, g_reals_ptr, g_pairs_ptr, r, o, i, own, BLOCK: tl.constexpr):
    """One distinct matrix: sum over its frequency and, if the half spectrum has it, the conjugate one."""
    matrix = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < o * i
    place = (at // i) * 2 * i + at % i
    first = tl.load(first_ptr + matrix)
    second = tl.load(second_ptr + matrix)
    here = g_ptr + 4 * first * o * i + place
    real = tl.load(here, mask=inside) + tl.load(here + 2 * o * i + i, mask=inside)
    imaginary = tl.load(here + 2 * o * i, mask=inside) - tl.load(here + i, mask=inside)
    if second >= 0:
        there = g_ptr + 4 * second * o * i + place
        real += tl.load(there, mask=inside) + tl.load(there + 2 * o * i + i, mask=inside)
        imaginary -= tl.load(there + 2 * o * i, mask=inside) - tl.load(there + i, mask=inside)
    imaginary = tl.where(matrix < own, 0.0, imaginary)  # a real matrix: its imaginary part stays zero
    if matrix < r:
        tl.store(g_reals_ptr + matrix * o * i + at, real, mask=inside)
    else:
        pair = g_pairs_ptr + 2 * (matrix - r) * o * i + at
        tl.store(pair, real, mask=inside)
        tl.store(pair + o * i, imaginary, mask=inside)
