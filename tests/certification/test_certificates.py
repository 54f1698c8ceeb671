"""Invariants of certificates, and the inputs that `certify` refuses."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lotnet import (
    AveragePool,
    Centering,
    Concatenation,
    FrozenModel,
    MaxMin,
    Normalize,
    NormalizedLinear,
    OrthogonalConv2d,
    OrthogonalLinear,
    freeze,
)
from lotnet.certification import Certificates, audit, certify
from lotnet.data import UnitImages
from lotnet.errors import InputError
from lotnet.frozen.convolution import kernel_norm
from lotnet.frozen.model import assemble
from lotnet.frozen.pointwise import FrozenAveragePool, FrozenFlatten, FrozenLinear, FrozenNormalize, FrozenShift
from lotnet.operators import Kernel
from lotnet.parametrizations import PARAMETRIZATIONS, SOC
from lotnet.parametrizations.base import PaddingMode

MEAN, STD = (0.4, 0.5, 0.6), 0.25


def network(
    parametrization: str = "lot", padding: PaddingMode = "circular", head: nn.Module | None = None
) -> nn.Sequential:
    """Two orthogonal convolutions on images of 3 x 6 x 6, with random weights."""
    torch.manual_seed(0)
    model = nn.Sequential(
        Normalize(MEAN, STD),
        OrthogonalConv2d(3, 4, 3, padding_mode=padding, parametrization=parametrization),
        MaxMin(),
        OrthogonalConv2d(4, 16, 3, stride=2, padding_mode=padding, parametrization=parametrization),
        MaxMin(),
        nn.Flatten(),
        OrthogonalLinear(144, 10) if head is None else head,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
            if parameter.ndim == 1:
                parameter.mul_(0.1)
    return model


def images(count: int = 40) -> Tensor:
    return torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def frozen() -> FrozenModel:
    return freeze(network(), 6)


@pytest.fixture(scope="module")
def certificates(frozen: FrozenModel) -> Certificates:
    return certify(frozen, images(), torch.arange(40) % 10)


# ---- radii


@pytest.mark.parametrize("head", ("orthogonal", "lln"))
@pytest.mark.parametrize("padding", ("zeros", "circular"))
@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_claims_are_ordered(name: str, padding: PaddingMode, head: str) -> None:
    """Claim B <= claim A, and A equals the standard certificate within 1e-5: the proof loses almost nothing. Both
    include the truncation of SOC and the padding of ECO. RKO's proved norm is below one, so its claim A gains."""
    last = NormalizedLinear(144, 10) if head == "lln" else None
    radii = certify(freeze(network(name, padding, last), 6), images()).radii
    assert (radii["float"] > 0).all()
    assert (radii["float"] <= radii["real"]).all()
    assert (radii["float"] >= radii["real"] * (1 - 1e-6)).all()
    assert (radii["real"] >= radii["plain"] * (1 - 1e-5)).all()
    assert name == "rko" or (radii["real"] <= radii["plain"] * (1 + 1e-5)).all()


def test_plain_is_the_standard_certificate(frozen: FrozenModel, certificates: Certificates) -> None:
    logits = frozen.astype(torch.float64)(images().double())
    best = logits.topk(2, dim=1).values
    assert torch.allclose(certificates.radii["plain"], (best[:, 0] - best[:, 1]) / math.sqrt(2) * STD, rtol=1e-5)
    assert torch.allclose(certificates.margins, best[:, 0] - best[:, 1])
    assert torch.equal(certificates.predictions, logits.argmax(dim=1))


def test_an_lln_certificate_is_the_minimum_over_all_of_a_hundred_classes() -> None:
    """Nine runners-up are not enough: twelve weight rows are so similar that the nearest boundary is another class's.

    LLN is last-layer normalisation.
    """
    head = NormalizedLinear(144, 100)
    model = network(head=head)
    with torch.no_grad():
        head.weight[:12] = head.weight[0] + 0.05 * torch.randn(12, 144)
        assert head.bias is not None
        head.bias[:12] = 5 - 0.3 * torch.arange(12)
    frozen = freeze(model, 6)
    found = certify(frozen, images())
    graph = frozen.astype(torch.float64)
    logits, weight = graph(images().double()), list(graph)[-1].weight
    lipschitz = 1 / float(graph.stages[0].std[0])
    beyond_nine = 0
    for n, row in enumerate(logits):
        c = int(row.argmax())
        every = {
            j: float(row[c] - row[j]) / (float((weight[c] - weight[j]).norm()) * lipschitz)
            for j in range(100)
            if j != c
        }
        nearest = min(every, key=every.__getitem__)
        beyond_nine += nearest not in row.topk(9).indices.tolist()
        assert float(found.radii["plain"][n]) == pytest.approx(every[nearest], rel=1e-12)
        assert float(found.radii["float"][n]) == pytest.approx(every[nearest], rel=1e-5)
        assert float(found.radii["float"][n]) <= float(found.radii["real"][n])
    assert beyond_nine >= 5


