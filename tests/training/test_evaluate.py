"""The standard certificate, and the arithmetic that evaluation runs in."""

import math

import pytest
import torch
from lightning_fabric import Fabric

from lotnet.certification.plain import pairwise_constants, pixel_lipschitz, plain_radii
from lotnet.data import Batches, load
from lotnet.layers import Normalize, NormalizedLinear, OrthogonalLinear
from lotnet.losses import margins
from lotnet.models import LipConvnet
from lotnet.runs.data import image_spec
from lotnet.training.evaluate import evaluate
from lotnet.training.precision import arithmetic, evaluating


def test_orthogonal_head_is_margin_over_sqrt_two() -> None:
    logits, labels = torch.randn(50, 7, dtype=torch.float64), torch.randint(7, (50,))
    pairwise = pairwise_constants(OrthogonalLinear(8, 7), 7, logits)
    expected = margins(logits, labels) / (math.sqrt(2) * 4.0)
    torch.testing.assert_close(plain_radii(logits, labels, pairwise, 4.0), expected)


def test_normalised_head_is_a_minimum_over_all_classes() -> None:
    head = NormalizedLinear(6, 100).double()
    logits, labels = head(torch.randn(20, 6, dtype=torch.float64)), torch.randint(100, (20,))
    with torch.no_grad():
        found = plain_radii(logits, labels, pairwise_constants(head, 100, logits), 3.0)
    logits, rows = logits.detach(), (head.weight / head.weight.norm(dim=1, keepdim=True)).detach()
    for n, y in enumerate(labels.tolist()):
        bounds = [(logits[n, y] - logits[n, j]) / ((rows[y] - rows[j]).norm() * 3.0) for j in range(100) if j != y]
        assert float(found[n]) == pytest.approx(float(min(bounds)), rel=1e-9)


def test_equal_rows_give_infinite_radii_unless_logits_tie() -> None:
    pairwise = torch.zeros(2, 2)
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    labels = torch.zeros(3, dtype=torch.int64)
    assert plain_radii(logits, labels, pairwise, 1.0).tolist() == [math.inf, -math.inf, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_never_certified(bad: float) -> None:
    logits = torch.tensor([[bad, 0.0], [0.0, bad], [5.0, 0.0]])
    radii = plain_radii(logits, torch.zeros(3, dtype=torch.int64), math.sqrt(2) * (1 - torch.eye(2)), 1.0)
    assert radii[:2].tolist() == [0.0, 0.0]
    assert radii[2] > 0


def test_pixels() -> None:
    assert pixel_lipschitz(torch.nn.Sequential(Normalize([0.5], 0.25))) == 4.0
    with pytest.raises(TypeError):
        pixel_lipschitz(torch.nn.Sequential(torch.nn.Flatten()))


def test_accuracies_by_hand() -> None:
    dataset = load("digits")
    model = LipConvnet(channels=4).build(image_spec(dataset))
    batches = Batches(dataset.test, 100)
    radii = (0.0, 0.01, 0.02)
    found = evaluate(model, batches, radii, Fabric(accelerator="cpu", devices=1))
    assert model.training
    model.eval()
    images = dataset.test.images / 255
    with torch.no_grad():
        logits = model(images)
    certified = margins(logits, dataset.test.labels) / math.sqrt(2) * dataset.std
    assert found.images == len(dataset.test)
    assert found.clean == pytest.approx((logits.argmax(1) == dataset.test.labels).float().mean().item())
    assert list(found.certified.values()) == pytest.approx([(certified > r).float().mean().item() for r in radii])


def test_tf32_never_reaches_evaluation_and_settings_are_restored() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with arithmetic(tf32=True):
        assert torch.backends.cudnn.allow_tf32
        with torch.autocast("cpu", dtype=torch.bfloat16), evaluating():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
            assert not torch.is_autocast_enabled("cpu")
            assert not torch.is_grad_enabled()
        assert torch.backends.cudnn.allow_tf32
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
