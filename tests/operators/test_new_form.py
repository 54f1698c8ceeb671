"""A new operator form and a new parametrization, defined here: both keep every contract with no edit in lotnet."""

import importlib.util
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import operator_contract as contract
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lotnet import FrozenModel, OrthogonalConv2d, freeze
from lotnet.frozen.convolution import FrozenDense
from lotnet.operators import Operator
from lotnet.parametrizations import PARAMETRIZATIONS, Geometry, Parametrization


@dataclass(frozen=True, eq=False)
class Reflection(Operator):
    """Reflect every pixel's channels along `vector`, then turn the image's spectrum by `phase`.

    Two tensors, one real and one complex. With phases of modulus one it is orthogonal.
    """

    vector: Tensor  # c
    phase: Tensor  # c, complex: the multiplier of channel n at all frequencies is its real part
    out_channels: int

    def apply(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, 0, 0, 0, 0, len(self.vector) - x.shape[1]))
        along = torch.einsum("c,bchw->bhw", self.vector, x)
        reflected = x - 2 * self.vector[:, None, None] * along[:, None]
        return (self.phase.real[:, None, None] * reflected)[:, : self.out_channels]

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.vector, self.phase)

    def with_tensors(self, tensors: Sequence[Tensor]) -> "Reflection":
        return replace(self, vector=tensors[0], phase=tensors[1])


@dataclass(frozen=True)
class Reflected(Parametrization):
    """The first two slices of the kernel give the vector and the phases."""

    orthogonal = False

    def weight_shape(self, out_channels: int, in_channels: int, kernel_size: int) -> tuple[int, ...]:
        return (max(out_channels, in_channels), 2, kernel_size, kernel_size)

    def initial_weight(self, out_channels: int, in_channels: int, kernel_size: int) -> Tensor:
        return torch.randn(self.weight_shape(out_channels, in_channels, kernel_size))

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        first, second = weight[:, 0, 0, 0], weight[:, 1, 0, 0]
        largest = first.detach().abs().amax()
        first = first / torch.where(largest > 0, largest, 1)
        norm = first.square().sum()
        vector = first / torch.where(norm > 0, norm, 1).sqrt()
        phase = torch.complex(torch.cos(second), torch.sin(second))
        return Reflection(vector, phase, geometry.out_channels)


SHAPE = (2, 6, 4)


def reflection() -> Operator:
    torch.manual_seed(0)
    return Reflected().operator(torch.randn(3, 2, 1, 1, dtype=torch.float64), Geometry(3, 2, 1, 6, 4))


@pytest.mark.parametrize(
    "check", (contract.check_apply, contract.check_rebuilt, contract.check_cast, contract.check_frozen)
)
def test_the_form_keeps_the_contract_of_operators(check) -> None:
    check(reflection(), SHAPE)


def test_gradients_in_a_block_of_orthogonalized() -> None:
    contract.check_orthogonalized(Reflected())


def parametrization_contract(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).parents[1] / "parametrizations" / "test_parametrizations.py"
    spec = importlib.util.spec_from_file_location("parametrization_contract", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_the_parametrization_keeps_its_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARAMETRIZATIONS, "reflected", Reflected)
    suite = parametrization_contract(monkeypatch)
    for shape in suite.SHAPES:
        for k, stride, mode in itertools.product((1, 3), (1, 2), ("zeros", "circular")):
            suite.check_singular_values("reflected", shape, k, stride, mode)
        for hard in suite.HARD_WEIGHTS:
            suite.test_float32_training_stays_finite_and_bounded_for_every_weight("reflected", shape, hard)
        suite.test_gradients_match_finite_differences("reflected", shape)
    suite.test_an_operator_is_a_function_of_its_weight("reflected")
    suite.test_training_and_frozen_operators_agree("reflected")


def test_a_model_with_it_is_frozen_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(OrthogonalConv2d(2, 3, 1, parametrization=Reflected())).eval()
    frozen = freeze(model, (2, 4, 4))
    (stage,) = frozen
    assert isinstance(stage, FrozenDense), "what lotnet does not know is stored as its dense matrix"
    assert 1 <= float(frozen.lipschitz_bound()) < 1 + 1e-4
    frozen.save(tmp_path)
    x = torch.rand(3, 2, 4, 4)
    assert torch.equal(FrozenModel.load(tmp_path)(x), frozen(x))
    assert torch.allclose(frozen(x), model(x), atol=1e-5)
