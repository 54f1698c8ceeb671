"""The law of a layer, and freezing."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.base import FrozenModule, FrozenSequential, Shape
from lotnet.frozen.model import FrozenModel, assemble
from lotnet.frozen.pointwise import FrozenFlatten


class LipschitzLayer(nn.Module, ABC):
    """A layer whose function in `eval()` is 1-Lipschitz in l2, or that states its constant when frozen.

    Trainable state is only the free kernel `weight`, `bias`, activation angles and a residual's mix. `frozen` gives the
    plain inference module for inputs of one shape; it computes the same function within rounding.
    """

    @abstractmethod
    def frozen(self, shape: Shape, dtype: torch.dtype) -> FrozenModule: ...


def freeze(model: nn.Module, image_size: int | Shape, dtype: torch.dtype = torch.float32) -> FrozenModel:
    """A plain inference module with proved bounds: float64 orthogonalisation, stored in `dtype`, no parametrization left.

    `image_size` is a side, (height, width), or (channels, height, width). Only `nn.Sequential`, `nn.Flatten`, `nn.Identity`
    and lotnet's layers are understood: anything else, such as a module with its own `x + f(x)`, is refused by name, since
    nobody could say how its bounds compose.
    """
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"a model is frozen in float32 or float64, not {dtype}: pass one of these")
    shape = _input_shape(model, image_size)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            stages = frozen_stages(model, shape, dtype, "model")
    finally:
        model.train(training)
    return assemble(stages, shape, dtype)


def frozen_stages(module: nn.Module, shape: Shape, dtype: torch.dtype, name: str) -> list[FrozenModule]:
    if isinstance(module, LipschitzLayer):
        return [module.frozen(shape, dtype)]
    if isinstance(module, nn.Identity):
        return []
    if isinstance(module, nn.Flatten) and module.start_dim == 1 and module.end_dim == -1:
        return [FrozenFlatten(dtype, {}, {})]
    if type(module) is nn.Sequential:
        stages: list[FrozenModule] = []
        for child_name, child in module.named_children():
            for stage in frozen_stages(child, shape, dtype, f"{name}.{child_name}"):
                stages.append(stage)
                shape = stage.output_shape(shape)
        return stages
    raise InputError(
        f"{name} is a {type(module).__name__}, for which lotnet has no proved bound: build the model from nn.Sequential "
        "and lotnet layers"
    )


def frozen_block(module: nn.Module, shape: Shape, dtype: torch.dtype, name: str) -> FrozenSequential:
    return FrozenSequential(dtype, {}, {}, *frozen_stages(module, shape, dtype, name))


def _input_shape(model: nn.Module, image_size: int | Shape) -> Shape:
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(size) == 3:
        return size
    channels = next((c for c in (getattr(m, "in_channels", None) for m in model.modules()) if c), None)
    if len(size) != 2 or channels is None:
        raise InputError("the input's channels are not known: pass image_size as (channels, height, width)")
    return (channels, *size)


def same_precision(x: Tensor, weight: Tensor) -> Tensor:
    """The input in the precision the layer computes in: half precisions are widened to float32."""
    return x.to(torch.promote_types(weight.dtype, torch.float32))


def check_finite(weight: Tensor, name: str) -> None:
    if not torch.isfinite(weight).all():
        raise InputError(f"the {name} has NaN or infinite entries: lower the learning rate or load a good checkpoint")


class Cached:
    """A value computed from one tensor and a key, kept until either changes. It compares the tensor's entries, since
    not every in-place change leaves a trace."""

    def __init__(self) -> None:
        self._key: Any = None
        self._source: Tensor | None = None
        self._value: Any = None

    def get(self, key: Any, source: Tensor, compute: Any) -> Any:
        known = self._source
        if known is None or key != self._key or known.device != source.device or not torch.equal(known, source):
            self._value = compute()
            self._key, self._source = key, source.detach().clone()
        return self._value

    def clear(self) -> None:
        self._key = self._source = self._value = None

    def __deepcopy__(self, memo: Any) -> "Cached":
        return Cached()
