"""Certificates do not depend on the batch, up to their last bits, and large images come in small batches."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lotnet import FrozenModel, LipConvnet, freeze
from lotnet.analysis.tightness import tightness
from lotnet.attacks import AttackSettings, Budget, PGDSettings, attack_report, check_certificates, linf_accuracy
from lotnet.certification import certify
from lotnet.certification.batches import batches, usual_batch
from lotnet.certification.rounding import bounds
from lotnet.errors import InputError
from lotnet.models import ImageSpec
from lotnet.prediction import predict
from lotnet.selftraining.pseudolabels import label


def small_model() -> FrozenModel:
    torch.manual_seed(0)
    return freeze(LipConvnet(depth=5, channels=4).build(ImageSpec(3, 16, 16, classes=5)), 16).astype(torch.float64)


def test_radii_differ_by_far_less_than_the_rounding_error_that_each_subtracts() -> None:
    """So whichever order of summation the batch led to, the radius lies below the real distance."""
    model = small_model()
    images = torch.rand(12, 3, 16, 16, dtype=torch.float64)
    allowed = float(bounds(model).feature_error)
    whole = certify(model, images)
    assert float(whole.radii["float"].min()) > 0
    for batch_size in (1, 2, 5, 7):
        parts = certify(model, images, batch_size=batch_size)
        assert torch.equal(parts.predictions, whole.predictions)
        for claim in ("real", "float"):
            assert float((parts.radii[claim] - whole.radii[claim]).abs().max()) < allowed / 1000


def test_the_usual_batch_is_smaller_for_large_images() -> None:
    shapes = (1, 8, 8), (3, 64, 64), (3, 224, 224), (3, 4096, 4096)
    assert [usual_batch(shape) for shape in shapes] == [250, 250, 20, 1]
    assert usual_batch((3, 224, 224), 400) == 400
    with pytest.raises(InputError, match="at least one image, not 0"):
        usual_batch((3, 8, 8), 0)
    assert list(batches(5, 2)) == [slice(0, 2), slice(2, 4), slice(4, 6)] and list(batches(0, 2)) == []


IMAGES = torch.rand(7, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(7) % 5
ONE_STEP = PGDSettings(steps=1)
QUICK = Budget(steps=1, tries=1)

WORK: dict[str, Callable[[FrozenModel], object]] = {
    "certify": lambda model: certify(model, IMAGES),
    "predict": lambda model: predict(model, IMAGES),
    "linf_accuracy": lambda model: linf_accuracy(model, IMAGES, LABELS, settings=ONE_STEP),
    "check_certificates": lambda model: check_certificates(model, IMAGES, certify(model, IMAGES), QUICK),
    "attack_report": lambda model: attack_report(
        model, IMAGES, certify(model, IMAGES).predictions, AttackSettings(steps=1, budget=QUICK)
    ),
    "tightness": lambda model: tightness(model, IMAGES),
    "pseudo-labels": lambda model: label(model, (255 * IMAGES).to(torch.uint8), 5),
}


@pytest.mark.parametrize("name", WORK)
def test_large_images_come_in_small_batches_everywhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the default batch size, as if images of 16 x 16 pixels were large."""
    monkeypatch.setattr("lotnet.certification.batches._NUMBERS", 3 * 3 * 16 * 16)
    monkeypatch.setattr("lotnet.attacks.report.nearest_examples", lambda *args, **settings: [])
    sizes = set()

    def note(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        sizes.add(len(inputs[0]))

    model = small_model()
    next(iter(model)).register_forward_pre_hook(note)
    WORK[name](model)
    assert sizes and max(sizes) == 3
