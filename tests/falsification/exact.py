"""The real function of a frozen model, in ball arithmetic of sixty digits (python-flint): the oracle of claim A.

Written from the definitions of the frozen modules, not from their code: a spectrum is summed over its frequencies into
one dense matrix, a kernel is laid out tap by tap, a series is multiplied out as matrices. This is slow but simple.
"""

import math
from collections.abc import Callable
from itertools import pairwise, product

import flint
import torch
from torch import Tensor

from lotnet.frozen import FrozenModule, FrozenResidual, FrozenSequential
from lotnet.frozen.activations import FrozenGroupSort, FrozenHardtanh, FrozenLeakyReLU
from lotnet.frozen.branches import FrozenConcatenation
from lotnet.frozen.centering import FrozenLayerCentering
from lotnet.frozen.convolution import FrozenDense, FrozenKernel, FrozenSeries, FrozenSpectrum
from lotnet.frozen.direct_sum import FrozenDilated, FrozenGrouped
from lotnet.frozen.moves import (
    FrozenChannelShift,
    FrozenChannelShuffle,
    FrozenFromColumn,
    FrozenToColumn,
    FrozenUpsampling,
    FrozenZeroPad,
)
from lotnet.frozen.pointwise import (
    FrozenAveragePool,
    FrozenDownsampling,
    FrozenFlatten,
    FrozenHouseholder,
    FrozenLinear,
    FrozenMaxMin,
    FrozenMaxPool,
    FrozenNormalize,
    FrozenShift,
)
from lotnet.frozen.pooling import FrozenGlobalAveragePool, FrozenNormPool

DIGITS = 60
Column = list[flint.arb]  # one image: entries in the order c h w
Columns = list[Column]
Function = Callable[[Columns], Columns]
Shape = tuple[int, ...]


def real_function(module: FrozenModule, shape: Shape) -> Callable[[Tensor], Columns]:
    """From images (b, *shape), taken as exact, to enclosures of the module's real values, one list for each image."""
    with flint.ctx.workdps(DIGITS):
        function = _function(module, shape)

    def evaluate(images: Tensor) -> Columns:
        with flint.ctx.workdps(DIGITS):
            return function([[flint.arb(v) for v in row] for row in images.double().flatten(1).tolist()])

    return evaluate


def smallest_margin(logits: Column, label: int) -> flint.arb:
    """Enclosure of the smallest margin of the label over the other classes."""
    with flint.ctx.workdps(DIGITS):
        gaps = [logits[label] - other for n, other in enumerate(logits) if n != label]
        smallest = gaps[0]
        for gap in gaps[1:]:
            smallest = smallest.min(gap)
        return smallest


def _function(module: FrozenModule, shape: Shape) -> Function:
    if isinstance(module, FrozenSequential):
        stages = []
        for stage in module:
            stages.append(_function(stage, shape))
            shape = stage.output_shape(shape)

        def sequence(columns: Columns) -> Columns:
            for stage in stages:
                columns = stage(columns)
            return columns

        return sequence
    if isinstance(module, FrozenResidual):
        a, b = _numbers(module.weights)
        shortcut, block = _function(module.shortcut, shape), _function(module.block, shape)
        return lambda columns: [
            [a * s + b * t for s, t in zip(x, y, strict=True)]
            for x, y in zip(shortcut(columns), block(columns), strict=True)
        ]
    if isinstance(module, FrozenConcatenation):
        scale, branches = flint.arb(float(module.scale)), [_function(branch, shape) for branch in module]
        return lambda columns: [
            [scale * v for part in parts for v in part]
            for parts in zip(*(branch(columns) for branch in branches), strict=True)
        ]
    if isinstance(module, FrozenGrouped):
        return _grouped(module, shape)
    if isinstance(module, FrozenDilated):
        return _dilated(module, shape)
    return EVALUATORS[type(module)](module, shape)


def _grouped(module: FrozenGrouped, shape: Shape) -> Function:
    groups = list(module)
    size, part = _size(shape) // len(groups), (shape[0] // len(groups), *shape[1:])
    functions = [_function(group, part) for group in groups]

    def apply(columns: Columns) -> Columns:
        parts = [f([x[n * size : (n + 1) * size] for x in columns]) for n, f in enumerate(functions)]
        return [[v for piece in pieces for v in piece] for pieces in zip(*parts, strict=True)]

    return apply


