"""Convolutions as one matrix product per frequency, with the transforms written as matrix products too.

A real image of `h x w` pixels is zero-padded to the periodic grid, then transformed along the row index, then along
the column index. The first transform reads real numbers, so half of its frequencies determine the others. Only these
are computed, which halves the work of the second transform too.

The transform `T` from pixels to the half spectrum is scaled to be an isometry: inner rows of the half spectrum stand
for two conjugate frequencies each, and are scaled by `sqrt 2`. So its transpose inverts it, cropping included. A
convolution with transfer matrices `W_f` is `T^T diag(W_f) T`. Whatever the `W_f` are, this is exactly real, and its
norm is at most `max_f ||W_f||`.

Every step is an ordinary real product with a small constant matrix. Such products are fast for small images,
differentiable and exportable. Their rounding error can be bounded, while an FFT library's cannot.

Layout: pixels first, then channels, then batch (h w c b), so that every product is one large GEMM. `analyze` and
`synthesize` only permute views; a chain of layers stays in that layout without copies.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from lotnet.errors import InputError
from lotnet.kernels import dispatch
from lotnet.kernels.spectrum_blocks import SpectrumIndex

Maker = TypeVar("Maker", bound=Callable[..., Any])


def _constant(make: Maker) -> Maker:
    """Cache a constant tensor for each set of arguments. It works in training even if first made in inference mode."""
    return cast(Maker, lru_cache(maxsize=128)(torch.inference_mode(mode=False)(make)))


@dataclass(frozen=True)
class Grid:
    """An image of `height x width` with `padding` zeros on each side, taken as periodic.

    A pair pads rows and columns differently: (above and below, left and right).
    """

    height: int
    width: int
    padding: int | tuple[int, int] = 0

    @property
    def paddings(self) -> tuple[int, int]:
        return (self.padding, self.padding) if isinstance(self.padding, int) else self.padding

    @property
    def rows(self) -> int:
        return self.height + 2 * self.paddings[0]

    @property
    def columns(self) -> int:
        return self.width + 2 * self.paddings[1]

    @property
    def half(self) -> int:
        """Rows of the half spectrum; the other frequencies are conjugates."""
        return self.rows // 2 + 1

    @property
    def frequencies(self) -> int:
        return self.half * self.columns

    @property
    def self_conjugates(self) -> int:
        """Number of frequencies that are their own conjugates: a real kernel's matrices are real there."""
        return (2 - self.rows % 2) * (2 - self.columns % 2)


def transfer(kernel: Tensor, grid: Grid) -> Tensor:  # o i k k -> f o i complex
    """Transfer matrices on the half spectrum of a kernel aligned like `nn.Conv2d(padding="same")`."""
    o, i, kh, kw = kernel.shape
    _check_fits(kh, kw, grid)
    parts = _tap_basis(grid, kh, kw, kernel.dtype, kernel.device) @ _taps(kernel)
    real, imaginary = parts.view(2, grid.frequencies, o, i).unbind(0)
    return torch.complex(real, imaginary)


