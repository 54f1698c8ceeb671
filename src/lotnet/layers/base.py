"""The base class of layers, and freezing of whole models."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, FrozenSequential, Shape
from lotnet.frozen.model import FrozenModel, assemble
from lotnet.layers.plain import freeze_plain


class LipschitzLayer(nn.Module, ABC):
    """A layer that is 1-Lipschitz in l2 in `eval()` mode, or that states its Lipschitz constant when frozen.

    The only trainable parameters are the free kernel `weight`, `bias`, activation angles and a residual's mix. `frozen`
    returns the plain inference module for inputs of one shape, which computes the same function up to rounding.
    """

    @abstractmethod
    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule: ...


def freeze(model: nn.Module, image_size: int | Shape, dtype: torch.dtype = torch.float32) -> FrozenModel:
    """Convert a model to a plain inference module with proved bounds, orthogonalised in float64 and stored in `dtype`.

    Only `nn.Sequential`, lotnet's layers and the PyTorch modules listed in `lotnet.layers.plain` can be frozen. Any
    other module, such as one with its own `x + f(x)`, raises an `InputError` that names it and its replacement, because
    lotnet has no rule for its bounds.

    Args:
        model: the trained model, usually an `nn.Sequential`.
        image_size: a side, (height, width), or (channels, height, width). For sequences: a length, or (channels,
            length).
        dtype: the precision in which tensors are stored: float32 or float64.

    >>> from lotnet import OrthogonalConv2d
    >>> freeze(nn.Sequential(OrthogonalConv2d(3, 8, 3)), image_size=16).input_shape
    (3, 16, 16)
    """
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"a model is frozen in float32 or float64, not {dtype}: pass one of these")
    shape = _input_shape(model, image_size)
    with torch.no_grad():
        stages = frozen_stages(model, shape, dtype, "model")
    return assemble(stages, shape, dtype)


def frozen_stages(module: nn.Module, shape: Shape, dtype: torch.dtype, name: str) -> list[FrozenModule]:
    if isinstance(module, LipschitzLayer) and _freezes_its_own_forward(type(module)):
        stage = module.frozen(shape, dtype)
        _check_shape(stage, shape, dtype, f"{name} ({type(module).__name__})")
        return [stage]
    if type(module) is nn.Sequential:
        stages: list[FrozenModule] = []
        for child_name, child in module.named_children():
            for stage in frozen_stages(child, shape, dtype, f"{name}.{child_name}"):
                stages.append(stage)
                shape = stage.output_shape(shape)
        return stages
    stages = freeze_plain(module, shape, dtype, name)
    for stage in stages:
        _check_shape(stage, shape, dtype, f"{name} ({type(module).__name__})")
    return stages


def _freezes_its_own_forward(layer: type[LipschitzLayer]) -> bool:
    """Whether `frozen` is defined in the class that defines `forward`, or in a subclass of it.

    A subclass that overrides only `forward` would be frozen as the function of its parent.
    """
    forward, frozen = (next(c for c in layer.__mro__ if name in vars(c)) for name in ("forward", "frozen"))
    return issubclass(frozen, forward)


def _check_shape(stage: FrozenModule, shape: Shape, dtype: torch.dtype, name: str) -> None:
    """Run the stage to check its output shape: channels that do not match might be broadcast, which no bound covers."""
    try:
        found = tuple(stage(torch.zeros(1, *shape, dtype=dtype)).shape[1:])
    except (RuntimeError, ValueError):
        found = None
    if found != stage.output_shape(shape):
        raise InputError(
            f"{name} does not take inputs of shape {shape}: make its channels or features match, or flatten before it"
        )


def frozen_block(module: nn.Module, shape: Shape, dtype: torch.dtype, name: str) -> FrozenSequential:
    return FrozenSequential(dtype, {}, {}, *frozen_stages(module, shape, dtype, name))


def _input_shape(model: nn.Module, image_size: int | Shape) -> Shape:
    # The number of axes of what the first convolution reads, besides the channels.
    axes = next((n for module in model.modules() if isinstance(n := getattr(module, "spatial", None), int)), 2)
    known = ("a length", "(length,)", "(channels, length)") if axes == 1 else _IMAGE_SIZES
    size = tuple(image_size) if isinstance(image_size, Sequence) else (image_size,) * axes
    if not all(is_size(n) for n in size):
        raise InputError(
            f"image_size is {', '.join(known[:-1])} or {known[-1]}, not {image_size!r}: pass whole numbers of at least "
            "1"
        )
    if len(size) == axes + 1:
        return size
    channels = _first_channels(model)
    if len(size) != axes or channels is None:
        raise InputError(f"the input's channels are not known: pass image_size as {known[-1]}")
    return (channels, *size)


_IMAGE_SIZES = ("a side", "(height, width)", "(channels, height, width) in pixels")


def _first_channels(model: nn.Module) -> int | None:
    """Input channels of the first layer that fixes them, or None if a module before it may change their number."""
    for module in model.modules():
        if isinstance(channels := getattr(module, "in_channels", None), int):
            return channels
        if isinstance(module, nn.Flatten) or hasattr(module, "stride"):
            return None
    return None


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if not is_size(size):
            raise InputError(f"{name} must be one whole number, at least 1, not {size!r}")


def is_size(n: object) -> bool:
    return isinstance(n, Integral) and int(n) >= 1


def to_compute_dtype(x: Tensor, weight: Tensor) -> Tensor:
    """Convert the input to the dtype that the layer computes in: half precisions are widened to float32."""
    check_floating(x)
    return x.to(torch.promote_types(weight.dtype, torch.float32))


def check_floating(x: Tensor) -> None:
    if not x.is_floating_point():
        remedy = "pass real and imaginary parts as channels" if x.is_complex() else "divide 8-bit images by 255"
        raise InputError(f"layers take floating-point numbers, not {x.dtype}: {remedy}")


def check_finite(weight: Tensor, name: str) -> None:
    if not torch.isfinite(weight).all():
        raise InputError(f"the {name} has NaN or infinite entries: lower the learning rate or load a good checkpoint")


class Cached:
    """A cache of one value, computed from a tensor and a key, and kept until either changes.

    It compares the tensor's entries, since not every in-place change increments the version counter.
    """

    def __init__(self) -> None:
        self._key: Any = None
        self._source: Tensor | None = None
        self._value: Any = None

    def get(self, key: Any, source: Tensor, compute: Any) -> Any:
        known = self._source
        key = (key, source.dtype, source.device)
        if known is None or key != self._key or not torch.equal(known, source):
            with torch.inference_mode(False):  # the value may be used outside of it later, for a gradient
                self._value = compute()
            self._key, self._source = key, source.detach().clone()
        return self._value

    def clear(self) -> None:
        self._key = self._source = self._value = None

    def __deepcopy__(self, memo: Any) -> "Cached":
        return Cached()
