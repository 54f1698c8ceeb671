"""The base class of model configurations."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.layers import ConvexResidual, Householder, MaxMin, NormalizedLinear, OrthogonalConv2d, OrthogonalLinear
from lotnet.layers.arguments import compact
from lotnet.layers.trace import trace_shapes
from lotnet.parametrizations import Parametrization, parametrization
from lotnet.parametrizations.base import PaddingMode

Activation = Literal["maxmin", "hh1", "hh2"]
Head = Literal["orthogonal", "lln"]
Start = Literal["identity", "random", "quasi-residual"]


@dataclass(frozen=True)
class ImageSpec:
    """Specification of the images that a network is built for: shape, number of classes, and normalisation of pixels.

    `ModelConfig.build` turns settings and an `ImageSpec` into a module:

    >>> from lotnet import LipConvnet
    >>> network = LipConvnet(depth=5, channels=4).build(ImageSpec(3, 32, 32, classes=10))
    >>> type(network).__name__
    'Sequential'
    """

    channels: int
    height: int
    width: int
    classes: int
    mean: tuple[float, ...] = ()
    """Mean of each channel over the training images; by default 0.5 for each."""
    std: float = 0.25
    """One standard deviation for all channels, so that normalisation scales every direction alike."""

    def __post_init__(self) -> None:
        if not self.mean:
            object.__setattr__(self, "mean", (0.5,) * self.channels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.height, self.width


@dataclass(frozen=True)
class ModelConfig(ABC):
    """Settings of a network. `build` makes the network, an `nn.Sequential`: `Normalize` first, logits last."""

    parametrization: str = "lot"
    """How kernels become orthogonal: lot, soc, cayley, bcop, eco, spectral or rko."""
    options: dict[str, float] = field(default_factory=dict)
    """Settings of the parametrization by name, for example {tolerance: 1e-4}."""
    activation: Activation = "maxmin"
    """Activation: maxmin, or Householder of order 1 (hh1) or 2 (hh2)."""
    padding_mode: PaddingMode = "zeros"
    """Padding of convolutions: zeros, or circular for periodic images."""
    start: Start = "identity"
    """Initial kernel of layers that keep the number of channels: identity, random, or quasi-residual, which is the
    polar factor of I + gamma U / sqrt(depth) with a random U. All other layers start at random."""
    gamma: float = 1.0
    """Distance of a quasi-residual start from the identity."""
    head: Head = "orthogonal"
    """Last layer: orthogonal, or lln (rows of norm one), which is better with many classes."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value, known = getattr(self, name), get_args(kind)
            if get_origin(kind) is Literal and value not in known:
                raise InputError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
        if not 1e-6 <= self.gamma <= 1e6:
            raise InputError(f"model.gamma must be between 1e-6 and 1e6, not {self.gamma}")
        if self.start == "quasi-residual" and self.parametrization != "lot":
            raise InputError(
                f"model.start quasi-residual works with lot only, not with {self.parametrization}: choose another start"
            )

    @abstractmethod
    def build(self, images: ImageSpec) -> nn.Sequential:
        """Make a new network for these images. Its weights are drawn from torch's global random generator."""

    @property
    @abstractmethod
    def layers(self) -> int:
        """The depth in the formula of a quasi-residual start: about the number of convolutions."""

    def convolution(
        self, inputs: int, outputs: int, kernel_size: int, stride: int = 1, bias: bool = True
    ) -> OrthogonalConv2d:
        layer = OrthogonalConv2d(
            inputs,
            outputs,
            kernel_size,
            stride,
            bias=bias,
            padding_mode=self.padding_mode,
            parametrization=self.make_parametrization(),
        )
        self._init_weight(layer)
        return layer

    def dense(self, features: int) -> OrthogonalLinear:
        layer = OrthogonalLinear(features, features, parametrization=self.make_parametrization())
        self._init_weight(layer.pixel)
        return layer

    def _init_weight(self, layer: OrthogonalConv2d) -> None:
        """Set the initial kernel. A new layer starts at the identity if its shape allows that, else at random."""
        if self.start == "random":
            nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
        if self.start == "quasi-residual" and layer.stride == (1, 1) and layer.in_channels == layer.out_channels:
            with torch.no_grad():
                random = torch.randn_like(layer.weight) * layer.weight[0].numel() ** -0.5
                layer.weight.mul_(self.layers**0.5 / self.gamma).add_(random)

    def make_activation(self, channels: int) -> nn.Module:
        return MaxMin() if self.activation == "maxmin" else Householder(channels, order=int(self.activation[-1]))

    def make_head(self, features: int, classes: int) -> nn.Module:
        if self.head == "lln":
            return NormalizedLinear(features, classes)
        if classes > features:
            raise InputError(f"{classes} classes need at least as many features, not {features}: use more channels")
        return OrthogonalLinear(features, classes, parametrization=self.make_parametrization())

    def make_parametrization(self) -> Parametrization:
        defaults = parametrization(self.parametrization)
        known: list[str] = [setting.name for setting in fields(defaults)] if is_dataclass(defaults) else []
        for name in self.options:
            if name not in known:
                raise InputError(
                    f"{self.parametrization} has no setting {name}: "
                    + (f"choose among {', '.join(known)}" if known else "leave out model.options")
                )
        # Recipes and the command line give every number as a float; counts become whole numbers again.
        counts = {name for name in known if isinstance(getattr(defaults, name), int)}
        given = {n: int(v) if n in counts and float(v).is_integer() else v for n, v in self.options.items()}
        return type(defaults)(**given)


def parameter_count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def halvings(height: int, width: int) -> int:
    """How often an image can be halved, at most five times."""
    bits = height | width
    return min(5, (bits & -bits).bit_length() - 1)


def convolution_count(model: nn.Module) -> int:
    """Number of orthogonal convolutions, including those of dense layers and of the head."""
    return sum(isinstance(module, OrthogonalConv2d) for module in model.modules())


def describe(model: nn.Sequential, example: Tensor) -> list[tuple[str, str, tuple[int, ...], int]]:
    """List (name, layers, output shape, parameters) of every stage, by running an example through the model.

    Convolutions are not orthogonalised for it, so it takes a moment at any image size.
    """
    with shapes_only(model):
        shapes = trace_shapes(model, model.children(), example)
    return [
        (name, _layers(layer), shapes[layer].output[1:], parameter_count(layer))
        for name, layer in model.named_children()
    ]


def _layers(layer: nn.Module) -> str:
    """The layers of a stage, in the order in which they run."""
    if isinstance(layer, nn.Sequential):
        return " + ".join(map(_layers, layer.children()))
    if isinstance(layer, ConvexResidual):
        return f"average of input and ({_layers(layer.block)})"
    if isinstance(layer, OrthogonalConv2d):
        stride = f", stride={compact(layer.stride)}" if layer.stride != (1, 1) else ""
        size = f"{layer.in_channels}, {layer.out_channels}, kernel_size={layer.kernel_size}{stride}"
        return f"{type(layer).__name__}({size}, {type(layer.parametrization).__name__})"
    return repr(layer)


@contextmanager
def shapes_only(model: nn.Module) -> Iterator[None]:
    """Let orthogonal convolutions return zeros of the right shape."""

    def zeros(layer: OrthogonalConv2d, x: Tensor) -> Tensor:
        b, _, h, w = x.shape
        return x.new_zeros(b, layer.out_channels, h // layer.stride[0], w // layer.stride[1])

    layers = [module for module in model.modules() if isinstance(module, OrthogonalConv2d)]
    for layer in layers:
        layer.forward = partial(zeros, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