def _dilated(module: FrozenDilated, shape: Shape) -> Function:
    """Pixel (r + d_h y, c + d_w x) of the shifted image is pixel (y, x) of phase (r, c).

    The transpose shifts the result back instead: its pixel is the one `shift` further on.
    """
    i, h, w = shape
    (dh, dw), (down, right) = module.settings["dilation"], module.settings["shift"]
    circular, back = module.settings["circular"], module.settings.get("transposed", False)
    rows, columns = (-(-(n + (0 if circular else s)) // d) for n, s, d in ((h, down, dh), (w, right, dw)))
    (stage,) = module
    function, phases = _function(stage, (i, rows, columns)), list(product(range(dh), range(dw)))

    def phase(image: Column, r: int, c: int) -> Column:
        entries = []
        for n, y, x in product(range(i), range(rows), range(columns)):
            v, u = r + dh * y, c + dw * x
            v, u = (v, u) if back else (v - down, u - right)
            if circular:
                v, u = v % h, u % w
            entries.append(image[(n * h + v) * w + u] if 0 <= v < h and 0 <= u < w else flint.arb(0))
        return entries

    def apply(images: Columns) -> Columns:
        results = {p: function([phase(image, *p) for image in images]) for p in phases}
        outputs = range(stage.output_shape((i, rows, columns))[0])

        def moved(y: int, size: int, shift: int) -> int:
            return (y + shift) % size if circular else y + shift

        places = [
            (o, moved(y, h, down) if back else y, moved(x, w, right) if back else x)
            for o, y, x in product(outputs, range(h), range(w))
        ]
        return [
            [results[y % dh, x % dw][n][(o * rows + y // dh) * columns + x // dw] for o, y, x in places]
            for n in range(len(images))
        ]

    return apply


def _affine(matrix: flint.arb_mat, bias: Column) -> Function:
    def apply(columns: Columns) -> Columns:
        images = flint.arb_mat([list(row) for row in zip(*columns, strict=True)])
        rows = (matrix * images).tolist()
        sums = [[v + b for v in row] for row, b in zip(rows, bias, strict=True)]
        return [list(column) for column in zip(*sums, strict=True)]

    return apply


def _convolution(matrix: flint.arb_mat, module: FrozenModule, shape: Shape) -> Function:
    assert isinstance(module.bias, Tensor)
    return _affine(matrix, [b for b in _numbers(module.bias) for _ in range(shape[1] * shape[2])])


def _spectrum(module: FrozenSpectrum, shape: Shape) -> Function:
    """`sum_f weight_f Re(W_f e^(i f.(p - q))) / n` at output pixel p and input pixel q: a circular convolution."""
    _, h, w = shape
    o, i = module.real.shape[1:]  # i: channels of one group
    grid = module.grid
    rows, columns, half = grid.rows, grid.columns, grid.half
    cos_r, sin_r = _turns(rows)
    cos_c, sin_c = _turns(columns)
    moves = list(product(range(1 - h, h), range(1 - w, w)))
    waves = []
    for dy, dx in moves:
        real, imaginary = [], []
        for r, c in product(range(half), range(columns)):
            alone = r == 0 or 2 * r == rows  # its conjugate is in the half spectrum; others count twice
            y, x = r * dy % rows, c * dx % columns
            scale = flint.arb(1 if alone else 2) / (rows * columns)
            real.append(scale * (cos_r[y] * cos_c[x] - sin_r[y] * sin_c[x]))
            imaginary.append(-scale * (sin_r[y] * cos_c[x] + cos_r[y] * sin_c[x]))
        waves.append(real + imaginary)
    parts = torch.cat((module.real, module.imaginary)).flatten(1).tolist()
    taps = (flint.arb_mat(waves) * flint.arb_mat(parts)).tolist()  # move -> (o i)
    place = {move: n for n, move in enumerate(moves)}
    pixels = list(product(range(h), range(w)))
    groups = module.spec.groups
    group = o // groups
    zero = flint.arb(0)
    matrix = [
        [
            taps[place[y - v, x - u]][a * i + b] if n == a // group else zero
            for n in range(groups)
            for b in range(i)
            for v, u in pixels
        ]
        for a in range(o)
        for y, x in pixels
    ]
    return _convolution(flint.arb_mat(matrix), module, shape)


def _turns(n: int) -> tuple[Column, Column]:
    """Cosine and sine of 2 pi k / n for k = 0, ..., n - 1."""
    parts = [flint.fmpq(2 * k, n) for k in range(n)]
    return [flint.arb.cos_pi_fmpq(p) for p in parts], [flint.arb.sin_pi_fmpq(p) for p in parts]


def _dense(module: FrozenDense, shape: Shape) -> Function:
    i, h, w = shape
    o = module.bias.shape[0]
    matrix = module.matrix.view(h, w, o, h, w, i).permute(2, 0, 1, 5, 3, 4).reshape(o * h * w, i * h * w)
    return _convolution(flint.arb_mat(matrix.tolist()), module, shape)


def _kernel_matrix(module: FrozenKernel, shape: Shape) -> flint.arb_mat:
    """Tap by tap: output pixel p reads pixel `p + d (t - centre)` of the image with zeros appended."""
    i, h, w = shape
    o, _, kh, kw = module.kernel.shape
    rows, columns = h + module.spec.extra[0], w + module.spec.extra[1]
    circular = module.settings["padding_mode"] == "circular"
    matrix = [[flint.arb(0)] * (i * h * w) for _ in range(o * h * w)]
    taps = module.kernel.tolist()
    for y, x, r, c in product(range(h), range(w), range(kh), range(kw)):
        v = y + module.spec.dilation[0] * (r - (kh - 1) // 2)
        u = x + module.spec.dilation[1] * (c - (kw - 1) // 2)
        if circular:
            v, u = v % rows, u % columns
        if 0 <= v < h and 0 <= u < w:
            for a, b in product(range(o), range(i)):
                row, column = (a * h + y) * w + x, (b * h + v) * w + u
                matrix[row][column] = matrix[row][column] + taps[a][b][r][c]
    return flint.arb_mat(matrix)


def _kernel(module: FrozenKernel, shape: Shape) -> Function:
    return _convolution(_kernel_matrix(module, shape), module, shape)


def _series(module: FrozenSeries, shape: Shape) -> Function:
    i, h, w = shape
    channels = module.kernel.shape[0]
    skew = _kernel_matrix(module, (channels, h, w))
    n, o = channels * h * w, module.settings["out_channels"]
    total = term = flint.arb_mat([[int(a == b) for b in range(n)] for a in range(n)])
    for j in range(1, module.settings["terms"] + 1):
        term = skew * term * (flint.arb(1) / j)
        total = total + term
    cropped = [row[: i * h * w] for row in total.tolist()[: o * h * w]]
    return _convolution(flint.arb_mat(cropped), module, shape)


def _linear(module: FrozenLinear, shape: Shape) -> Function:
    return _affine(flint.arb_mat(module.weight.tolist()), _numbers(module.bias))


def _normalize(module: FrozenNormalize, shape: Shape) -> Function:
    mean, std = (_by_entry(t, shape) for t in (module.mean, module.std))
    return lambda columns: [[(v - m) / s for v, m, s in zip(x, mean, std, strict=True)] for x in columns]


def _shift(module: FrozenShift, shape: Shape) -> Function:
    shift = _by_entry(module.shift, shape)
    return lambda columns: [[v + s for v, s in zip(x, shift, strict=True)] for x in columns]


def _householder(module: FrozenHouseholder, shape: Shape) -> Function:
    half = _size(shape) // 2
    pixels = _size(shape) // shape[0]
    steps = [[[n for n in row for _ in range(pixels)] for row in normals.tolist()] for normals in module.normals]

    def reflect(x: Column) -> Column:
        a, b = x[:half], x[half:]
        for v, w in steps:
            reach = [(p * s + q * t).max(0) * 2 for p, q, s, t in zip(a, b, v, w, strict=True)]
            a = [p - s * r for p, s, r in zip(a, v, reach, strict=True)]
            b = [q - t * r for q, t, r in zip(b, w, reach, strict=True)]
        return a + b

    return lambda columns: [reflect(x) for x in columns]


def _max_min(module: FrozenMaxMin, shape: Shape) -> Function:
    half = _size(shape) // 2

    def sort(x: Column) -> Column:
        pairs = list(zip(x[:half], x[half:], strict=True))
        return [a.max(b) for a, b in pairs] + [a.min(b) for a, b in pairs]

    return lambda columns: [sort(x) for x in columns]


def _group_sort(module: FrozenGroupSort, shape: Shape) -> Function:
    """Bubble sort, with the enclosures' own maximum and minimum: no comparison is decided."""
    size = module.settings["size"]
    stride = _size(shape) // size

    def sort(x: Column) -> Column:
        x = list(x)
        for first in range(stride):
            places = range(first, first + size * stride, stride)
            for a, b in ((a, b) for last in range(size) for a, b in pairwise(places[: size - last])):
                x[a], x[b] = x[a].max(x[b]), x[a].min(x[b])
        return x

    return lambda columns: [sort(x) for x in columns]


def _leaky_relu(module: FrozenLeakyReLU, shape: Shape) -> Function:
    slopes = [s for s in _numbers(module.slope) for _ in range(_size(shape) // shape[0])]
    return lambda columns: [[v.max(0) + s * v.min(0) for v, s in zip(x, slopes, strict=True)] for x in columns]


def _hardtanh(module: FrozenHardtanh, shape: Shape) -> Function:
    low, high = (flint.arb(float(edge)) for edge in (module.low, module.high))
    return lambda columns: [[v.max(low).min(high) for v in x] for x in columns]


def _windows(shape: Shape, size: int) -> list[list[int]]:
    """Indices of the entries of each window, with windows in the order of the output."""
    windows = torch.arange(_size(shape)).view(shape)
    for axis in range(1, len(shape)):
        windows = windows.unfold(axis, size, size)
    return windows.reshape(-1, size ** (len(shape) - 1)).tolist()


def _average_pool(module: FrozenAveragePool, shape: Shape) -> Function:
    windows = _windows(shape, module.settings["size"])
    root = flint.arb(len(windows[0])).sqrt()
    return lambda columns: [[sum((x[n] for n in window), flint.arb(0)) / root for window in windows] for x in columns]


def _max_pool(module: FrozenMaxPool, shape: Shape) -> Function:
    windows = _windows(shape, module.settings["size"])

    def largest(x: Column, window: list[int]) -> flint.arb:
        top = x[window[0]]
        for n in window[1:]:
            top = top.max(x[n])
        return top

    return lambda columns: [[largest(x, window) for window in windows] for x in columns]


def _channels(shape: Shape) -> list[list[int]]:
    return torch.arange(_size(shape)).view(shape[0], -1).tolist()


def _global_average_pool(module: FrozenGlobalAveragePool, shape: Shape) -> Function:
    scale, channels = flint.arb(float(module.scale)), _channels(shape)
    return lambda columns: [
        [scale * sum((x[n] for n in channel), flint.arb(0)) for channel in channels] for x in columns
    ]


def _norm_pool(module: FrozenNormPool, shape: Shape) -> Function:
    c, h, w = shape
    kh, kw = module.settings["height"], module.settings["width"]
    places = torch.arange(c * h * w).view(c, h, w).unfold(1, kh, kh).unfold(2, kw, kw).reshape(-1, kh * kw).tolist()
    return lambda columns: [[sum((x[n] ** 2 for n in p), flint.arb(0)).sqrt() for p in places] for x in columns]


def _layer_centering(module: FrozenLayerCentering, shape: Shape) -> Function:
    bias, channels = _numbers(module.bias), _channels(shape)

    def centred(x: Column) -> Column:
        means = [sum((x[n] for n in channel), flint.arb(0)) / len(channel) for channel in channels]
        return [x[n] - m + b for channel, m, b in zip(channels, means, bias, strict=True) for n in channel]

    return lambda columns: [centred(x) for x in columns]


def _channel_shift(module: FrozenChannelShift, shape: Shape) -> Function:
    """The first `c % size^2` groups have a channel more than the others."""
    c, h, w = shape
    size = module.settings["size"]
    small, more = divmod(c, size**2)
    groups = [g for g in range(size**2) for _ in range(small + (g < more))]
    places: list[int | None] = []
    for channel, y, x in product(range(c), range(h), range(w)):
        v, u = y + groups[channel] // size - size // 2, x + groups[channel] % size - size // 2
        if module.settings["padding_mode"] == "circular":
            v, u = v % h, u % w
        places.append((channel * h + v) * w + u if 0 <= v < h and 0 <= u < w else None)
    return lambda columns: [[flint.arb(0) if n is None else x[n] for n in places] for x in columns]


def _upsampling(module: FrozenUpsampling, shape: Shape) -> Function:
    c, h, w = shape
    r, s = module.spec.sides
    places = torch.arange(c * h * w).view(c // (r * s), r, s, h, w).permute(0, 3, 1, 4, 2).flatten().tolist()
    return lambda columns: [[x[n] for n in places] for x in columns]


def _channel_shuffle(module: FrozenChannelShuffle, shape: Shape) -> Function:
    """Output channel `a g + b` is input channel `b c/g + a`."""
    c, pixels = shape[0], _size(shape) // shape[0]
    g = module.settings["groups"]
    places = [(n % g * (c // g) + n // g) * pixels + p for n in range(c) for p in range(pixels)]
    return lambda columns: [[x[n] for n in places] for x in columns]


def _zero_pad(module: FrozenZeroPad, shape: Shape) -> Function:
    c, h, w = shape if len(shape) == 3 else (shape[0], 1, shape[1])
    left, right, top, bottom = (*module.settings["border"], 0, 0)[:4]
    moves = product(range(c), range(-top, h + bottom), range(-left, w + right))
    places = [(n * h + y) * w + x if 0 <= y < h and 0 <= x < w else None for n, y, x in moves]
    return lambda columns: [[flint.arb(0) if n is None else x[n] for n in places] for x in columns]


def _downsampling(module: FrozenDownsampling, shape: Shape) -> Function:
    c, h, w = shape
    r, s = module.spec.sides
    places = torch.arange(c * h * w).view(c, h // r, r, w // s, s).permute(0, 2, 4, 1, 3).flatten().tolist()
    return lambda columns: [[x[n] for n in places] for x in columns]


def _as_it_is(module: FrozenModule, shape: Shape) -> Function:
    return lambda columns: columns


def _numbers(tensor: Tensor) -> Column:
    return [flint.arb(v) for v in tensor.double().tolist()]


def _by_entry(tensor: Tensor, shape: Shape) -> Column:
    return [v for v in _numbers(tensor) for _ in range(math.prod(shape[1:]))]


def _size(shape: Shape) -> int:
    return int(torch.Size(shape).numel())


EVALUATORS: dict[type[FrozenModule], Callable[..., Function]] = {
    FrozenSpectrum: _spectrum,
    FrozenDense: _dense,
    FrozenKernel: _kernel,
    FrozenSeries: _series,
    FrozenLinear: _linear,
    FrozenNormalize: _normalize,
    FrozenShift: _shift,
    FrozenHouseholder: _householder,
    FrozenMaxMin: _max_min,
    FrozenAveragePool: _average_pool,
    FrozenMaxPool: _max_pool,
    FrozenDownsampling: _downsampling,
    FrozenFlatten: _as_it_is,
    FrozenGroupSort: _group_sort,
    FrozenLeakyReLU: _leaky_relu,
    FrozenHardtanh: _hardtanh,
    FrozenGlobalAveragePool: _global_average_pool,
    FrozenNormPool: _norm_pool,
    FrozenLayerCentering: _layer_centering,
    FrozenChannelShift: _channel_shift,
    FrozenChannelShuffle: _channel_shuffle,
    FrozenZeroPad: _zero_pad,
    FrozenUpsampling: _upsampling,
    FrozenToColumn: _as_it_is,
    FrozenFromColumn: _as_it_is,
}