def test_the_smallest_std_sets_the_lipschitz_bound() -> None:
    model = nn.Sequential(Normalize(MEAN, (0.5, 0.1, 1.0)), nn.Flatten(), OrthogonalLinear(108, 3))
    assert certify(freeze(model, 6), images()).lipschitz_bound == pytest.approx(10, rel=1e-6)


def test_the_bound_of_a_short_series_exceeds_one() -> None:
    model = network()
    model[1] = OrthogonalConv2d(3, 4, 3, parametrization=SOC(frozen_terms=2))
    assert certify(freeze(model, 6), images()).lipschitz_bound > 1.01 / STD


def test_classes_with_equal_rows_have_no_boundary() -> None:
    """Their logits differ by the bias alone, so no perturbation closes the gap. The radius ends at `max_radius`."""
    head = NormalizedLinear(108, 2)
    with torch.no_grad():
        head.weight[1] = head.weight[0]
        assert head.bias is not None
        head.bias.copy_(torch.tensor([1.0, 0.0]))
    found = certify(freeze(nn.Sequential(Normalize(MEAN, STD), nn.Flatten(), head), 6), images())
    assert (found.radii["float"] == math.nextafter(math.sqrt(108), math.inf)).all()
    with torch.no_grad():
        head.bias.zero_()
    found = certify(freeze(nn.Sequential(Normalize(MEAN, STD), nn.Flatten(), head), 6), images())
    assert (found.radii["float"] == 0).all() and (found.radii["real"] == 0).all()


@pytest.mark.parametrize("offset", (1e9, 1e16, 1e30))
def test_logits_too_coarse_to_tell_apart_are_not_certified(offset: float) -> None:
    model = network()
    with torch.no_grad():
        model[-1].bias.add_(offset)
    radii = certify(freeze(model, 6), images()).radii
    limit = 1e-14 * offset * 145  # below this the rounding of the last layer decides
    assert (radii["float"][radii["plain"] < limit] == 0).all()
    assert not radii["float"].isnan().any()


def test_weights_that_overflow_give_radius_zero() -> None:
    head = nn.Sequential(OrthogonalLinear(144, 144), OrthogonalLinear(144, 10))
    model = network(head=head).double()
    with torch.no_grad():
        head[0].bias.fill_(1e308)
    found = certify(freeze(model, 6, torch.float64), images())
    assert (found.radii["float"] == 0).all() and (found.radii["real"] == 0).all()


def test_batches_do_not_matter_beyond_rounding(frozen: FrozenModel, certificates: Certificates) -> None:
    done: list[int] = []
    again = certify(frozen, images(), batch_size=7, progress=done.append)
    assert sum(done) == 40
    assert torch.allclose(again.radii["float"], certificates.radii["float"], rtol=1e-9)


def test_saved_and_loaded_gives_the_same_bits(frozen: FrozenModel, certificates: Certificates, tmp_path: Path) -> None:
    frozen.save(tmp_path)
    again = certify(FrozenModel.load(tmp_path), images())
    for claim, radii in certificates.radii.items():
        assert torch.equal(radii, again.radii[claim])
    assert again.lipschitz_bound == certificates.lipschitz_bound


def test_records_and_accuracies(certificates: Certificates) -> None:
    rows = list(certificates)
    assert len(rows) == len(certificates) == 40
    right = [row for row in rows if row.prediction == row.label]
    assert certificates.accuracy() == len(right) / 40
    radius = sorted(row.radius_float for row in rows)[20]
    assert certificates.accuracy(radius) == sum(row.radius_float > radius for row in right) / 40
    assert certificates.accuracy(radius, "real") >= certificates.accuracy(radius)
    with pytest.raises(InputError, match="accuracies need labels: pass them to certify"):
        certify(freeze(network(), 6), images(2)).accuracy()


