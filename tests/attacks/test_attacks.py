"""Attacks find the known answer on linear models, and stay within their radius in exact arithmetic."""

import base64
import json
import math
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lotnet import FrozenModel, MaxMin, Normalize, OrthogonalConv2d, OrthogonalLinear, freeze
from lotnet.attacks import (
    PGD_LINF,
    AttackSettings,
    Budget,
    PGDSettings,
    attack_report,
    auto_attack_l2,
    check_certificates,
    is_within,
    linf_accuracy,
    nearest_boundary,
    nearest_examples,
    onto_sphere,
    pgd_l2,
    pgd_linf,
    rounding_search,
    squared_distance,
)
from lotnet.attacks.autoattack import groups_of_distant_images
from lotnet.attacks.check import attack_points
from lotnet.certification import certify
from lotnet.data import UnitImages
from lotnet.data.stored import StoredImages
from lotnet.errors import InputError
from lotnet.losses import margins

WEIGHT = torch.randn(5, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
IMAGES = 0.3 + 0.4 * torch.rand(8, 3, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def linear(x: Tensor) -> Tensor:
    return x.flatten(1) @ WEIGHT.to(x.dtype).T


def two_classes(x: Tensor) -> Tensor:
    return linear(x)[:, :2]


LABELS = linear(IMAGES).argmax(dim=1)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def tight_model(padding: str = "circular") -> FrozenModel:
    """Linear and norm-preserving: a radius is the distance."""
    torch.manual_seed(0)
    layer = OrthogonalConv2d(2, 2, 3, padding_mode=padding)  # type: ignore[arg-type]
    nn.init.normal_(layer.weight)
    return freeze(nn.Sequential(Normalize([0.5, 0.5], 0.25), layer, nn.Flatten(), OrthogonalLinear(32, 2)), 4)


def pixels(count: int = 20, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(count, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=dtype)


# ---- PGD


def test_l2_pgd_finds_the_best_point_of_a_linear_model() -> None:
    """The margin of two classes falls by radius times ||w_c - w_j||. Sign steps or l-infinity clamps would miss it."""
    labels = two_classes(IMAGES).argmax(dim=1)
    radius = torch.linspace(0.01, 0.2, 8, dtype=torch.float64)
    points = pgd_l2(two_classes, IMAGES, labels, radius, PGDSettings(steps=40), generator=seeded())
    assert torch.allclose((points - IMAGES).flatten(1).norm(dim=1), radius, rtol=1e-9)
    fall = margins(two_classes(IMAGES), labels) - margins(two_classes(points), labels)
    assert torch.allclose(fall, radius * (WEIGHT[0] - WEIGHT[1]).norm(), rtol=3e-3)


def test_linf_pgd_finds_the_best_point_of_a_linear_model() -> None:
    labels = two_classes(IMAGES).argmax(dim=1)
    points = pgd_linf(two_classes, IMAGES, labels, 8 / 255, generator=seeded())
    assert (points - IMAGES).abs().max() <= 8 / 255 * (1 + 1e-12)
    fall = margins(two_classes(IMAGES), labels) - margins(two_classes(points), labels)
    assert torch.allclose(fall, 8 / 255 * (WEIGHT[0] - WEIGHT[1]).abs().sum().expand(8), rtol=1e-9)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_points_stay_in_the_ball_and_if_asked_in_the_unit_cube(dtype: torch.dtype) -> None:
    images = torch.rand(8, 3, 2, 2).to(dtype)
    labels = linear(images).argmax(dim=1)
    for step_size in (0.01, 0.5, 10.0):
        free = pgd_l2(linear, images, labels, 0.7, PGDSettings(steps=5, restarts=2, step_size=step_size))
        assert (free - images).flatten(1).norm(dim=1).max() <= 0.7 * (1 + 1e-6)
        kept = pgd_l2(linear, images, labels, 0.7, PGDSettings(steps=5, step_size=step_size, clip=True))
        assert kept.min() >= 0 and kept.max() <= 1
    assert free.min() < 0 or free.max() > 1
    inside = pgd_linf(linear, images, labels, 0.9, replace(PGD_LINF, steps=3))
    assert inside.min() >= 0 and inside.max() <= 1


def test_the_result_is_never_worse_than_the_image_and_is_reproducible() -> None:
    first, second = (pgd_l2(linear, IMAGES, LABELS, 1e-3, PGDSettings(steps=3), generator=seeded()) for _ in range(2))
    assert torch.equal(first, second)
    assert (margins(linear(first), LABELS) <= margins(linear(IMAGES), LABELS)).all()
    assert torch.equal(pgd_l2(linear, IMAGES, LABELS, 0.1, PGDSettings(restarts=0)), IMAGES)


def test_a_flat_model_gives_no_direction_and_no_nan() -> None:
    def flat(x: Tensor) -> Tensor:
        return (0 * x).flatten(1)[:, :3] + torch.tensor([1.0, 0.0, -1.0])

    labels = torch.zeros(8, dtype=torch.long)
    assert pgd_l2(flat, IMAGES, labels, 0.1, PGDSettings(steps=3)).isfinite().all()
    assert (nearest_boundary(flat, IMAGES, labels) == 0).all()


def test_the_nearest_boundary_need_not_be_the_runner_up() -> None:
    weight = torch.tensor([[1.0, 0, 0, 0], [0.99, 0, 0, 0], [-9.0, 0, 0, 0]], dtype=torch.float64)
    image = torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64)

    def model(x: Tensor) -> Tensor:
        return x.flatten(1) @ weight.T + torch.tensor([0, 0, 4.9], dtype=torch.float64)

    direction = nearest_boundary(model, image, torch.tensor([0]))
    assert direction.flatten().tolist() == [-1, 0, 0, 0]
    assert model(image + 0.02 * direction).argmax() == 2


# ---- exact distances and the rounding search

numbers = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=6)


@given(numbers)
def test_distances_are_exact(pairs: list[tuple[float, float]]) -> None:
    x, y = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    assert squared_distance(x, y) == sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
    assert squared_distance(x.float(), x.float()) == 0


def test_is_within_is_exact_beyond_float64() -> None:
    x = torch.tensor([0.0, 0.0], dtype=torch.float64)
    assert is_within(x, torch.tensor([0.6, 0.8], dtype=torch.float64), 1.0) == (
        Fraction(0.6) ** 2 + Fraction(0.8) ** 2 <= 1
    )
    y = torch.tensor([1.0, 1e-9], dtype=torch.float64)  # its norm is 1 + 5e-19, which rounds to one
    assert float(y.norm()) == 1.0 and not is_within(x, y, 1.0)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_onto_the_sphere_is_within_and_close_to_it(dtype: torch.dtype) -> None:
    images = IMAGES.to(dtype)
    direction = torch.randn(images.shape, generator=seeded()).to(dtype)
    eps = torch.finfo(dtype).eps
    for size in (1e-3, 0.1, 3.0):
        radius = torch.full((8,), size, dtype=torch.float64)
        points = onto_sphere(images, direction, radius)
        for image, point in zip(images, points, strict=True):
            assert is_within(image, point, size)
            assert math.sqrt(squared_distance(image, point)) >= size * (1 - 64 * eps) - 8 * eps
    assert torch.equal(onto_sphere(images, direction, torch.full((8,), 1e-30)), images)


def test_the_rounding_search_stays_within_the_radius_and_never_increases_the_margin() -> None:
    radius = torch.full((8,), 0.05, dtype=torch.float64)
    start = onto_sphere(IMAGES, nearest_boundary(linear, IMAGES, LABELS), radius)
    found = rounding_search(linear, IMAGES, LABELS, radius, tries=20, generator=seeded())
    assert (margins(linear(found), LABELS) <= margins(linear(start), LABELS)).all()
    assert all(is_within(x, y, 0.05) for x, y in zip(IMAGES, found, strict=True))


def test_the_rounding_search_breaks_float32_certificates() -> None:
    """The standard certificate margin / (sqrt 2 L), computed in float32, for a model that attains its Lipschitz bound.

    Most broken radii are wrong only in their last digits, so only an attack that exploits rounding breaks them.
    """
    model = tight_model()
    images = pixels(60, torch.float32)
    logits = model(images)
    labels = logits.argmax(dim=1)
    rows = list(model)[-1].weight
    radius = margins(logits, labels) / ((rows[0] - rows[1]).norm() / next(iter(model)).std.min())
    found = rounding_search(model, images, labels, radius, tries=20, generator=seeded())
    broken = model(found).argmax(dim=1) != labels
    assert broken.any()
    for n in broken.nonzero().flatten().tolist():
        assert is_within(images[n], found[n], float(radius[n]))


# ---- attacks on certificates


def test_correct_certificates_hold_and_inflated_ones_break() -> None:
    model, images = tight_model(), pixels()
    certificates = certify(model, images)
    assert check_certificates(model, images, certificates, generator=seeded()) == []
    inflated = replace(certificates, radii={claim: 1.0001 * r for claim, r in certificates.radii.items()})
    found = check_certificates(model, images, inflated, Budget(steps=2, tries=1), generator=seeded(), batch_size=7)
    assert {(c.claim, c.index) for c in found} == {(claim, n) for claim in ("float", "real") for n in range(20)}
    graph = model.astype(torch.float64)
    for c in found:
        assert torch.equal(c.image, images[c.index])
        assert squared_distance(c.image, c.perturbed) == c.squared_distance <= Fraction(c.radius) ** 2
        assert c.distance == pytest.approx(c.radius, rel=1e-9)
        assert int(graph(c.image[None]).argmax()) == c.before == int(certificates.predictions[c.index])
        assert int(graph(c.perturbed[None]).argmax()) == c.after != c.before
    saved = json.loads(json.dumps(found[0].to_dict()))
    assert torch.equal(torch.tensor(saved["perturbed"], dtype=torch.float64), found[0].perturbed)
    assert Fraction(saved["squared_distance"]) == found[0].squared_distance
    assert str(found[0]).startswith("image 0: a gradient step changes the prediction from ")


def test_images_without_a_radius_are_not_attacked() -> None:
    model, images = tight_model(), pixels()
    images[0] = math.nan
    certificates = certify(model, images)
    assert check_certificates(model, images, certificates, Budget(steps=1, tries=1)) == []
    nothing = replace(certificates, radii={claim: 0 * r for claim, r in certificates.radii.items()})
    assert check_certificates(model, images, nothing) == []


def deep_model(classes: int = 5) -> FrozenModel:
    torch.manual_seed(1)
    layers = [OrthogonalConv2d(2, 8, 3, stride=2), MaxMin(), OrthogonalConv2d(8, 8, 3), MaxMin()]
    for layer in layers[::2]:
        nn.init.normal_(layer.weight)  # type: ignore[arg-type]
    return freeze(nn.Sequential(Normalize([0.5, 0.5], 0.25), *layers, nn.Flatten(), OrthogonalLinear(32, classes)), 4)


def test_the_report_sets_accuracies_side_by_side() -> None:
    model, images = deep_model(), pixels(30)
    labels = certify(model, images).predictions.clone()
    labels[:5] = (labels[:5] + 1) % 5  # some are misclassified from the start
    images[29] = math.nan  # and one cannot be classified correctly
    stages: list[str] = []
    radius = float(certify(model, images).radii["float"].median())
    settings = AttackSettings(radius=radius, steps=10)
    report = attack_report(model, images, labels, settings, progress=stages.append)
    assert stages == ["certificates", "pgd_l2", "pgd_linf", "certified radii", "nearest examples"]
    assert report.clean == 24 / 30
    assert 0 < report.certified <= report.attacked["pgd_l2"] < report.clean
    assert report.attacked["pgd_linf"] < report.clean
    assert report.counterexamples == [] and report.checked == 29
    repeated = attack_report(model, images, labels, settings)
    assert repeated.to_dict() == report.to_dict()
    assert json.loads(json.dumps(report.to_dict()))["attacked"] == report.attacked


def test_images_in_a_file_are_attacked_alike_and_read_a_batch_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images of a folder may be more than fit in memory. The random starts are the same."""
    levels = torch.randint(0, 256, (60, 2, 4, 4), generator=seeded(), dtype=torch.uint8)
    (tmp_path / "images").write_bytes(levels.numpy().tobytes())
    stored = UnitImages(StoredImages(tmp_path / "images", 0, 60, (2, 4, 4)))
    model, images, counts = deep_model(), UnitImages(levels)[:], []
    labels = certify(model, images).predictions.clone()
    labels[::4] = (labels[::4] + 1) % 5
    settings = AttackSettings(radius=0.05, steps=5, batch_size=7, seed=3, budget=Budget(steps=2, tries=1))
    expected = attack_report(model, images, labels, settings).to_dict()
    accuracy = linf_accuracy(model, images, labels, 0.02, batch_size=7, seed=3)
    read = StoredImages.read
    monkeypatch.setattr(StoredImages, "read", lambda *given: [part := read(*given), counts.append(len(part))][0])
    assert attack_report(model, stored, labels, settings).to_dict() == expected
    assert linf_accuracy(model, stored, labels, 0.02, batch_size=7, seed=3) == accuracy
    assert accuracy.attacked < accuracy.clean == 0.75
    assert max(counts) == 24  # of which the nearest adversarial examples are looked for
    assert sorted(set(counts))[-2] == 7


def test_the_nearest_examples_lie_beyond_their_certificates() -> None:
    model, images = deep_model(), 0.25 + pixels(30) / 2
    certificates = certify(model, images)
    labels = certificates.predictions.clone()
    labels[0] = (labels[0] + 1) % 5
    images[1] = math.nan
    certificates = certify(model, images, labels)
    graph = model.astype(torch.float64)
    found = nearest_examples(graph, images, labels, certificates, count=3, generator=seeded())
    radii = certificates.radii["float"].clone()
    radii[0] = radii[1] = math.nan  # misclassified or not certified: neither is attacked
    order = [n for n in radii.argsort().tolist() if n > 1]
    assert [example.index for example in found] == order[:3] + order[-3:]
    for example in found:
        point = example.perturbed.double()
        assert point.min() >= 0 and point.max() <= 1
        assert int(graph(point[None]).argmax()) == example.after != example.before == labels[example.index]
        assert float((point - images[example.index]).norm()) == pytest.approx(example.distance, rel=1e-12)
        assert example.radius == radii[example.index] < example.distance < 5 * example.radius
        saved = json.loads(json.dumps(example.to_dict()))
        assert np.array_equal(np.frombuffer(base64.b64decode(saved["perturbed"]), "<f4"), point.flatten().numpy())


def test_the_nearest_example_of_a_linear_model_is_at_its_radius() -> None:
    model, images = tight_model(), 0.4 + pixels() / 5
    certificates = certify(model, images, certify(model, images).predictions)
    for example in nearest_examples(model.astype(torch.float64), images, certificates.predictions, certificates):
        if example.radius < 0.1:  # beyond, it would need pixels outside [0, 1]
            assert example.radius < example.distance < 1.1 * example.radius


def test_the_report_survives_a_model_that_is_always_wrong() -> None:
    model, images = deep_model(), pixels(4)
    labels = (certify(model, images).predictions + 1) % 5
    report = attack_report(model, images, labels, AttackSettings(steps=2, budget=Budget(steps=1, tries=1)))
    assert report.clean == report.certified == report.attacked["pgd_l2"] == 0


# ---- AutoAttack


@pytest.mark.parametrize("classes", (2, 3, 5))
def test_auto_attack_succeeds_beyond_the_boundary_and_fails_within(classes: int) -> None:
    """It succeeds just beyond the boundary of a nearly linear model, and cannot succeed at half that distance."""
    pytest.importorskip("pyautoattack")
    model, images = deep_model(classes), 0.25 + pixels(3) / 2
    graph = model.astype(torch.float64)
    certificates = certify(model, images)
    labels, radius = certificates.predictions, certificates.radii["float"]
    state = torch.random.get_rng_state()
    failed = auto_attack_l2(graph, images, labels, radius / 2, steps=5, queries=10)
    assert (graph(failed.double()).argmax(dim=1) == labels).all()
    found = auto_attack_l2(graph, images, labels, 20 * float(radius.max()), steps=10, queries=20)
    assert (graph(found.double()).argmax(dim=1) != labels).all()
    assert found.min() >= 0 and found.max() <= 1
    assert torch.equal(torch.random.get_rng_state(), state)


def test_auto_attack_gives_each_image_its_own_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a linear model it succeeds just beyond each image's boundary, and not just within it."""
    pytest.importorskip("pyautoattack")
    model, images = tight_model(), 0.25 + pixels(6) / 2
    graph = model.astype(torch.float64)
    certificates = certify(model, images)
    labels, radius = certificates.predictions, certificates.radii["float"]
    assert radius.min() < 0.7 * radius.max()
    for factor, falls in ((0.9, False), (1.3, True)):
        limit = factor * radius
        limit[0] = 0
        found = auto_attack_l2(graph, images, labels, limit, steps=10, queries=20)
        distance = (found.double() - images).flatten(1).norm(dim=1)
        assert torch.equal(found[0], images[0].float()) and (distance <= limit + 1e-6).all()
        assert ((graph(found.double()).argmax(dim=1) != labels)[1:] == falls).all()


def test_groups_for_auto_attack_have_distant_images_and_similar_radii() -> None:
    images = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    images[3] = images[1] + 0.01
    radius = torch.tensor([0.2, 0.3, 0.0, 0.25, 0.14, torch.inf])
    groups = [(index.tolist(), largest) for index, largest in groups_of_distant_images(images, radius, 2)]
    assert groups == [([1, 0], pytest.approx(0.3)), ([3, 4], pytest.approx(0.25))]
    radius[4] = 0.12
    groups = [(index.tolist(), largest) for index, largest in groups_of_distant_images(images, radius, 2)]
    assert groups[1:] == [([3], pytest.approx(0.25)), ([4], pytest.approx(0.12))]


def test_certificates_are_attacked_by_auto_attack_at_exactly_their_radius() -> None:
    """A certificate that is a tenth too large falls, and AutoAttack is one of the attacks that show it."""
    pytest.importorskip("pyautoattack")
    model, images = tight_model(), 0.25 + pixels(3) / 2
    certificates = certify(model, images)
    budget = Budget(steps=1, restarts=0, tries=0, auto_attack=True)
    graph, labels = model.astype(torch.float64), certificates.predictions
    for factor, falls in ((1.0, False), (1.1, True)):
        radius = factor * certificates.radii["float"]
        points = dict(attack_points(graph, images, labels, radius, budget, seeded()))["AutoAttack"]
        assert all(is_within(a, b, r) for a, b, r in zip(images, points, radius.tolist(), strict=True))
        assert ((graph(points).argmax(dim=1) != labels) == falls).all()
    assert check_certificates(model, images, certificates, budget, generator=seeded()) == []


def test_auto_attack_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(InputError, match=r"needs the package pyautoattack: install it with `pip install pyautoattack`"):
        auto_attack_l2(linear, IMAGES, LABELS, 0.1)
    stages: list[str] = []
    with pytest.raises(InputError, match="needs the package pyautoattack"):
        settings = AttackSettings(auto_attack=True)
        attack_report(tight_model(), pixels(), torch.zeros(20).long(), settings, progress=stages.append)
    assert stages == []  # before the work, not after it