def distinct_parts(kernel: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:  # o i k k -> r 1 o i, p 2 o i
    """Real and imaginary parts of the transfer matrices at the frequencies that are not conjugates of one another.

    Up to four frequencies are their own conjugates, so their matrices are real (r). The half spectrum repeats other
    matrices in its first and last row: on the padded grid of a 2 x 2 image, only 6 of its 12 matrices are distinct and
    complex (p). `expand` restores the repeated ones.
    """
    o, i = kernel.shape[:2]
    basis, own = _distinct_basis(grid, kernel), grid.self_conjugates
    reals, pairs = basis[:own, 0] @ _taps(kernel), basis[own:].flatten(0, 1) @ _taps(kernel)
    return reals.view(-1, 1, o, i), pairs.view(-1, 2, o, i)


def joined_parts(kernel: Tensor, grid: Grid) -> Tensor:  # o i k k -> n 2 o i
    """`distinct_parts` in one batch: the real matrices come first, with imaginary parts of zero."""
    return (_distinct_basis(grid, kernel).flatten(0, 1) @ _taps(kernel)).view(-1, 2, *kernel.shape[:2])


def distinct_transfers(kernel: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:  # o i k k -> r o i real, p o i complex
    """`distinct_parts` as real and complex matrices."""
    reals, pairs = distinct_parts(kernel, grid)
    return reals[:, 0], torch.complex(pairs[:, 0], pairs[:, 1])


def expand(reals: Tensor, pairs: Tensor, grid: Grid) -> Tensor:  # r o i, p o i -> f o i complex
    """The half spectrum from its distinct matrices."""
    index = spectrum_index(grid, reals.device)
    real = torch.cat((reals, pairs.real)).index_select(0, index.source)
    imaginary = torch.cat((torch.zeros_like(reals), pairs.imag)).index_select(0, index.source)
    return torch.complex(real, imaginary * index.sign.to(real.dtype)[:, None, None])


def full_kernel(transfers: Tensor, grid: Grid) -> Tensor:  # f o i -> o i rows columns
    """The inverse of `transfer`: the real kernel, as large as the grid, with these matrices; same alignment."""
    o, i = transfers.shape[1:]
    spectrum = transfers.view(grid.half, grid.columns, o, i).permute(2, 3, 1, 0)  # torch.fft halves the last axis
    kernel = torch.fft.irfft2(spectrum.conj(), s=(grid.columns, grid.rows)).mT
    return kernel.roll(((grid.rows - 1) // 2, (grid.columns - 1) // 2), dims=(-2, -1))


def analyze(x: Tensor, grid: Grid) -> Tensor:  # b i h w -> f 2i b
    """Apply the isometry `T`: the result stacks real and imaginary parts of all channels, for each frequency."""
    b, i, h, w = x.shape
    pixels = _pixels_first(x).reshape(h, w * i * b)
    rows = row_basis(grid, x.dtype, x.device) @ pixels
    spectrum = column_basis(grid, x.dtype, x.device) @ rows.view(grid.half, 2 * w, i * b)
    return spectrum.view(grid.frequencies, 2 * i, b)


def batch_last(x: Tensor) -> Tensor:  # b c h w
    """The same image with its batch last in memory, as `analyze` reads it."""
    return _pixels_first(x).permute(3, 2, 0, 1)


def _pixels_first(x: Tensor) -> Tensor:  # b c h w -> h w c b
    """Permute the image to pixels, channels, batch: a view if its memory has that order already.

    If the batch comes first, a CPU copies in two steps that each move whole rows. That takes half the time of one copy
    that moves single numbers.
    """
    if dispatch.permutes_in_one_pass(x) or not x.is_contiguous():
        return x.permute(2, 3, 1, 0)
    b, c, h, w = x.shape
    return x.reshape(b, c * h * w).mT.contiguous().view(c, h, w, b).permute(1, 2, 0, 3)


def synthesize(spectrum: Tensor, grid: Grid) -> Tensor:  # f 2o b -> b o h w
    """Apply the transpose of `analyze`: back to pixels, without the padding."""
    _, o2, b = spectrum.shape
    columns = column_basis(grid, spectrum.dtype, spectrum.device).mT @ spectrum.view(grid.half, 2 * grid.columns, -1)
    pixels = row_basis(grid, spectrum.dtype, spectrum.device).mT @ columns.view(2 * grid.half, -1)
    return pixels.view(grid.height, grid.width, o2 // 2, b).permute(3, 2, 0, 1)


def convolve(x: Tensor, blocks: Tensor, grid: Grid) -> Tensor:  # b i h w, f 2o 2i -> b o h w
    """Apply a matrix to each frequency: for each of g groups of channels its own if `blocks` is f g 2o 2i."""
    spectrum = analyze(x, grid)
    if blocks.ndim == 3:
        return synthesize(torch.bmm(blocks, spectrum), grid)
    f, g, o2, i2 = blocks.shape
    b = x.shape[0]
    parts = spectrum.view(f, 2, g, i2 // 2, b).transpose(1, 2).reshape(f * g, i2, b)  # each part's groups to groups
    products = torch.bmm(blocks.flatten(0, 1), parts)
    return synthesize(products.view(f, g, 2, o2 // 2, b).transpose(1, 2).reshape(f, g * o2, b), grid)


def row_basis(grid: Grid, dtype: torch.dtype, device: torch.device) -> Tensor:  # 2 half, height
    """Half transform along the row index: real and imaginary part next to each other for each frequency."""
    return _row_basis(grid.rows, grid.height, grid.paddings[0], dtype, device)


def column_basis(grid: Grid, dtype: torch.dtype, device: torch.device) -> Tensor:  # 2 columns, 2 width
    """Full transform along the column index, of complex numbers given as (part, column)."""
    return _column_basis(grid.columns, grid.width, grid.paddings[1], dtype, device)


@_constant
def _row_basis(n: int, size: int, padding: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    half = n // 2 + 1
    cos, sin = _waves(torch.arange(half), torch.arange(size) + padding, n)
    twice = torch.full((half,), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0  # the mean and the alternating row are their own conjugates
    weight = (twice / n).sqrt()[:, None]
    return torch.stack((weight * cos, -weight * sin), dim=1).view(2 * half, size).to(device, dtype)


@_constant
def _column_basis(n: int, size: int, padding: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    cos, sin = _waves(torch.arange(n), torch.arange(size) + padding, n)
    real, imaginary = torch.cat((cos, sin), dim=1), torch.cat((-sin, cos), dim=1)
    return torch.stack((real, imaginary), dim=1).view(2 * n, 2 * size).div(math.sqrt(n)).to(device, dtype)


@_constant
def spectrum_index(grid: Grid, device: torch.device) -> SpectrumIndex:
    """Index of the distinct matrices of a half spectrum: self-conjugate frequencies first, then one of each pair."""
    reals, pairs, mirrors = [], [], {}
    for u in range(grid.half):
        for v in range(grid.columns):
            here, u_mirror, v_mirror = u * grid.columns + v, -u % grid.rows, -v % grid.columns
            mirror = u_mirror * grid.columns + v_mirror if u_mirror < grid.half else None
            if mirror == here:
                reals.append(here)
            elif mirror is not None and mirror < here:
                mirrors[here] = mirror
            else:
                pairs.append(here)
    first = reals + pairs
    place = {position: n for n, position in enumerate(first)}
    conjugates = {mirror: here for here, mirror in mirrors.items()}
    source = [place[mirrors.get(position, position)] for position in range(grid.frequencies)]
    second = [conjugates.get(position, -1) for position in first]
    sign = torch.tensor([-1.0 if position in mirrors else 1.0 for position in range(grid.frequencies)], device=device)
    return SpectrumIndex(
        torch.tensor(source, device=device),
        sign,
        torch.tensor(first, device=device),
        torch.tensor(second, device=device),
        grid.self_conjugates,
    )


def _check_fits(kh: int, kw: int, grid: Grid) -> None:
    if kh > grid.rows or kw > grid.columns:
        raise InputError(
            f"a {kh} x {kw} kernel does not fit the padded image of {grid.rows} x {grid.columns}: "
            "use a smaller kernel or a larger image"
        )


def _taps(kernel: Tensor) -> Tensor:  # o i k k -> k k, o i
    return kernel.reshape(-1, kernel.shape[2] * kernel.shape[3]).mT


def _distinct_basis(grid: Grid, kernel: Tensor) -> Tensor:
    kh, kw = kernel.shape[2:]
    _check_fits(kh, kw, grid)
    return _distinct_tap_basis(grid, kh, kw, kernel.dtype, kernel.device)


@_constant
def _distinct_tap_basis(grid: Grid, kh: int, kw: int, dtype: torch.dtype, device: torch.device) -> Tensor:  # n 2 k k
    first = spectrum_index(grid, device).first
    return _tap_basis(grid, kh, kw, dtype, device).view(2, grid.frequencies, -1)[:, first].transpose(0, 1).contiguous()


@_constant
def _tap_basis(grid: Grid, kh: int, kw: int, dtype: torch.dtype, device: torch.device) -> Tensor:  # 2 f, k k
    # Tap t of a cross-correlation reads the pixel t - (k-1)//2 away: the phase has a plus sign.
    cos_r, sin_r = _waves(torch.arange(grid.half), torch.arange(kh) - (kh - 1) // 2, grid.rows)
    cos_c, sin_c = _waves(torch.arange(grid.columns), torch.arange(kw) - (kw - 1) // 2, grid.columns)
    phase = torch.complex(cos_r, sin_r)[:, None, :, None] * torch.complex(cos_c, sin_c)[None, :, None, :]
    flat = phase.reshape(grid.frequencies, kh * kw)
    return torch.cat((flat.real, flat.imag)).to(device, dtype)


def _waves(frequencies: Tensor, positions: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of `2 pi f p / n` in float64, each within 3 units of round-off of the true value.

    The angle is reduced to an eighth of a turn in integers first: `torch.cos(2 pi f p / n)` would
    carry the rounding of an argument as large as `2 pi`.
    """
    product = frequencies[:, None] * positions[None, :]
    quarter = torch.div(8 * product + n, 2 * n, rounding_mode="floor")  # nearest quarter turn
    angle = (4 * product - quarter * n).double() * (math.pi / (2 * n))
    cos, sin = angle.cos(), angle.sin()
    turn = quarter % 4
    cosine = torch.where(turn == 0, cos, torch.where(turn == 1, -sin, torch.where(turn == 2, -cos, sin)))
    sine = torch.where(turn == 0, sin, torch.where(turn == 1, cos, torch.where(turn == 2, -sin, -cos)))
    return cosine, sine
