"""Convert a plain PyTorch network to a 1-Lipschitz one of the same architecture."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lotnet.errors import InputError
from lotnet.layers import (
    Abs,
    AveragePool,
    Centering,
    GlobalAveragePool,
    MaxMin,
    MaxPool,
    Normalize,
    NormalizedLinear,
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose2d,
    OrthogonalLinear,
)
from lotnet.layers.base import LipschitzLayer, is_size
from lotnet.layers.plain import freeze_plain, refusal
from lotnet.layers.window_kernel import Axis, window_kernel

Shape = tuple[int, ...]

__all__ = ["convert"]


def convert(
    model: nn.Sequential,
    image_size: int | Shape,
    mean: float | Sequence[float] = 0.5,
    std: float = 0.25,
    parametrization: str = "lot",
    quiet: bool = False,
) -> nn.Sequential:
    """Build a 1-Lipschitz network with the architecture of `model`, an `nn.Sequential`, and print what became what.

    The result is a new network, which you train. It begins with `Normalize(mean, std)` and reads pixels in [0, 1]; its
    last layer is a `NormalizedLinear`. Kernels are kept as free kernels where shapes allow. All convolutions have
    padding "same", so images may stay larger than in `model`. Modules that are 1-Lipschitz already, such as `MaxMin`
    and `nn.Hardtanh`, are kept. Those that have no counterpart raise an `InputError`.

    `image_size` is a side, (height, width) or (channels, height, width), or the length of sequences. `quiet` prints
    nothing.

    >>> plain = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16 * 16, 10))
    >>> convert(plain, image_size=16)(torch.rand(2, 3, 16, 16)).shape
    model.0 Conv2d -> OrthogonalConv2d(3, 8, kernel_size=3), kernel kept
    model.1 ReLU -> MaxMin()
    model.2 Flatten -> Flatten(start_dim=1, end_dim=-1)
    model.3 Linear -> NormalizedLinear(2048, 10), kernel kept
    torch.Size([2, 10])
    """
    if type(model) is not nn.Sequential:
        raise InputError(
            f"convert takes an nn.Sequential, not a {type(model).__name__}: nobody can see what its forward does, so "
            "put its modules into nn.Sequential, with nn.Flatten() before dense layers"
        )
    modules = list(_leaves(model, "model"))
    if not modules or type(modules[-1][1]) is not nn.Linear:
        raise InputError("the network to convert must end in nn.Linear, which gives the logits: append one, no softmax")
    work = _Conversion(_input_shape(modules, image_size), parametrization)
    layers: list[nn.Module] = [Normalize(_means(mean, work.shape[0]), std)]
    for n, (name, module) in enumerate(modules):
        work.last = n == len(modules) - 1
        made, note = work.convert(module, name)
        if made is not None:
            layers.append(made)
        if not quiet:
            found = "left out" if made is None else _described(made)
            print(f"{name} {type(module).__name__} -> {found}{', ' * bool(note)}{note}")
    parameter = next(model.parameters())
    return nn.Sequential(*layers).to(parameter.device)


def _means(mean: float | Sequence[float], channels: int) -> list[float]:
    means = [float(m) for m in mean] if isinstance(mean, Sequence) else [mean] * channels
    if len(means) != channels:
        raise InputError(f"mean needs one number, or one for each of {channels} channels, not {mean}")
    return means


def _described(layer: nn.Module) -> str:
    """The layer in one line, without its parametrization."""
    name = type(layer).__name__
    if isinstance(layer, OrthogonalConv1d | OrthogonalLinear | OrthogonalConvTranspose2d):
        return f"{name}({layer.extra_repr()})"
    return repr(layer).split(", parametrization=")[0] + ")" * isinstance(layer, OrthogonalConv2d)


def _leaves(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    if type(module) is nn.Sequential:
        for child_name, child in module.named_children():
            yield from _leaves(child, f"{name}.{child_name}")
    else:
        yield name, module


def _input_shape(modules: list[tuple[str, nn.Module]], image_size: int | Shape) -> Shape:
    first = next((m for _, m in modules if isinstance(m, nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d)), None)
    axes = 1 if isinstance(first, nn.Conv1d) else 2
    size = (image_size,) * axes if isinstance(image_size, int) else tuple(image_size)
    if len(size) == axes and first is not None:
        size = (first.in_channels, *size)
    if len(size) != axes + 1 or not all(is_size(n) for n in size):
        known = "(channels, length)" if axes == 1 else "(channels, height, width)"
        raise InputError(f"image_size must say the shape of what the network reads, not {image_size}: pass {known}")
    return size


Made = tuple[nn.Module | None, str]
"""The new layer, or None if there is none, and a note for the user."""


@dataclass
class _Conversion:
    """Converts modules in their order, and follows the shape of the images."""

    shape: Shape
    parametrization: str
    plain: Shape | None = field(init=False)
    """The shape in the plain network, as long as kernels of dense layers could be kept; else None."""
    last: bool = False

    def __post_init__(self) -> None:
        self.plain = self.shape

    def convert(self, module: nn.Module, name: str) -> Made:
        converter = CONVERTERS.get(type(module), _Conversion.keep)
        with torch.no_grad():
            made, note = converter(self, module, name)
            self.plain = _shape_after(module, self.plain)
            if made is not None:
                self.shape = _output_shape(made, self.shape, name)
        return made, note

    def keep(self, module: nn.Module, name: str) -> Made:
        """A module that is 1-Lipschitz already; any other is refused."""
        if isinstance(module, Normalize):
            raise InputError(f"{name} is a Normalize, which convert adds itself: leave it out, and pass mean and std")
        if not isinstance(module, LipschitzLayer) and type(module) not in _KEPT:
            raise refusal(module, name)
        copy: Any = deepcopy(module).to("cpu", torch.float32)
        if hasattr(copy, "inplace"):
            copy.inplace = False
        if type(module) in _KEPT:
            freeze_plain(copy, self.shape, torch.float32, name)  # refuses arguments that no bound covers
        return copy, "kept"

    def convolution(self, module: Any, name: str) -> Made:
        if module.in_channels != self.shape[0]:
            raise InputError(
                f"{name} reads {module.in_channels} channels, not the {self.shape[0]} that it gets: correct the "
                "network or image_size"
            )
        self._check_strides(module, name)
        transposed = isinstance(module, nn.ConvTranspose2d)
        paddings = (-1, -1) if isinstance(module.padding, str) else module.padding
        sizes = zip(module.kernel_size, module.stride, module.dilation, paddings, strict=False)
        if module.padding_mode not in ("zeros", "circular"):
            raise InputError(
                f'{name} has padding_mode "{module.padding_mode}", which copies pixels: use zeros or circular'
            )
        kernel, dilation = window_kernel(module.weight, [Axis(*size) for size in sizes])
        kind: Any = OrthogonalConvTranspose2d if transposed else _CONVOLUTIONS[type(module)]
        layer = kind(
            module.in_channels,
            module.out_channels,
            tuple(kernel.shape[2:]),
            stride=module.stride,
            dilation=dilation,
            groups=module.groups,
            bias=module.bias is not None,
            padding_mode=module.padding_mode,
            parametrization=self.parametrization,
        )
        kept = layer.weight.numel() == kernel.numel()
        if kept:
            layer.weight.copy_(kernel.view_as(layer.weight))
        return layer, "kernel kept" if kept else "new kernel"

    def _check_strides(self, module: Any, name: str) -> None:
        if isinstance(module, nn.ConvTranspose2d):
            return
        if any(n % s for n, s in zip(self.shape[1:], module.stride, strict=True)):
            found = " x ".join(map(str, self.shape[1:]))
            raise InputError(f"{name} cannot stride over {found} pixels by {module.stride}: choose another image_size")

    def dense(self, module: nn.Linear, name: str) -> Made:
        if len(self.shape) != 1:
            raise InputError(f"{name} is a Linear that reads images: put nn.Flatten() before it")
        (features,) = self.shape
        bias = module.bias is not None
        layer: NormalizedLinear | OrthogonalLinear
        if self.last:
            layer = NormalizedLinear(features, module.out_features, bias=bias)
        else:
            layer = OrthogonalLinear(features, module.out_features, bias, parametrization=self.parametrization)
        kept = self.plain in (None, self.shape) and layer.weight.numel() == module.weight.numel()
        if kept:
            layer.weight.copy_(module.weight.view_as(layer.weight))
        return layer, "kernel kept" if kept else "new kernel"

    def activation(self, module: nn.ReLU, name: str) -> Made:
        return (MaxMin(), "") if self.shape[0] % 2 == 0 else (Abs(0.5), "because the number of channels is odd")

    def max_pool(self, module: Any, name: str) -> Made:
        return self._pool(MaxPool, module, name)

    def average_pool(self, module: Any, name: str) -> Made:
        return self._pool(AveragePool, module, name)

    def _pool(self, kind: type[AveragePool | MaxPool], module: Any, name: str) -> Made:
        strides = {*_many(module.stride)}
        if len(strides) > 1:
            raise InputError(f"{name} has windows of stride {module.stride}, which are not square: use one number")
        (size,) = strides
        overlap = any(n > size for n in _many(module.kernel_size))
        note = "windows made disjoint, because those that overlap enlarge differences" if overlap else ""
        return kind(size), note

    def adaptive_pool(self, module: Any, name: str) -> Made:
        size = module.output_size
        wanted = size if isinstance(size, tuple) else (size,) * (len(self.shape) - 1)
        pairs = [(found, found if n is None else n) for found, n in zip(self.shape[1:], wanted, strict=True)]
        if all(n == 1 for _, n in pairs):
            return GlobalAveragePool(), ""
        if all(n >= found for found, n in pairs):
            return None, "because it would copy pixels" if any(n > found for found, n in pairs) else ""
        if len({divmod(found, n) for found, n in pairs}) > 1 or pairs[0][0] % pairs[0][1]:
            pixels = " x ".join(map(str, self.shape[1:]))
            raise InputError(f"{name} pools {pixels} pixels to {size}, not in equal square windows: pass 1 instead")
        return AveragePool(pairs[0][0] // pairs[0][1]), ""

    def centering(self, module: Any, name: str) -> Made:
        return Centering(self.shape[0]), "running mean and bias start anew"

    def flatten(self, module: nn.Flatten, name: str) -> Made:
        if (module.start_dim, module.end_dim) != (1, -1):
            raise refusal(module, name)
        return nn.Flatten(), ""

    def dropout(self, module: Any, name: str) -> Made:
        return type(module)(module.p), ""

    def nothing(self, module: nn.Module, name: str) -> Made:
        return None, ""


def _many(size: Any) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _output_shape(layer: Any, shape: Shape, name: str) -> Shape:
    """The shape of what the layer returns, without orthogonalising it."""
    if isinstance(layer, OrthogonalLinear | NormalizedLinear):
        return (layer.out_features,)
    if isinstance(layer, OrthogonalConv1d):
        return (layer.out_channels, shape[1] // layer.stride)
    if isinstance(layer, OrthogonalConv2d):
        return (layer.out_channels, *(n // s for n, s in zip(shape[1:], layer.stride, strict=True)))
    if isinstance(layer, OrthogonalConvTranspose2d):
        return (layer.out_channels, *(n * s for n, s in zip(shape[1:], layer.stride, strict=True)))
    try:
        return tuple(layer.train(False)(torch.zeros(1, *shape)).shape[1:])
    except (InputError, RuntimeError) as error:
        raise InputError(f"{name}: {error}") from None
    finally:
        layer.train()


def _shape_after(module: nn.Module, shape: Shape | None) -> Shape | None:
    """The shape in the plain network, or None as long as it is not known: it may not run on images of this size."""
    if isinstance(module, nn.Linear):
        return (module.out_features,)
    if shape is None:
        return None
    parameter = next(module.parameters(), torch.zeros(()))
    modes = module.training
    try:
        example = torch.zeros(1, *shape, dtype=parameter.dtype, device=parameter.device)
        return tuple(module.eval()(example).shape[1:])
    except (InputError, RuntimeError):
        return None
    finally:
        module.train(modes)


_CONVOLUTIONS: dict[type[nn.Module], Any] = {nn.Conv1d: OrthogonalConv1d, nn.Conv2d: OrthogonalConv2d}
CONVERTERS: dict[type[nn.Module], Callable[[_Conversion, Any, str], Made]] = {
    kind: converter
    for converter, kinds in {
        _Conversion.convolution: (nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d),
        _Conversion.dense: (nn.Linear,),
        _Conversion.activation: (nn.ReLU,),
        _Conversion.max_pool: (nn.MaxPool1d, nn.MaxPool2d),
        _Conversion.average_pool: (nn.AvgPool1d, nn.AvgPool2d),
        _Conversion.adaptive_pool: (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
        _Conversion.centering: (nn.BatchNorm1d, nn.BatchNorm2d),
        _Conversion.flatten: (nn.Flatten,),
        _Conversion.dropout: (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout),
        _Conversion.nothing: (nn.Identity,),
    }.items()
    for kind in kinds
}
"""How a module is converted. Any other is kept or refused."""
_KEPT = {
    *(nn.LeakyReLU, nn.Hardtanh, nn.ReLU6, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle),
    *(nn.PReLU, nn.ZeroPad1d, nn.ZeroPad2d),
}
"""PyTorch's modules that are 1-Lipschitz as they are."""
