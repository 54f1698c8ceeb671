"""A model trained on digits: its certificates against AutoAttack, and its accuracies in the right order."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet import FrozenModel, freeze
from lotnet.attacks import AttackSettings, Budget, attack_report, auto_attack_l2, check_certificates
from lotnet.certification import Certificates, certify
from lotnet.data import load
from lotnet.models import ImageSpec, LipConvnet


@pytest.fixture(scope="module")
def trained() -> tuple[FrozenModel, Tensor, Tensor, Certificates]:
    """Frozen model, test images, labels, certificates."""
    digits = load("digits")
    images, labels = digits.train.images.float() / 255, digits.train.labels.long()
    torch.manual_seed(0)
    model = LipConvnet(channels=8).build(ImageSpec(1, 8, 8, 10, (0.3,), 0.35))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        batch = torch.randint(len(images), (128,))
        loss = F.cross_entropy(4 * model(images[batch]), labels[batch])  # scaled, as 1-Lipschitz logits are small
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    frozen = freeze(model.eval(), 8)
    images, labels = digits.test.images.double() / 255, digits.test.labels.long()
    return frozen, images, labels, certify(frozen, images, labels)


def auto_attack_successes(
    trained: tuple[FrozenModel, Tensor, Tensor, Certificates], count: int, steps: int, queries: int
) -> int:
    """Attack each image at its certified radius. A point that float32 rounding puts beyond the radius also counts."""
    frozen, images, labels, certificates = trained
    graph = frozen.astype(torch.float64)
    chosen = (certificates.correct() & (certificates.radii["float"] > 0)).nonzero().flatten()[:count]
    assert len(chosen) == count
    x, y, radius = images[chosen], labels[chosen], certificates.radii["float"][chosen]
    points = auto_attack_l2(graph, x, y, radius, steps=steps, queries=queries)
    return int((graph(points.double()).argmax(dim=1) != y).sum())


def test_auto_attack_never_beats_a_certificate(trained: tuple[FrozenModel, Tensor, Tensor, Certificates]) -> None:
    pytest.importorskip("pyautoattack")
    assert auto_attack_successes(trained, 10, steps=6, queries=20) == 0


@pytest.mark.slow
def test_the_full_auto_attack_never_beats_a_certificate(
    trained: tuple[FrozenModel, Tensor, Tensor, Certificates],
) -> None:
    assert auto_attack_successes(trained, 100, steps=100, queries=5000) == 0


def test_attacked_accuracy_lies_between_certified_and_clean(
    trained: tuple[FrozenModel, Tensor, Tensor, Certificates],
) -> None:
    frozen, images, labels, certificates = trained
    settings = AttackSettings(radius=36 / 255, steps=20, budget=Budget(steps=1, tries=1))
    report = attack_report(frozen, images, labels, settings, certificates=certificates)
    assert report.clean > 0.9
    assert 0.5 < report.certified <= report.attacked["pgd_l2"] <= report.clean
    assert report.counterexamples == []


def test_every_certificate_of_a_trained_model_holds(
    trained: tuple[FrozenModel, Tensor, Tensor, Certificates],
) -> None:
    frozen, images, _, _ = trained
    some = images[:50]
    assert check_certificates(frozen, some, certify(frozen, some), Budget(steps=30, tries=20)) == []
