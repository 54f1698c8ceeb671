"""Sums of matrix products, with other matrices added in the same pass, in one Triton kernel.

Complex matrices are stored as three real *planes*, (f, 3, m, n): real part, imaginary part, and minus the imaginary
part. The third plane makes each part of a complex product a sum of real products without any minus sign, which
is the operation of tensor cores. Real matrices have one plane. Half precision has as many digits as TF32 at
twice its speed, and products of halves are exact in the accumulator.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lotnet.kernels.optional_triton import jit, tl, triton


def planes(parts: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:  # f 1|2 m n, f -> f 1|3 m n
    """The planes of `factor Z`, one factor per matrix, from real and imaginary parts."""
    f, p, m, n = parts.shape
    out = torch.empty(f, 1 if p == 1 else 3, m, n, dtype=dtype, device=parts.device)
    grid = (triton.cdiv(m * n, _BLOCK), f * p)
    _planes[grid](parts.contiguous(), factor, out, m * n, PARTS=p, BLOCK=_BLOCK)
    return out


_BLOCK = 1024


@jit
def _planes(parts_ptr, factor_ptr, out_ptr, size, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(1) % PARTS
    matrix = (tl.program_id(1) // PARTS).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(parts_ptr + (matrix * PARTS + part) * size + at, mask=inside) * tl.load(factor_ptr + matrix)
    value = value.to(out_ptr.dtype.element_ty)
    here = out_ptr + (matrix * (1 if PARTS == 1 else 3) + part) * size + at
    tl.store(here, value, mask=inside)
    if PARTS == 2:
        if part == 1:
            tl.store(here + size, -value, mask=inside)


def sum_of_products(
    terms: Sequence[tuple[Tensor, Tensor]],  # one or two of (f p m k, f p k n)
    *,
    adjoint: bool = False,  # multiply by the adjoints of the second factors, which are then f p n k
    alpha: float = 1.0,
    plus: Sequence[tuple[float, Tensor]] = (),  # at most three of (coefficient, f p m n)
    identity: float = 0.0,
    factor: Tensor | None = None,  # f
    mirror: int = 0,
    result: bool = False,
) -> Tensor:  # f p m n
    """`factor (alpha (A B + A' B') + sum of coefficient Z + identity I)`.

    `mirror` says that the sum is Hermitian (1) or skew-Hermitian (-1), so that only half of it is computed and the rest
    is copied. With `result`, the output has no third plane, only real and imaginary parts, in at least float32.
    """
    (a, b), (a2, b2) = terms[0], terms[-1]
    f, p, m, inner = a.shape
    n = b.shape[2] if adjoint else b.shape[3]
    dtype = torch.promote_types(a.dtype, torch.float32) if result else a.dtype
    out = torch.empty(f, 2 if result and p == 3 else p, m, n, dtype=dtype, device=a.device)
    zs = [z for _, z in plus] + [a] * (3 - len(plus))
    coefficients = [c for c, _ in plus] + [0.0] * (3 - len(plus))
    parts = 1 if p == 1 else 2
    rows, columns, depth, warps, stages = _tiling(m, n, f * parts, mirror != 0, a.element_size())
    grid = (triton.cdiv(m, rows) * triton.cdiv(n, columns), f * parts)
    _sum_of_products[grid](
        a, b, a2, b2, *zs, a if factor is None else factor, out, m, n, inner, alpha, *coefficients, identity,
        PLANES=p, OUT_PLANES=out.shape[1], TERMS=len(terms), PLUS=len(plus), ADJOINT=adjoint, MIRROR=mirror,
        HAS_FACTOR=factor is not None, IDENTITY=identity != 0, EVEN=inner % depth == 0,
        ROWS=rows, COLUMNS=columns, DEPTH=depth, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def _tiling(m: int, n: int, count: int, mirror: bool, size: int) -> tuple[int, int, int, int, int]:
    """Rows, columns and depth of a tile, warps and stages: the fastest measured on an H200.

    Large tiles read less memory; small tiles occupy more of the device. Mirrored tiles must be square.
    """
    short = min(m, n)
    if size > 2 or short <= 32:  # float32 and float64 are for tests
        return 32, 32, 32, 4, 2
    if short <= (128 if mirror else 64):
        return 64, 64, 32, 4, 4
    if triton.cdiv(m, 128) * triton.cdiv(n, 128) * count < 100:
        return 64, 64, 64, 4, 3
    return 128, 128, 64, 8, 3


@jit
def _sum_of_products(
    a_ptr, b_ptr, a2_ptr, b2_ptr, z1_ptr, z2_ptr, z3_ptr, factor_ptr, out_ptr, m, n, inner, alpha, c1, c2, c3, identity,
    PLANES: tl.constexpr, OUT_PLANES: tl.constexpr, TERMS: tl.constexpr, PLUS: tl.constexpr, ADJOINT: tl.constexpr,
    MIRROR: tl.constexpr, HAS_FACTOR: tl.constexpr, IDENTITY: tl.constexpr, EVEN: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One tile of the real or the imaginary part of one matrix."""
    tiles = tl.cdiv(n, COLUMNS)
    tile_row, tile_column = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    if MIRROR != 0:
        if tile_column > tile_row:
            return
    PARTS: tl.constexpr = 1 if PLANES == 1 else 2
    part = tl.program_id(1) % PARTS  # 0 real, 1 imaginary
    matrix = (tl.program_id(1) // PARTS).to(tl.int64)
    rows = tile_row * ROWS + tl.arange(0, ROWS)
    columns = tile_column * COLUMNS + tl.arange(0, COLUMNS)
    ks = tl.arange(0, DEPTH)
    a_size, b_size = m * inner, n * inner
    a_tile = (rows % m)[:, None] * inner + ks[None, :]  # indices past the end wrap around; not stored
    b_tile = (columns % n)[None, :] * inner + ks[:, None] if ADJOINT else ks[:, None] * n + (columns % n)[None, :]
    b_step = 1 if ADJOINT else n
    a_start, b_start = matrix * PLANES * a_size, matrix * PLANES * b_size
    chunks = tl.cdiv(inner, DEPTH)
    accumulator = tl.zeros((ROWS, COLUMNS), dtype=tl.float64 if a_ptr.dtype.element_ty == tl.float64 else tl.float32)
    for step in range(0, PARTS * chunks):
        # The real part is Ar Br + Ai (-Bi), the imaginary part Ar Bi + Ai Br; an adjoint turns Bi into -Bi.
        half = step // chunks
        k = (step % chunks) * DEPTH
        b_plane = tl.where(half == part, 0, 1 + (half if not ADJOINT else 1 - half))
        a_at = a_start + half * a_size + k + a_tile
        b_at = b_start + b_plane * b_size + k * b_step + b_tile
        if EVEN:
            accumulator = tl.dot(tl.load(a_ptr + a_at), tl.load(b_ptr + b_at), accumulator, input_precision="ieee")
        else:
            inside = ks < inner - k
            x = tl.load(a_ptr + a_at, mask=inside[None, :], other=0.0)
            y = tl.load(b_ptr + b_at, mask=inside[:, None], other=0.0)
            accumulator = tl.dot(x, y, accumulator, input_precision="ieee")
        if TERMS == 2:
            if EVEN:
                x, y = tl.load(a2_ptr + a_at), tl.load(b2_ptr + b_at)
            else:
                x = tl.load(a2_ptr + a_at, mask=inside[None, :], other=0.0)
                y = tl.load(b2_ptr + b_at, mask=inside[:, None], other=0.0)
            accumulator = tl.dot(x, y, accumulator, input_precision="ieee")
    value = accumulator * alpha
    plane = m * n
    here = rows[:, None] * n + columns[None, :]
    inside_out = (rows[:, None] < m) & (columns[None, :] < n)
    z_start = (matrix * PLANES + part) * plane
    if PLUS > 0:
        value += c1 * tl.load(z1_ptr + z_start + here, mask=inside_out, other=0.0).to(value.dtype)
    if PLUS > 1:
        value += c2 * tl.load(z2_ptr + z_start + here, mask=inside_out, other=0.0).to(value.dtype)
    if PLUS > 2:
        value += c3 * tl.load(z3_ptr + z_start + here, mask=inside_out, other=0.0).to(value.dtype)
    if IDENTITY:
        value += tl.where((rows[:, None] == columns[None, :]) & (part == 0), identity, 0.0)
    if HAS_FACTOR:
        value *= tl.load(factor_ptr + matrix)
    value = value.to(out_ptr.dtype.element_ty)
    out = out_ptr + (matrix * OUT_PLANES + part) * plane
    tl.store(out + here, value, mask=inside_out)
    if OUT_PLANES == 3:
        if part == 1:
            tl.store(out + plane + here, -value, mask=inside_out)
    if MIRROR != 0:
        if tile_column < tile_row:
            there = columns[:, None] * n + rows[None, :]
            inside_there = (columns[:, None] < n) & (rows[None, :] < m)
            turned = tl.trans(value)
            turned = tl.where(part == 1, -MIRROR * turned, MIRROR * turned)
            tl.store(out + there, turned, mask=inside_there)
            if OUT_PLANES == 3:
                if part == 1:
                    tl.store(out + plane + there, -turned, mask=inside_there)


def first_even(gram: Tensor, square: Tensor, norm: Tensor, b: float, c: float) -> Tensor:
    """`b gram / sqrt(norm) + c square / norm`, one norm per matrix; `square` has no third plane (`result=True`)."""
    out = torch.empty_like(gram)
    f, p, m, n = gram.shape
    grid = (triton.cdiv(m * n, _BLOCK), f * min(p, 2))
    _first_even[grid](gram, square, norm, out, m * n, b, c, PLANES=p, BLOCK=_BLOCK)
    return out


@jit
def _first_even(gram_ptr, square_ptr, norm_ptr, out_ptr, size, b, c, PLANES: tl.constexpr, BLOCK: tl.constexpr):
    PARTS: tl.constexpr = 1 if PLANES == 1 else 2
    part = tl.program_id(1) % PARTS
    matrix = (tl.program_id(1) // PARTS).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    norm = tl.load(norm_ptr + matrix)
    here = (matrix * PLANES + part) * size + at
    square = tl.load(square_ptr + (matrix * PARTS + part) * size + at, mask=inside)
    value = b / tl.sqrt(norm) * tl.load(gram_ptr + here, mask=inside).to(square.dtype) + c / norm * square
    value = value.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + here, value, mask=inside)
    if PLANES == 3:
        if part == 1:
            tl.store(out_ptr + here + size, -value, mask=inside)


def skew_part(z: Tensor) -> Tensor:  # f p m m -> f p m m
    """`Z - Z*`."""
    out = torch.empty_like(z)
    f, p, m, _ = z.shape
    tile = 32 if m <= 32 else 64
    tiles = triton.cdiv(m, tile)
    _skew_part[(tiles * tiles, f * min(p, 2))](z, out, m, PLANES=p, TILE=tile)
    return out


@jit
def _skew_part(z_ptr, out_ptr, m, PLANES: tl.constexpr, TILE: tl.constexpr):
    PARTS: tl.constexpr = 1 if PLANES == 1 else 2
    tiles = tl.cdiv(m, TILE)
    rows = (tl.program_id(0) // tiles) * TILE + tl.arange(0, TILE)
    columns = (tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)
    part = tl.program_id(1) % PARTS
    start = ((tl.program_id(1) // PARTS).to(tl.int64) * PLANES + part) * m * m
    here = start + rows[:, None] * m + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < m)
    # The mirrored tile is read along its own rows, then transposed, so that all reads are contiguous.
    there = start + columns[:, None] * m + rows[None, :]
    turned = tl.trans(tl.load(z_ptr + there, mask=(columns[:, None] < m) & (rows[None, :] < m), other=0.0))
    value = tl.load(z_ptr + here, mask=inside, other=0.0) + tl.where(part == 1, turned, -turned)
    tl.store(out_ptr + here, value, mask=inside)
    if PLANES == 3:
        if part == 1:
            tl.store(out_ptr + here + m * m, -value, mask=inside)
