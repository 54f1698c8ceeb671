"""Base classes of frozen modules: plain inference on stored tensors, with proved bounds."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from lotnet.errors import InputError
from lotnet.frozen.shapes import Shape as Shape  # other modules import it from here
from lotnet.frozen.shapes import match, solve
from lotnet.linalg.roundoff import Upper
from lotnet.records import Between, WrongType, convert

Size = Annotated[int, Between(1, 4096)]
"""The type of a side, a stride or a window in pixels."""


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

    height: Size
    width: Size

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
    * settings and tensors outside the declared domain are refused, when the module is made and before each proof.

    The domain is declared by three class attributes, and by `sizes` and `check_sizes` where these do not suffice:

        class FrozenDense(FrozenConvolution):
            Spec = ImageSize  # height and width, from 1 to 4096
            TENSORS = {"bias": "o", "matrix": "hwo hwi"}
            INPUT = "i h w"
    """

    Spec: ClassVar[type] = NoSettings
    """A dataclass with the type and range of each setting. Unknown settings are refused."""
    TENSORS: ClassVar[Mapping[str, str]] = {}
    """The shape of each tensor, in letters that `shapes.match` compares."""
    INPUT: ClassVar[str] = "..."
    """The shape of an input, in the same letters."""
    spec: Any

    def __init__(self, precision: torch.dtype, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self._proved: tuple[Any, Upper] | None = None
        self.precision = precision
        self.settings = settings
        with self._refusing():
            if precision not in (torch.float32, torch.float64):
                raise WrongType(f"its precision must be float32 or float64, not {precision}")
            self.spec = convert(self.Spec, settings)
            self._letters = self._solve(tensors)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor.detach().to(precision).contiguous())

    def sizes(self) -> dict[str, int]:
        """Letters of `TENSORS` and `INPUT` that the settings determine."""
        return {name[0]: value for name, value in vars(self.spec).items() if name in ("height", "width")}

    def check(self) -> None:
        """Refuse tensors that are not as declared. Proofs begin with this: buffers may have been replaced."""
        with self._refusing():
            self._letters = self._solve(dict(self.named_buffers(recurse=False)))

    def _solve(self, tensors: Mapping[str, Tensor]) -> dict[str, int]:
        for name, tensor in tensors.items():
            if not tensor.is_floating_point():
                raise WrongType(f"{name} must hold real floating-point numbers, not {tensor.dtype}")
            if tensor.isnan().any():
                raise WrongType(f"{name} must hold numbers, not NaN")
        letters = solve(self.TENSORS, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, self.sizes())
        self.check_sizes(letters)
        return letters

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise `WrongType` if settings and sizes of the tensors do not agree in a way that letters cannot say."""

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn a value outside its domain into an `InputError` that names the module."""
        try:
            yield
        except WrongType as error:
            kind = type(self).__name__
            raise InputError(f"{kind}: {error}; freeze the model again, or correct this module") from None

    def arranged(self, x: Tensor) -> Tensor:
        """The same input in the memory order that `forward` reads fastest."""
        return x

    def lipschitz_bound(self) -> Upper:
        """Proved upper bound of the Lipschitz constant, computed once and cached until a buffer changes."""
        state = self.buffer_state()
        if self._proved is None or self._proved[0] != state:
            self.check()
            self._proved = (state, self._prove_lipschitz())
        return self._proved[1]

    def buffer_state(self) -> tuple[tuple[int, int], ...]:
        """A value that changes when a buffer is replaced or changed in place."""
        # Tensors made in inference mode have no version; they cannot be changed in place outside it either.
        return tuple((b.data_ptr(), 0 if b.is_inference() else b._version) for b in self.buffers())

    def proofs(self) -> dict[str, Upper]:
        """The Lipschitz bounds of this module and of those in it, by their names in `named_modules`."""
        return {name: part.lipschitz_bound() for name, part in self.named_modules() if isinstance(part, FrozenModule)}

    def adopt(self, proofs: Mapping[str, float]) -> None:
        """Take over what `proofs` of a module with the same settings, numbers and precision returned."""
        for name, part in self.named_modules():
            if isinstance(part, FrozenModule) and name in proofs:
                part._proved = (part.buffer_state(), Upper(proofs[name]))

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

    def parts(self) -> list["FrozenModule"]:
        """The modules that this one is made of, in the order of its constructor."""
        return []

    @classmethod
    def part_names(cls, count: int) -> list[str]:
        """Names of `count` parts in the names of tensors."""
        return [f"stages.{n}" for n in range(count)]

    def named_layers(self, prefix: str) -> Iterator[tuple[str, "FrozenModule"]]:
        """The layers that this module is made of, each with its name. A layer is its own only one."""
        yield prefix, self

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape: ...

    def fits(self, shape: Shape) -> bool:
        """Whether the settings and buffers are for inputs of this shape: those that `INPUT` declares.

        Inputs of other shapes may still run: one mean is broadcast over three channels, or a kernel slides over a
        larger image.
        """
        try:
            match(self.INPUT, shape, dict(self._letters), "its input")
        except WrongType:
            return False
        return True


class Exact(FrozenModule):
    """A function that only moves or compares entries: 1-Lipschitz, without rounding."""

    def _prove_lipschitz(self) -> Upper:
        return Upper(1)

    def _local_error(self, norm: Upper) -> Upper:
        return Upper(0)


class FrozenContainer(FrozenModule):
    """A module that is made of others."""

    def __init__(
        self, precision: torch.dtype, settings: dict[str, Any], tensors: dict[str, Tensor], *stages: FrozenModule
    ) -> None:
        super().__init__(precision, settings, tensors)
        self.stages = nn.ModuleList(stages)

    def __iter__(self) -> Any:
        return iter(self.stages)

    def parts(self) -> list[FrozenModule]:
        return list(self)


class FrozenSequential(FrozenContainer):
    """Modules applied in sequence: Lipschitz constants multiply, and errors propagate."""

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

    def named_layers(self, prefix: str) -> Iterator[tuple[str, FrozenModule]]:
        for n, stage in enumerate(self):
            yield from stage.named_layers(f"{prefix}.{n}")

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