def test_the_audit_has_one_row_for_each_layer(frozen: FrozenModel, certificates: Certificates) -> None:
    rows = list(audit(frozen))
    assert [row.kind for row in rows[:3]] == ["Normalize", "Spectrum", "MaxMin"]
    product = math.prod(row.lipschitz_bound for row in rows[:-1])
    assert certificates.lipschitz_bound == pytest.approx(product, rel=1e-12)
    errors = [row.orthogonality_error for row in rows if row.kind == "Spectrum"]
    assert errors and all(error is not None and error < 1e-5 for error in errors)
    with pytest.raises(InputError, match="freeze it first"):
        next(audit(network()))  # type: ignore[arg-type]


def test_the_audit_names_the_layers_inside_branches() -> None:
    branches = Concatenation(OrthogonalConv2d(2, 3, 3), nn.Sequential(MaxMin(), OrthogonalConv2d(2, 2, 3)), MaxMin())
    model = freeze(nn.Sequential(branches, nn.Flatten(), OrthogonalLinear(7 * 36, 2)), (2, 6, 6))
    rows = [(row.name, row.kind) for row in audit(model)]
    assert rows == [
        ("model.0.branches.0.0", "Spectrum"),
        ("model.0.branches.1.0", "MaxMin"),
        ("model.0.branches.1.1", "Spectrum"),
        ("model.0.branches.2.0", "MaxMin"),
        ("model.1", "Flatten"),
        ("model.2", "Linear"),
    ]


def test_images_that_are_read_later_have_the_same_certificates(frozen: FrozenModel) -> None:
    levels = torch.randint(0, 256, (20, 3, 6, 6), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    labels = torch.arange(20) % 10
    done, expected = [], certify(frozen, UnitImages(levels)[:], labels, batch_size=8)
    found = certify(frozen, UnitImages(levels), labels, batch_size=8, progress=done.append)
    assert done == [8, 8, 4]
    assert list(found) == list(expected) and found.logits is None

    class Levels(UnitImages):
        """Forgets to divide by 255."""

        def __getitem__(self, index: Tensor | slice, /) -> Tensor:
            return 255 * super().__getitem__(index)

    with pytest.raises(InputError, match="pixels lie in"):
        certify(frozen, Levels(levels))
    with pytest.raises(InputError, match="labels must be 20 whole numbers"):
        certify(frozen, UnitImages(levels), labels[:5])


def test_logits_are_kept_if_asked_for(frozen: FrozenModel) -> None:
    found = certify(frozen, images(), batch_size=16, keep_logits=True)
    program = frozen.astype(torch.float64)
    assert found.logits is not None
    assert torch.equal(found.logits, torch.cat([program(x.double()) for x in images().split(16)]))


# ---- images that cannot be certified


@pytest.mark.parametrize("value", (math.nan, math.inf, -math.inf))
def test_not_finite_images_have_radius_zero_and_are_counted(
    frozen: FrozenModel, certificates: Certificates, value: float
) -> None:
    bad = images()
    bad[3, 0, 0, 0] = bad[11] = value
    found = certify(frozen, bad)
    assert found.not_finite == 2
    for claim, radii in found.radii.items():
        assert (radii[[3, 11]] == 0).all()
        assert torch.allclose(radii[20:], certificates.radii[claim][20:], rtol=1e-12)
    guess = certify(frozen, bad, found.predictions)  # whatever the argmax of NaN is
    assert guess.accuracy() == 38 / 40 and not guess.correct()[[3, 11]].any()


@pytest.mark.parametrize(
    "bad, message",
    (
        (torch.rand(2, 3, 8, 8), r"frozen for images of \(3, 6, 6\), not \(3, 8, 8\): resize them or freeze"),
        (torch.rand(2, 1, 6, 6), r"frozen for images of \(3, 6, 6\), not \(1, 6, 6\)"),
        (torch.rand(0, 3, 6, 6), r"there are no images to certify"),
        (torch.rand(3, 6, 6), r"frozen for images of \(3, 6, 6\)"),
        (torch.rand(2, 3, 6, 6) * 255, r"pixels lie in \[0, 1\], and some of these do not: divide 8-bit images by 255"),
        (torch.rand(2, 3, 6, 6) - 0.5, r"pixels lie in \[0, 1\]"),
        (torch.zeros(2, 3, 6, 6, dtype=torch.uint8), r"pixels are floating-point numbers in \[0, 1\]: divide"),
    ),
)
def test_images_that_do_not_fit_are_refused(frozen: FrozenModel, bad: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        certify(frozen, bad)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "labels", (torch.zeros(1).long(), torch.zeros(39).long(), torch.zeros(40, 1).long(), torch.zeros(40))
)
def test_labels_that_do_not_fit_are_refused(frozen: FrozenModel, labels: Tensor) -> None:
    """Otherwise one label would be broadcast to every image, and a column of labels to a square."""
    with pytest.raises(InputError, match="labels must be 40 whole numbers, one for each image, not a torch"):
        certify(frozen, images(), labels)


def test_empty_batches_are_refused(frozen: FrozenModel) -> None:
    with pytest.raises(InputError, match="a batch holds at least one image, not 0"):
        certify(frozen, images(), batch_size=0)


# ---- models that cannot be certified


def test_a_model_that_is_not_frozen_is_refused() -> None:
    with pytest.raises(InputError, match=r"a Sequential cannot be certified: freeze it first with lotnet\.freeze"):
        certify(network(), images())  # type: ignore[arg-type]


def test_a_model_changed_after_freezing_is_refused() -> None:
    for change in range(3):
        frozen = freeze(network(), 6)
        tensor = list(frozen.buffers())[change * 3]
        tensor.data.view(-1)[0] += 1e-3
        with pytest.raises(InputError, match="changed after freezing: freeze it again"):
            certify(frozen, images())


def test_another_size_than_the_frozen_one_is_refused(tmp_path: Path) -> None:
    """ECO is orthogonal at the frequencies of one size. On a larger image, which the pool crops, it would expand."""
    layer = OrthogonalConv2d(2, 2, 2, padding_mode="circular", parametrization="eco")
    nn.init.normal_(layer.weight)
    model = nn.Sequential(Normalize([0.5, 0.5], 0.5), layer, AveragePool(4), nn.Flatten(), NormalizedLinear(2, 2))
    frozen = freeze(model, 4)
    frozen.settings["input_shape"] = [2, 6, 6]
    frozen.spec = replace(frozen.spec, input_shape=(2, 6, 6))
    graph = frozen.astype(torch.float64)
    assert graph(torch.rand(1, 2, 6, 6, dtype=torch.float64)).shape == (1, 2)  # nothing else would stop it
    with pytest.raises(InputError, match="changed after freezing: freeze it again"):
        certify(frozen, torch.rand(3, 2, 6, 6))
    frozen.save(tmp_path)
    with pytest.raises(InputError, match="is not the one that was frozen: freeze it again"):
        FrozenModel.load(tmp_path)


@pytest.mark.parametrize("change", ({"classes": 3}, {"classes": ["a"]}, {"classes": [1] * 10}, {"data": None}))
def test_invalid_class_and_data_names_are_refused(
    frozen: FrozenModel, tmp_path: Path, change: dict[str, object]
) -> None:
    frozen.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["settings"] |= change
    rest = json.dumps({key: value for key, value in config.items() if key != "sha256"}, sort_keys=True)
    config["sha256"] = hashlib.sha256(rest.encode()).hexdigest()
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="is damaged: write it again"):
        FrozenModel.load(tmp_path)


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


