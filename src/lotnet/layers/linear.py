"""Dense layers: orthogonal, and the last layer with normalised rows."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, Shape
from lotnet.frozen.pointwise import FrozenLinear
from lotnet.kernels import dispatch
from lotnet.layers.arguments import Device, place
from lotnet.layers.base import LipschitzLayer, check_finite, check_sizes, to_compute_dtype
from lotnet.layers.conv import OrthogonalConv2d
from lotnet.parametrizations import Parametrization


class OrthogonalLinear(LipschitzLayer):
    """Orthogonal dense layer: orthonormal rows or columns, as an orthogonal convolution of one pixel.

    The arguments are those of `nn.Linear`, and `parametrization` as in `OrthogonalConv2d`.

    >>> layer = OrthogonalLinear(8, 8, bias=False).eval()
    >>> x = torch.randn(5, 8)
    >>> torch.allclose(layer(x).norm(dim=1), x.norm(dim=1), rtol=1e-5)
    True
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        parametrization: str | Parametrization = "lot",
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.pixel = OrthogonalConv2d(in_features, out_features, 1, bias=bias, parametrization=parametrization)
        place(self, device, dtype)

    @property
    def weight(self) -> nn.Parameter:
        """The free kernel, as that of a convolution of one pixel (o, i, 1, 1)."""
        return self.pixel.weight

    @property
    def bias(self) -> nn.Parameter | None:
        return self.pixel.bias

    def forward(self, x: Tensor) -> Tensor:
        _check(x, self.in_features)
        return self.pixel(x[:, :, None, None])[:, :, 0, 0]

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        impulses = torch.eye(self.in_features, dtype=torch.float64, device=self.pixel.weight.device)[:, :, None, None]
        columns = self.pixel.frozen_operator(1, 1).apply(impulses)[:, :, 0, 0]
        return _frozen_linear(columns.T, self.pixel.bias, dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class NormalizedLinear(LipschitzLayer):
    """Last layer with normalised rows (last-layer normalisation, LLN): each logit by itself is 1-Lipschitz.

    The layer as a whole is not 1-Lipschitz: certificates compare pairs of rows. A zero row stays zero.

    >>> NormalizedLinear(16, 10)(torch.zeros(1, 16)).tolist() == [[0.0] * 10]
    True
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.randn(out_features, in_features) / in_features**0.5)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        place(self, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        _check(x, self.in_features)
        if not dispatch.reading_synchronizes(x):
            check_finite(self.weight, "last layer's weight")
        with torch.autocast(x.device.type, enabled=False):
            inner = to_compute_dtype(x, self.weight)
            bias = None if self.bias is None else self.bias.to(inner.dtype)
            y = F.linear(inner, normalized_rows(self.weight.to(inner.dtype)), bias)
        return y.to(x.dtype)

    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule:
        check_finite(self.weight, "last layer's weight")
        return _frozen_linear(normalized_rows(self.weight.detach().double()), self.bias, dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}"


def normalized_rows(weight: Tensor) -> Tensor:
    """Divide rows by their norms. No epsilon is added: the result would depend on the scale of the rows."""
    largest = weight.detach().abs().amax(dim=1, keepdim=True)
    scaled = weight / torch.where(largest > 0, largest, 1)
    square = scaled.square().sum(dim=1, keepdim=True)
    return scaled / torch.where(square > 0, square, 1).sqrt()


def _frozen_linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> FrozenLinear:
    zeros = torch.zeros(weight.shape[0], dtype=torch.float64)
    tensors = {"weight": weight.cpu(), "bias": zeros if bias is None else bias.detach().cpu()}
    return FrozenLinear(dtype, {}, tensors)


def _check(x: Tensor, in_features: int) -> None:
    if x.ndim != 2 or x.shape[1] != in_features:
        raise InputError(
            f"this layer takes vectors of {in_features} features (b, {in_features}), not a tensor of shape "
            f"{tuple(x.shape)}: flatten the input or set in_features to match"
        )
