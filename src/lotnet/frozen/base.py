"""Base classes of frozen modules: plain inference on stored tensors, with proved bounds."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lotnet.linalg.roundoff import Upper, rounding_error

Shape = tuple[int, ...]  # of one image or feature vector, without the batch


def largest_error(dtype: torch.dtype) -> float:
    """Limit from which on an error bound is replaced by infinity, because an intermediate value may have overflowed.

    A bound is at least the unit round-off times the size of the values that a layer computes. So below this limit all
    its sums, even those that are divided afterwards, are below the largest finite number by a factor of thousands.
    """
    return torch.finfo(dtype).max * torch.finfo(dtype).eps * 2.0**-16


@dataclass(frozen=True)
class NoSettings:
    """Settings of modules that need none besides their tensors."""


@dataclass(frozen=True)
class ImageSize:
    """The size of the images that a module works on."""

    height: int
    width: int

    @property
    def pixels(self) -> int:
        return self.height * self.width


class FrozenModule(nn.Module, ABC):
    """A function of stored tensors (buffers only) and settings that JSON can hold.

    Invariants:

    * `lipschitz_bound()` is *proved*: at least the Lipschitz constant, in l2 and real arithmetic, of the function
      that exactly these stored tensors define;
    * `rounding_bound(error_in, norm_in)` bounds `||fl(f)(x~) - f(x)||` whenever `||x~ - x|| <= error_in` and
      `||x|| <= norm_in`: f is the real function, fl(f) the program `forward` in this precision, any order of summation;
    * `output_norm(norm_in)` bounds `||f(x)||` for `||x|| <= norm_in`;
    * all of these hold only for inputs of a shape that `fits`;
    * the module is rebuilt exactly from `settings` and its buffers: `type(m)(m.precision, m.settings, buffers)`;
    * `spec` is `settings` as a typed record: missing and unknown settings are refused.
    """

    Spec: ClassVar[type] = NoSettings
    """The dataclass that `settings` are passed to."""
    spec: Any

    def __init__(self, precision: torch.dtype, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.precision = precision
        self.settings = settings
        self.spec = self.Spec(**settings)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.detach().to(precision).contiguous())
        self._proved: tuple[Any, Upper] | None = None

    def lipschitz_bound(self) -> Upper:
        """Proved upper bound of the Lipschitz constant, computed once and cached until a buffer changes."""
        # Tensors made in inference mode have no version; they cannot be changed in place outside it either.
        state = tuple((b.data_ptr(), 0 if b.is_inference() else b._version) for b in self.buffers())
        if self._proved is None or self._proved[0] != state:
            self._proved = (state, self._prove_lipschitz())
        return self._proved[1]

    def rounding_bound(self, error_in: float, norm_in: float) -> Upper:
        error = self.lipschitz_bound() * error_in + self._local_error(Upper(norm_in) + error_in)
        return error if error < largest_error(self.precision) else Upper(math.inf)

    @abstractmethod
    def _prove_lipschitz(self) -> Upper: ...

    @abstractmethod
    def _local_error(self, norm: Upper) -> Upper:
        """Bound of `||fl(f)(x) - f(x)||` for a tensor that the program really reads, `||x|| <= norm`."""

    def output_norm(self, norm_in: float) -> Upper:
        """Bound of `||f(x)||` for `||x|| <= norm_in`. This default needs f(0) = 0; other modules override it."""
        return self.lipschitz_bound() * norm_in

    def orthogonality_error(self) -> float | None:
        """How far the layer's matrices are from orthonormal; None if the layer does not report it. Not proved."""
        return None

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape: ...

    @abstractmethod
    def fits(self, shape: Shape) -> bool:
        """Whether the settings and buffers are for inputs of this shape.

        Inputs of other shapes may still run: one mean is broadcast over three channels, or a kernel slides over a
        larger image.
        """


class Exact(FrozenModule):
    """A function that only moves or compares entries: 1-Lipschitz, without rounding."""

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        return Upper(0)


class FrozenSequential(FrozenModule):
    """Modules applied in sequence: Lipschitz constants multiply, and errors propagate."""

    def __init__(
        self,
        precision: torch.dtype,
        settings: dict[str, Any],
        tensors: dict[str, Tensor],
        *stages: FrozenModule,
    ) -> None:
        super().__init__(precision, settings, tensors)
        self.stages = nn.ModuleList(stages)

    def __iter__(self) -> Any:
        return iter(self.stages)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return x

    def _prove_lipschitz(self) -> Upper:
        bound = Upper(1)
        for stage in self:
            bound = bound * stage.lipschitz_bound()
        return bound

    def rounding_bound(self, error_in: float, norm_in: float) -> Upper:
        error, norm = Upper(error_in), Upper(norm_in)
        for stage in self:
            error, norm = stage.rounding_bound(error, norm), stage.output_norm(norm)
        return error

    def _local_error(self, norm: Upper) -> Upper:
        return self.rounding_bound(0.0, norm)

    def output_norm(self, norm_in: float) -> Upper:
        norm = Upper(norm_in)
        for stage in self:
            norm = stage.output_norm(norm)
        return norm

    def output_shape(self, shape: Shape) -> Shape:
        for stage in self:
            shape = stage.output_shape(shape)
        return shape

    def fits(self, shape: Shape) -> bool:
        for stage in self:
            if not stage.fits(shape):
                return False
            shape = stage.output_shape(shape)
        return True


class FrozenResidual(FrozenModule):
    """`a g(x) + b f(x)`, g the shortcut: Lipschitz with constant `|a| L_g + |b| L_f`; `weights` holds a and b."""

    weights: Tensor

    def __init__(
        self,
        precision: torch.dtype,
        settings: dict[str, Any],
        tensors: dict[str, Tensor],
        shortcut: FrozenModule,
        block: FrozenModule,
    ) -> None:
        super().__init__(precision, settings, tensors)
        self.shortcut = shortcut
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.weights[0] * self.shortcut(x) + self.weights[1] * self.block(x)

    def _prove_lipschitz(self) -> Upper:
        return self._mix(self.shortcut.lipschitz_bound(), self.block.lipschitz_bound())

    def _local_error(self, norm: Upper) -> Upper:
        error = self._mix(self.shortcut.rounding_bound(0.0, norm), self.block.rounding_bound(0.0, norm))
        return error + rounding_error(2, self.output_norm(norm) + error, self.precision)

    def output_norm(self, norm_in: float) -> Upper:
        return self._mix(self.shortcut.output_norm(norm_in), self.block.output_norm(norm_in))

    def _mix(self, direct: Upper, through: Upper) -> Upper:
        a, b = (abs(float(w)) for w in self.weights)
        return direct * a + through * b

    def output_shape(self, shape: Shape) -> Shape:
        return self.block.output_shape(shape)

    def fits(self, shape: Shape) -> bool:
        alike = self.shortcut.fits(shape) and self.block.fits(shape)
        return alike and self.shortcut.output_shape(shape) == self.block.output_shape(shape)