def test_a_layer_without_a_bound_is_named() -> None:
    with pytest.raises(InputError, match=r"model\.1 is a Doubling, for which lotnet has no proved bound"):
        freeze(nn.Sequential(Normalize(MEAN, STD), Doubling(), nn.Flatten(), OrthogonalLinear(108, 2)), 6)


def test_a_model_without_a_dense_last_layer_is_refused() -> None:
    model = freeze(nn.Sequential(Normalize(MEAN, STD), OrthogonalConv2d(3, 4, 3), AveragePool(6)), 6)
    with pytest.raises(InputError, match="a certified model ends in OrthogonalLinear or NormalizedLinear"):
        certify(model, images())


def test_autocast_warns_and_changes_nothing(frozen: FrozenModel, certificates: Certificates) -> None:
    with torch.autocast("cpu"), pytest.warns(UserWarning, match="autocast is active: certification runs in float64"):
        again = certify(frozen, images())
    assert torch.equal(again.radii["float"], certificates.radii["float"])


def test_tf32_warns_and_changes_nothing(frozen: FrozenModel, certificates: Certificates) -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with pytest.warns(UserWarning, match="TF32 is active: certification runs in float64"):
            again = certify(frozen, images())
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert torch.equal(again.radii["float"], certificates.radii["float"])


