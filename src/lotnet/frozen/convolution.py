"""Frozen convolutions: one class for each form that `freezing.freeze_operator` stores."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.frozen.base import FrozenModule, ImageSize, Shape, Size
from lotnet.linalg.bounds import beta, beta_conv, constant_image_norm, series_bound, spectral_norm_bound
from lotnet.linalg.complex_layout import real_blocks
from lotnet.linalg.fourier import Grid, batch_last, convolve, transfer
from lotnet.linalg.polar import deviation
from lotnet.linalg.roundoff import Upper, complex_product_error, dft_error, product_error, rounding_error
from lotnet.operators import Kernel, truncated_exponential
from lotnet.records import Between, WrongType

_LARGEST_PROOF = 2**29
"""Entries of the transfer matrices of a kernel, whose number depends on the settings and not on the file's size."""

Padding = Annotated[int, Between(0, 4096)]
"""The type of a number of rows or columns of zeros. (A negative number would fold the image instead of padding it.)"""


@dataclass(frozen=True)
class SpectrumSpec(ImageSize):
    padding: Padding | tuple[Padding, ...]
    """Of rows and columns; two numbers if they differ."""
    groups: Annotated[int, Between(1, 2**20)] = 1
    """Groups of channels with matrices of their own."""

    def __post_init__(self) -> None:
        if not isinstance(self.padding, int) and len(self.padding) != 2:
            raise WrongType(f"padding must be a number or two, not {len(self.padding)} of them")

    @property
    def grid(self) -> Grid:
        rows, columns = (self.padding, self.padding) if isinstance(self.padding, int) else self.padding
        return Grid(self.height, self.width, (rows, columns))


@dataclass(frozen=True)
class KernelSpec(ImageSize):
    padding_mode: Literal["zeros", "circular"]
    dilation: tuple[Size, Size]
    extra: tuple[Padding, Padding]


@dataclass(frozen=True)
class SeriesSpec(KernelSpec):
    terms: Annotated[int, Between(1, 100)]
    out_channels: Annotated[int, Between(1, 2**20)]


