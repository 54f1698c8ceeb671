"""The base class of operators: linear maps of images that can be applied, moved and rebuilt."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from lotnet.errors import InputError


class Operator(ABC):
    """A real linear map from images b i h w to images b o h w.

    Invariants, tested over every form:

    * `apply` is differentiable in the image and in the operator's tensors;
    * `tensors()` holds all of its numbers, real or complex, and `with_tensors` rebuilds the same operator from them;
    * `to` changes the dtype or device of all of them, complex ones to the complex dtype of that precision;
    * it can be frozen: `lotnet.frozen.freezing.freeze_operator` stores any form as its dense matrix, unless the form
      registers something smaller there.
    """

    @abstractmethod
    def apply(self, x: Tensor) -> Tensor: ...

    def arranged(self, x: Tensor) -> Tensor:
        """The same image in the memory order that `apply` reads fastest."""
        return x

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]: ...

    @abstractmethod
    def with_tensors(self, tensors: Sequence[Tensor]) -> Self:
        """The same operator with other tensors, in the order of `tensors()`."""

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The operator on `device`, in the real precision `dtype`."""
        moved = (t.to(device, dtype.to_complex() if t.is_complex() else dtype) for t in self.tensors())
        return self.with_tensors(tuple(moved))

    def adjoint(self, in_channels: int) -> "Operator":
        """The transposed map, from images b o h w to images b i h w; `in_channels` is i."""
        raise InputError(f"no transpose is known of a {type(self).__name__}: use another parametrization")

    def norm_matrices(self) -> Tensor | None:  # f o i, real
        """Matrices whose largest spectral norm bounds the operator's norm; None if the form has none."""
        return None