def test_flushing_subnormal_numbers_is_refused(frozen: FrozenModel) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormal numbers")
    try:
        with pytest.raises(InputError, match=r"flushed to zero: call torch\.set_flush_denormal\(False\)"):
            certify(frozen, images())
    finally:
        torch.set_flush_denormal(False)


# ---- regressions that the falsification harness found


def test_intermediate_overflow_is_not_certified() -> None:
    """A pool's sums are twice its outputs. Here the sums overflow, and the real function prefers class 1."""
    double = torch.float64
    stages = [
        FrozenNormalize(double, {"height": 2, "width": 2}, {"mean": torch.zeros(1), "std": torch.ones(1)}),
        FrozenShift(double, {"pixels": 4}, {"shift": torch.tensor([4.5e307], dtype=double)}),
        FrozenAveragePool(double, {"size": 2}, {}),
        FrozenFlatten(double, {}, {}),
        FrozenLinear(
            double,
            {},
            {
                "weight": torch.tensor([[1e-3], [-1e-3]], dtype=double),
                "bias": torch.tensor([0, 1e307], dtype=double),
            },
        ),
    ]
    found = certify(assemble(stages, (1, 2, 2), double), torch.rand(5, 1, 2, 2))
    assert all((radii == 0).all() for radii in found.radii.values())


@pytest.mark.parametrize("std, constant", ((-0.5, 2.0), (0.0, math.inf)))
def test_an_invalid_std_is_bounded_too(std: float, constant: float) -> None:
    model = nn.Sequential(Normalize([0.5], 0.5), nn.Flatten(), OrthogonalLinear(4, 2))
    model[0].std.fill_(std)
    found = certify(freeze(model, 2), torch.rand(5, 1, 2, 2))
    assert found.lipschitz_bound == pytest.approx(constant)
    assert (found.radii["float"] > 0).all() == (constant < math.inf)


def test_a_model_with_nan_is_refused() -> None:
    model = nn.Sequential(Normalize([0.5], 0.5), nn.Flatten(), OrthogonalLinear(4, 2))
    model[0].std.fill_(math.nan)
    with pytest.raises(InputError, match="std must hold numbers, not NaN"):
        freeze(model, 2)


def test_channels_are_not_broadcast() -> None:
    """One mean, or one shift, for three channels: its norm would be understated in the error bound."""
    last = (nn.Flatten(), OrthogonalLinear(108, 2))
    for layers in ((Normalize([0.5], 0.2),), (Normalize(MEAN, STD), Centering(1))):
        with pytest.raises(InputError, match="channels"):
            freeze(nn.Sequential(*layers, *last), (3, 6, 6))


def test_images_of_two_by_two_freeze() -> None:
    """All frequencies are real, so the batch of complex transfer matrices is empty."""
    model = nn.Sequential(
        Normalize([0.5], 0.2), OrthogonalConv2d(1, 1, 2, padding_mode="circular"), nn.Flatten(), OrthogonalLinear(4, 2)
    )
    assert float(freeze(model, 2).lipschitz_bound()) == pytest.approx(5, rel=1e-5)


@pytest.mark.parametrize("rows, dilation", ((6, 2), (5, 2), (7, 3), (6, 4), (9, 6)))
def test_a_dilated_circular_kernel_is_bounded_whatever_the_side(rows: int, dilation: int) -> None:
    """The dilation need not divide the side, although this changes the frequencies."""
    kernel = torch.randn(2, 2, 2, 2, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    operator = Kernel(kernel, "circular", (dilation, 1))
    impulses = torch.eye(2 * rows * 5, dtype=torch.float64).view(-1, 2, rows, 5)
    norm = float(torch.linalg.matrix_norm(operator.apply(impulses).flatten(1), ord=2))
    assert norm * (1 - 1e-14) <= float(kernel_norm(operator, rows, 5)) <= norm * (1 + 1e-6)


def test_a_kernel_may_be_larger_than_its_periodic_image() -> None:
    """SOC extends an even kernel to an odd one, here to 3 x 3 on 2 x 2 pixels."""
    layer = OrthogonalConv2d(2, 2, 2, padding_mode="circular", parametrization="soc")
    stage = layer.frozen((2, 2, 2), torch.float64)
    impulses = torch.eye(8, dtype=torch.float64).view(8, 2, 2, 2)
    norm = float(torch.linalg.matrix_norm(stage(impulses).flatten(1), ord=2))
    assert norm * (1 - 1e-14) <= float(stage.lipschitz_bound()) <= norm * (1 + 1e-3)