class FrozenConvolution(FrozenModule):
    """A linear map of images of one size, plus a bias for each channel."""

    Spec: ClassVar[type] = ImageSize
    INPUT = "i h w"
    spec: ImageSize
    bias: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_linear(x) + self.bias[:, None, None]

    @abstractmethod
    def apply_linear(self, x: Tensor) -> Tensor:
        """The map without the bias."""

    @abstractmethod
    def _linear_error(self, norm: Upper) -> Upper:
        """Bound of the rounding error of `apply_linear`, for a tensor with `||x|| <= norm`."""

    def _bias_norm(self) -> Upper:
        return constant_image_norm(self.bias, self.spec.pixels)

    def _local_error(self, norm: Upper) -> Upper:
        error = self._linear_error(norm)
        read = self.lipschitz_bound() * norm + error + self._bias_norm()
        return error + rounding_error(1, read, self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self.lipschitz_bound() * norm_in + self._bias_norm()

    def output_shape(self, shape: Shape) -> Shape:
        return (self.bias.shape[0], *shape[1:])


class FrozenSpectrum(FrozenConvolution):
    """`T^T diag(W_f) T`, with T the isometry of `linalg.fourier`: norm at most `max_f ||W_f||`.

    With groups, W_f is block-diagonal, and its rows are stored without the zeros. Its norm is the largest of its
    blocks', and so is the error of its product in l2, relative to the input.
    """

    Spec = SpectrumSpec
    TENSORS: ClassVar[Mapping[str, str]] = {"bias": "gp", "real": "f gp i", "imaginary": "f gp i"}
    INPUT = "gi h w"
    spec: SpectrumSpec
    real: Tensor  # f o i
    imaginary: Tensor  # f o i

    def __init__(self, precision: torch.dtype, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__(precision, settings, tensors)
        self._blocks: Tensor | None = None

    @property
    def grid(self) -> Grid:
        return self.spec.grid

    def sizes(self) -> dict[str, int]:
        return super().sizes() | {"f": self.grid.frequencies, "g": self.spec.groups}

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._blocks = None  # `to`, `double` and the like change the tensors they are made from
        return super()._apply(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._blocks = None
        super()._load_from_state_dict(*args, **kwargs)

    def apply_linear(self, x: Tensor) -> Tensor:
        if self._blocks is None or self._blocks.device != x.device:
            with torch.inference_mode(False):  # cached, and perhaps used outside of it later, for an attack's gradient
                self._blocks = real_blocks(self._transfers())
        return convolve(x, self._blocks, self.grid)

    def arranged(self, x: Tensor) -> Tensor:
        return batch_last(x)

    def _transfers(self) -> Tensor:  # f o i, or f g o i
        transfers, groups = torch.complex(self.real, self.imaginary), self.spec.groups
        return transfers if groups == 1 else transfers.unflatten(1, (groups, -1))

    def _prove_lipschitz(self) -> Upper:
        return Upper(float(spectral_norm_bound(self._transfers().flatten(0, -3)).max()))

    def orthogonality_error(self) -> float:
        return deviation(self._transfers())

    def _linear_error(self, norm: Upper) -> Upper:
        """Errors of T, the blocks and T transposed. The exact T is an isometry, so only the blocks change norms."""
        sizes, lipschitz = (self.grid.rows, self.grid.columns), self.lipschitz_bound()
        error = dft_error(sizes, norm, self.precision)
        block_beta = float(beta(self._transfers().flatten(0, -3)).max())
        inner = complex_product_error(block_beta, self.real.shape[2], norm + error, self.precision)
        error = lipschitz * error + inner
        return error + dft_error(sizes, lipschitz * norm + error, self.precision)


class FrozenDense(FrozenConvolution):
    """The whole layer as one matrix on pixels and channels."""

    TENSORS: ClassVar[Mapping[str, str]] = {"bias": "o", "matrix": "hwo hwi"}
    matrix: Tensor  # (h w o) x (h w i)

    def apply_linear(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        pixels = x.permute(2, 3, 1, 0).reshape(h * w * c, b)
        return (self.matrix @ pixels).view(h, w, len(self.bias), b).permute(3, 2, 0, 1)

    def _prove_lipschitz(self) -> Upper:
        # Zero padding on a small image makes the layer contract, by 0.1 % on a trained network. Radii do not use that,
        # so that they are comparable with the literature, which takes the norm of every layer to be one.
        return Upper(max(1.0, float(spectral_norm_bound(self.matrix))))

    def _linear_error(self, norm: Upper) -> Upper:
        return product_error(float(beta(self.matrix)), self.matrix.shape[1], norm, self.precision)


class FrozenKernel(FrozenConvolution):
    """A spatial convolution.

    In float64 it is one explicit matrix product of patches, whose rounding error is bounded. In float32 it is PyTorch's
    convolution, which may be a Winograd or FFT algorithm; no claim rests on it.
    """

    Spec: ClassVar[type] = KernelSpec
    TENSORS: ClassVar[Mapping[str, str]] = {"bias": "o", "kernel": "o i r s"}
    spec: KernelSpec
    kernel: Tensor  # o i kh kw

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """The border is at most the image if that wraps around, and twice the image or kernel otherwise."""
        image = (sizes["h"] + self.spec.extra[0], sizes["w"] + self.spec.extra[1])
        for side, length, dilation in zip(image, (sizes["r"], sizes["s"]), self.spec.dilation, strict=True):
            limit = side if self.spec.padding_mode == "circular" else 2 * max(side, length)
            if dilation * (length // 2) > limit:
                raise WrongType(f"a kernel of {length} taps with dilation {dilation} reaches beyond {limit} pixels")
        channels = sizes.get("o", 1) * sizes["i"] if "i" in sizes else sizes["c"] ** 2
        if math.prod(image) * channels > _LARGEST_PROOF:
            raise WrongType(f"{channels} kernels on {image[0]} x {image[1]} pixels take too much memory to prove")

    def operator(self) -> Kernel:
        return Kernel(self.kernel, self.spec.padding_mode, self.spec.dilation, self.spec.extra)

    def apply_linear(self, x: Tensor) -> Tensor:
        if self.precision != torch.float64:
            return self.operator().apply(x)
        b, _, h, w = x.shape
        o, _, kh, kw = self.kernel.shape
        patches = F.unfold(self.operator().pad(x), (kh, kw), dilation=self.spec.dilation)  # b, i kh kw, pixels
        # One product for all images: separate products would read the kernel again for each image.
        columns = patches.transpose(0, 1).flatten(1)
        rows, width = h + self.spec.extra[0], w + self.spec.extra[1]
        return (self.kernel.view(o, -1) @ columns).view(o, b, rows, width)[..., :h, :w].transpose(0, 1)

    def _prove_lipschitz(self) -> Upper:
        return kernel_norm(self.operator(), self.spec.height, self.spec.width)

    def _linear_error(self, norm: Upper) -> Upper:
        return product_error(float(beta_conv(self.kernel)), self.kernel[0].numel(), norm, self.precision)


class FrozenSeries(FrozenKernel):
    """A truncated exponential: `|S(i t)|`, for t up to the norm of the skew operator, bounds its singular values.

    The bound holds for normal matrices, so the stored kernel must be skew to the last bit and of odd size. Only then is
    the flipped kernel, whose centre is at the same tap, the adjoint.
    """

    Spec: ClassVar[type] = SeriesSpec
    TENSORS: ClassVar[Mapping[str, str]] = {"bias": "o", "kernel": "c c r s"}
    spec: SeriesSpec

    def sizes(self) -> dict[str, int]:
        return super().sizes() | {"o": self.spec.out_channels}

    def fits(self, shape: Shape) -> bool:
        return super().fits(shape) and max(shape[0], self.spec.out_channels) <= len(self.kernel)

    def apply_linear(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, 0, 0, self.kernel.shape[0] - x.shape[1]))
        return truncated_exponential(x, super().apply_linear, self.spec.terms)[:, : self.spec.out_channels]

    def _prove_lipschitz(self) -> Upper:
        odd = all(size % 2 for size in self.kernel.shape[2:])
        if not (odd and torch.equal(self.kernel, -self.kernel.transpose(0, 1).flip(2, 3))):
            return Upper(float("inf"))
        return series_bound(super()._prove_lipschitz(), self.spec.terms)

    def _linear_error(self, norm: Upper) -> Upper:
        step = super()._prove_lipschitz()
        error_term, size_term = Upper(0), norm
        error, size = Upper(0), norm
        for j in range(1, self.spec.terms + 1):
            applied = step * error_term + super()._linear_error(size_term + error_term)
            size_term = step * size_term / j
            error_term = applied / j + rounding_error(1, size_term + applied / j, self.precision)
            size = size + size_term
            error = error + error_term
            error = error + rounding_error(1, size + error, self.precision)
        return error


def kernel_norm(operator: Kernel, height: int, width: int) -> Upper:
    """Proved norm of a spatial convolution on images of this size.

    Proof. It is a circular convolution between padding and cropping, which are contractions. The circular image is the
    image itself if that is periodic, else one large enough that nothing wraps around. A circular convolution dilated by
    d on n pixels has at frequency f the transfer matrix of the undilated kernel at d f / n. These are the multiples of
    g / n, g = gcd(d, n): the frequencies of the undilated kernel on n / g pixels. If the kernel is larger than that,
    any multiple of n / g pixels will do, because its frequencies include them. (Which tap is the centre changes only a
    phase, so the zeros that a transposed even kernel ends with are left out first.)
    """
    kernel = operator.kernel.double()
    kh, kw = kernel.shape[-2:]
    rows, columns = height + operator.extra[0], width + operator.extra[1]
    dh, dw = operator.dilation
    if kh == kw == 1:
        grid = Grid(1, 1)  # the same matrix at all frequencies
    elif operator.padding_mode == "circular":
        rows, columns = rows // math.gcd(rows, dh), columns // math.gcd(columns, dw)
        if kh > rows or kw > columns:
            kernel = _without_last_zeros(kernel)
            kh, kw = kernel.shape[-2:]
        grid = Grid(rows * -(-kh // rows), columns * -(-kw // columns))
    else:  # n + k - 1 interleaved pixels hold everything that a phase touches; `Geometry.grid` has one more for even k
        grid = Grid(-(-rows // dh) + 2 * (kh // 2), -(-columns // dw) + 2 * (kw // 2))
    transfers = transfer(kernel, grid)
    # The computed transfer matrices err: each entry is a sum of kh kw products with phases known to 8u.
    slack = rounding_error(kh * kw + 16, Upper(2).sqrt() * float(beta_conv(kernel)), torch.float64)
    return Upper(float(spectral_norm_bound(transfers).max())) + slack


def _without_last_zeros(kernel: Tensor) -> Tensor:  # o i kh kw
    """The kernel up to its last row and column of taps that are not all zero."""
    rows, columns = (kernel.ne(0).any(dim=0).any(dim=0).any(dim=d).nonzero() for d in (1, 0))
    height, width = (int(n.max()) + 1 if len(n) else 1 for n in (rows, columns))
    return kernel[..., :height, :width]
