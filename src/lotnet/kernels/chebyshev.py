"""One step of a Chebyshev iteration, fused into a single pass over memory.

Tests compare it with the plain PyTorch version.
"""

import torch
from torch import Tensor

from lotnet.kernels.optional_triton import jit, tl, triton

_TILE = 64


def chebyshev_update(s: Tensor, before: Tensor, k: Tensor, product: Tensor, momentum: float, gain: float) -> Tensor:
    """`s + momentum (s - before) + gain (k - product + product*)`, for contiguous batches of float32.

    Matrices are real (m x m), or complex with stacked real and imaginary parts (2m x m).
    """
    batch, rows, m = s.shape
    parts = rows // m
    out = torch.empty_like(s)
    tiles = triton.cdiv(m, _TILE)
    grid = (tiles * tiles, batch * parts)
    _chebyshev_update[grid](s, before, k, product, out, m, 1 + momentum, -momentum, gain, parts, _TILE)
    return out


@jit
def _chebyshev_update(
    s_ptr, before_ptr, k_ptr, product_ptr, out_ptr, m, a, b, gain, PARTS: tl.constexpr, TILE: tl.constexpr
):
    """One tile of one part of one matrix. The adjoint transposes both parts and negates the imaginary one."""
    tiles = tl.cdiv(m, TILE)
    row = (tl.program_id(0) // tiles) * TILE + tl.arange(0, TILE)
    column = (tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)
    part = tl.program_id(1) % PARTS
    start = tl.program_id(1).to(tl.int64) * m * m
    here = start + row[:, None] * m + column[None, :]
    inside = (row[:, None] < m) & (column[None, :] < m)
    # The mirrored tile is read along its own rows, then transposed, so that all reads are contiguous.
    mirror = start + column[:, None] * m + row[None, :]
    mirror_inside = (column[:, None] < m) & (row[None, :] < m)
    turned = tl.trans(tl.load(product_ptr + mirror, mask=mirror_inside, other=0.0))
    adjoint = turned * (1.0 - 2.0 * part)
    rest = tl.load(k_ptr + here, mask=inside) - tl.load(product_ptr + here, mask=inside) + adjoint
    value = a * tl.load(s_ptr + here, mask=inside) + b * tl.load(before_ptr + here, mask=inside) + gain * rest
    tl.store(out_ptr + here, value, mask=inside)
