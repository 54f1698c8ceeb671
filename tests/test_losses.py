"""Losses against their formulas, written out image by image."""

import math

import pytest
import torch
from torch import Tensor

from lotnet.losses import EMMA, LOSSES, AnnealedEMMA, CReg, CrossEntropy, LogitAnnealing, OffsetCrossEntropy, margins

L = 1 / 0.2507
SQRT2 = math.sqrt(2)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(16, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (16,), generator=generator)
    labels[:8] = logits[:8].argmax(dim=1)  # these eight are classified correctly
    return logits, labels, SQRT2 * (1 - torch.eye(5, dtype=torch.float64))


def entropy(row: list[float], label: int) -> float:
    top = max(row)
    return math.log(sum(math.exp(z - top) for z in row)) + top - row[label]


def margin(row: list[float], label: int) -> float:
    return row[label] - max(z for j, z in enumerate(row) if j != label)


def by_hand(formula, logits: Tensor, labels: Tensor) -> float:
    values = [formula(row, label) for row, label in zip(logits.tolist(), labels.tolist(), strict=True)]
    return sum(values) / len(values)


def creg(scale: float):
    return lambda row, y: entropy(row, y) - 0.7 * max(margin(row, y), 0) / SQRT2 / scale


def offset(row: list[float], y: int) -> float:
    xi, t = 0.5 * L, 0.2 * L
    return t * entropy([(z - xi * (j == y)) / t for j, z in enumerate(row)], y)


def annealed(row: list[float], y: int, xi: float, t: float) -> float:
    value = entropy([(z - xi * (j == y)) / t for j, z in enumerate(row)], y)
    return t * (1 - math.exp(-value)) ** 5 * value


def raised(row: list[float], y: int) -> list[float]:
    reach = 0.3 * 0.5 * L * SQRT2  # a quarter of the way: half of the radius
    return [z if j == y else z + min(max((row[y] - z) / reach, 0.01), 1) * reach for j, z in enumerate(row)]


def annealing(row: list[float], y: int) -> float:
    return annealed(row, y, 0.5 * L, 0.2 * L)


def emma(row: list[float], y: int) -> float:
    return 0.2 * L * entropy([z / (0.2 * L) for z in raised(row, y)], y)


def annealed_emma(row: list[float], y: int) -> float:
    return annealed(raised(row, y), y, 0.5 * L, 0.2 * L)


@pytest.mark.parametrize(
    ("loss", "formula"),
    [
        (CrossEntropy(), entropy),
        (CReg(gamma=0.7), creg(L)),
        (CReg(gamma=0.7, on="margin"), creg(1.0)),
        (OffsetCrossEntropy(offset=0.5, temperature=0.2), offset),
        (LogitAnnealing(offset=0.5, temperature=0.2), annealing),
        (EMMA(radius=0.3, temperature=0.2), emma),
        (AnnealedEMMA(radius=0.3, offset=0.5, temperature=0.2), annealed_emma),
    ],
    ids=lambda value: type(value).__name__,
)
def test_loss_equals_its_formula(batch, loss, formula) -> None:
    logits, labels, pairwise = batch
    value = loss(logits, labels, lipschitz=L, pairwise=pairwise, progress=0.25)
    assert float(value) == pytest.approx(by_hand(formula, logits, labels), rel=1e-12)


def test_annealing_has_the_published_settings_in_pixels() -> None:
    """In logits of LipConvnets, whose inputs are divided by 0.2507: xi = 2 sqrt 2, T = 0.75. In those of BRONet, whose
    first layer has norm 59: xi = 2, T = 0.75."""
    loss, bronet = LogitAnnealing(), AnnealedEMMA()
    assert (loss.offset * L, loss.temperature * L) == pytest.approx((2 * SQRT2, 0.75), rel=2e-3)
    assert (bronet.offset * 59, bronet.temperature * 59) == pytest.approx((2, 0.75), rel=5e-3)
    assert loss.beta == bronet.beta == 5


def test_margins_by_hand(batch) -> None:
    logits, labels, _ = batch
    expected = [margin(row, y) for row, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    torch.testing.assert_close(margins(logits, labels), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite_and_point_to_the_label(batch, name: str) -> None:
    logits, labels, pairwise = batch
    logits = logits.requires_grad_()
    LOSSES[name]()(logits, labels, lipschitz=L, pairwise=pairwise, progress=1.0).backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad.gather(1, labels[:, None]) <= 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_reads_tensor_values(name: str) -> None:
    """A CUDA graph cannot record a loss that does. Tensors on the `meta` device have no values."""
    logits, pairwise, progress = (torch.empty(shape, device="meta") for shape in ((4, 10), (10, 10), ()))
    labels = torch.empty(4, dtype=torch.long, device="meta")
    value = LOSSES[name]()(logits, labels, lipschitz=L, pairwise=pairwise, progress=progress)
    assert value.shape == () and value.dtype == torch.float32
