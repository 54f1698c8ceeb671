"""Fused Householder activation: one pass over memory forward and one backward, for either memory order of images."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lotnet.kernels.optional_triton import jit, tl, triton

_BLOCK = 2048


def reflect(x: Tensor, normals: Tensor) -> Tensor:  # b c ..., order 2 c/2
    """`z - 2 v relu(v.z)` on the pairs z of channels i and i + c/2, for each v in turn; float32."""
    for v in normals:
        x = _Reflect.apply(x, v)
    return x


def _in_memory_order(x: Tensor) -> tuple[Tensor, int, int]:
    """Return the tensor, outer and inner, such that its memory reads (outer, c, inner). Copy only if it does not."""
    if x.ndim == 4 and x.permute(2, 3, 1, 0).is_contiguous():  # pixels, channels, batch: the order of `fourier`
        return x, x.shape[2] * x.shape[3], x.shape[0]
    return x.contiguous(), x.shape[0], x[0, 0].numel()


class _Reflect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, v: Tensor) -> Tensor:
        x, outer, inner = _in_memory_order(x)
        v = v.contiguous()
        out, half = torch.empty_like(x), x.shape[1] // 2
        grid = (triton.cdiv(outer * inner, _BLOCK), half)
        _forward[grid](x, v, out, outer * inner, inner, half, BLOCK=_BLOCK)
        ctx.save_for_backward(x, v)
        ctx.sizes = outer, inner
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        (x, v), (outer, inner), half = ctx.saved_tensors, ctx.sizes, ctx.saved_tensors[1].shape[1]
        if g.stride() != x.stride():
            g = torch.empty_like(x).copy_(g)
        out, chunks = torch.empty_like(x), triton.cdiv(outer * inner, _BLOCK)
        sums = v.new_empty(chunks, 2, half)  # one per chunk, added in a fixed order: bit-reproducible
        _backward[(chunks, half)](x, v, g, out, sums, outer * inner, inner, half, BLOCK=_BLOCK)
        return out, sums.sum(0)


@jit
def _pair(size, inner, half, BLOCK: tl.constexpr):
    """Offsets of a chunk of a pair's first channel, and a mask of the offsets that exist."""
    pair = tl.program_id(1)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return (at // inner) * 2 * half * inner + pair * inner + at % inner, at < size


@jit
def _forward(x_ptr, v_ptr, out_ptr, size, inner, half, BLOCK: tl.constexpr):
    at, inside = _pair(size, inner, half, BLOCK)
    v = tl.load(v_ptr + tl.program_id(1))
    w = tl.load(v_ptr + half + tl.program_id(1))
    a = tl.load(x_ptr + at, mask=inside, other=0.0)
    b = tl.load(x_ptr + at + half * inner, mask=inside, other=0.0)
    reach = 2 * tl.maximum(v * a + w * b, 0.0)
    tl.store(out_ptr + at, a - v * reach, mask=inside)
    tl.store(out_ptr + at + half * inner, b - w * reach, mask=inside)


@jit
def _backward(x_ptr, v_ptr, g_ptr, out_ptr, sums_ptr, size, inner, half, BLOCK: tl.constexpr):
    at, inside = _pair(size, inner, half, BLOCK)
    v = tl.load(v_ptr + tl.program_id(1))
    w = tl.load(v_ptr + half + tl.program_id(1))
    a = tl.load(x_ptr + at, mask=inside, other=0.0)
    b = tl.load(x_ptr + at + half * inner, mask=inside, other=0.0)
    ga = tl.load(g_ptr + at, mask=inside, other=0.0)
    gb = tl.load(g_ptr + at + half * inner, mask=inside, other=0.0)
    height = v * a + w * b
    reach = 2 * tl.maximum(height, 0.0)
    g_height = tl.where(height > 0, -2 * (v * ga + w * gb), 0.0)
    tl.store(out_ptr + at, ga + v * g_height, mask=inside)
    tl.store(out_ptr + at + half * inner, gb + w * g_height, mask=inside)
    here = sums_ptr + tl.program_id(0) * 2 * half + tl.program_id(1)
    tl.store(here, tl.sum(a * g_height - reach * ga))
    tl.store(here + half, tl.sum(b * g_height - reach * gb))
