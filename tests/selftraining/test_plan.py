"""Which images teacher and student may see, the file of a teacher's labels, and the file of a plan."""

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from lotnet import FrozenModel, MaxMin, Normalize, OrthogonalConv2d, OrthogonalLinear, freeze
from lotnet.config import RunConfig, TrainerConfig
from lotnet.config.selftraining import SelfTrainingConfig
from lotnet.data import Batches, Dataset, Split, cache, load, to_unit
from lotnet.errors import InputError
from lotnet.selftraining import pseudolabels
from lotnet.selftraining.choice import most_confident
from lotnet.selftraining.plan import Plan, divide
from lotnet.selftraining.pseudolabels import PseudoLabels
from lotnet.selftraining.unlabeled_images import load_unlabeled

TENTH = SelfTrainingConfig(labeled=0.1, held_out=0.2)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


def colours(count: int = 40, classes: int = 4) -> Dataset:
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    split = Split(images, torch.arange(count) % classes)
    return Dataset("toy", split, split, tuple("abcdefgh"[:classes]))


def frozen(classes: int = 10, seed: int = 0) -> FrozenModel:
    torch.manual_seed(seed)
    layers = [OrthogonalConv2d(1, 4, 3, stride=2), MaxMin(), nn.Flatten(), OrthogonalLinear(64, classes)]
    return freeze(nn.Sequential(Normalize(mean=[0.3], std=0.4), *layers), image_size=8)


def rows(images: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


def labeled_by_teacher(labels: torch.Tensor) -> PseudoLabels:
    return PseudoLabels(labels, torch.ones(len(labels)))


def test_every_training_image_is_in_one_part_and_no_test_image_in_any(digits: Dataset) -> None:
    parts = divide(digits, TENTH, seed=3)
    pieces = [parts.labeled.images, parts.held_out.images, parts.images]
    assert sum(map(len, pieces)) == len(digits.train)
    assert set.union(*map(rows, pieces)) == rows(digits.train.images)
    assert not rows(parts.for_student(labeled_by_teacher(parts.hidden)).train.images) & rows(parts.held_out.images)
    assert not rows(torch.cat(pieces)) & rows(digits.test.images)
    assert len(parts.labeled) + len(parts.held_out) == pytest.approx(len(digits.train) / 10, abs=5)
    for split in (parts.labeled, parts.held_out):
        assert len(split.labels.unique()) == 10


def test_the_student_sees_the_teachers_labels_and_never_the_hidden_ones(digits: Dataset) -> None:
    parts = divide(digits, TENTH, seed=0)
    said = (parts.hidden + 1) % 10
    train = parts.for_student(labeled_by_teacher(said)).train
    assert torch.equal(train.labels, torch.cat([parts.labeled.labels, said]))
    assert torch.equal(parts.for_teacher().train.images, parts.labeled.images)


def test_the_seed_decides_which_labels_are_shown(digits: Dataset) -> None:
    one, same, other = (divide(digits, TENTH, seed).labeled.images for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert rows(one) != rows(other)


def test_images_from_elsewhere_come_after_those_with_hidden_labels(tmp_path: Path) -> None:
    dataset = colours()
    pixels = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    path = tmp_path / "500K.pickle"
    path.write_bytes(pickle.dumps({"data": pixels, "extrapolated_targets": np.zeros(12, np.int64)}))
    extra = load_unlabeled(dataset, str(path))
    assert extra is not None and load_unlabeled(dataset, str(path), limit=5).images.shape == (5, 3, 32, 32)
    alone = divide(dataset, SelfTrainingConfig(unlabeled=str(path), held_out=0.2), 0, extra)
    assert torch.equal(alone.images, extra.images)
    assert len(alone.hidden) == 0
    both = divide(dataset, SelfTrainingConfig(labeled=0.5, unlabeled=str(path), held_out=0.2), 0, extra)
    assert len(both.hidden) == 20
    assert torch.equal(both.images[20:], extra.images)
    folder = tmp_path / "folder"
    folder.mkdir()
    Image.fromarray(pixels[0]).save(folder / "x.png")
    found = load_unlabeled(load("digits"), str(folder))
    assert found is not None and found.images.shape == (1, 1, 8, 8)  # files are decoded like those of the data set
    with pytest.raises(InputError, match="3 x 32 x 32 and those of grey 1 x 32 x 32"):
        grey = Split(dataset.train.images[:, :1], dataset.train.labels)
        load_unlabeled(Dataset("grey", grey, grey, dataset.classes), str(path))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "no unlabeled images"),
        ({"labeled": 0.0}, "between 0 and 1"),
        ({"labeled": 1.0}, "between 0 and 1"),
        ({"labeled": 0.5, "held_out": 1.5}, "between 0 and 1"),
        ({"labeled": 0.5, "teacher_epochs": 0}, "at least 1"),
        ({"labeled": 0.5, "ball": -1.0}, "at least 0"),
        ({"labeled": 0.5, "unlabeled_share": 1.0}, "between 0 and 1"),
        ({"labeled": 0.5, "most_confident": 0}, "at least 1"),
        ({"labeled": 0.5, "teacher": "runs/a"}, "is already trained"),
        ({"unlabeled": "a", "held_out": 0.1, "teacher": "runs/a"}, "leave --labeled, --held_out"),
    ],
)
def test_invalid_settings_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        SelfTrainingConfig(**settings)


def test_images_of_other_data_sets_are_shrunk_and_copies_of_test_images_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path))
    dataset = colours()
    large = torch.randint(0, 256, (6, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    large[2] = dataset.test.images[7].flip(2).repeat_interleave(2, 1).repeat_interleave(2, 2)  # a mirrored test image
    split = Split(large, torch.arange(6) % 2)
    test = Split(large.clone(), split.labels.clone())
    cache.write(Dataset("tiny-imagenet", split, test, ("a", "b")), tmp_path / "tiny-imagenet.safetensors", "here")
    small = dataset.test.select(torch.tensor([3, 4]))
    other = Split(255 - small.images, small.labels.clone())
    cache.write(Dataset("cifar100", other, small, ("a", "b", "c", "d", "e")), tmp_path / "cifar100.safetensors", "here")
    found = load_unlabeled(dataset, "tiny-imagenet,cifar100")
    assert found is not None and (len(found.images), found.near_duplicates) == (7, 1)
    block = large[0, 1, 10:12, 20:22].int().sum() / 4
    assert abs(found.images[0, 1, 5, 10] - block) <= 0.5
    assert torch.equal(found.images[5:], other.images)
    parts = divide(dataset, SelfTrainingConfig(unlabeled="tiny-imagenet,cifar100"), 0, found)
    assert parts.source == "7 images of tiny-imagenet and cifar100" and parts.near_duplicates == 1
    with pytest.raises(InputError, match="hide some of its labels with --labeled"):
        load_unlabeled(dataset, "toy")


def test_the_student_gets_the_images_of_which_the_teacher_is_most_sure() -> None:
    found = PseudoLabels(torch.tensor([0, 1, 0, 0, 1, 0]), torch.tensor([0.5, 0.9, 0.7, 0.7, 0.2, 0.8]))
    assert most_confident(found, None, 2).tolist() == [0, 1, 2, 3, 4, 5]
    assert most_confident(found, 4, 2).tolist() == [1, 2, 4, 5]  # ties go to the earlier image
    assert most_confident(found, 10, 2).tolist() == [0, 1, 2, 3, 4, 5]
    assert most_confident(found, 4, 3).tolist() == [1, 5]  # a class that is never named leaves its places empty


def test_a_share_of_unlabeled_images_makes_an_epoch_of_the_labeled_ones(digits: Dataset) -> None:
    settings = SelfTrainingConfig(labeled=0.5, unlabeled_share=0.25, most_confident=100)
    parts = divide(digits, settings, 0)
    student = parts.for_student(labeled_by_teacher(parts.hidden))
    batches = Batches(student.train, 40, seed=0, drop_last=True)
    assert len(batches) == len(parts.labeled) // 30
    assert len(student.train) < len(parts.labeled) + 100 + 1


def test_a_class_with_too_few_labels_is_named_with_a_fraction_that_suffices(digits: Dataset) -> None:
    with pytest.raises(InputError, match="without the two labels it needs") as error:
        divide(digits, SelfTrainingConfig(labeled=0.005), 0)
    enough = float(str(error.value).split()[-1])
    assert torch.bincount(divide(digits, SelfTrainingConfig(labeled=enough), 0).held_out.labels).min() == 1


def test_a_plan_survives_its_file() -> None:
    training = RunConfig(trainer=TrainerConfig(epochs=7))
    plan = Plan(training, dataclasses.replace(TENTH, teacher_epochs=70), seeds=(4, 2))
    assert Plan.from_yaml(plan.to_yaml(), "plan") == plan
    named = dataclasses.replace(plan, command=("lotnet", "selftrain"))
    assert Plan.from_yaml(named.to_yaml(), "plan").command == named.command and named == plan
    assert (plan.stage("teacher", 4).trainer.epochs, plan.stage("student", 4).trainer.epochs) == (70, 7)
    assert plan.stage("student", 2).seed == 2
    assert plan.folder(Path("x"), 2) == Path("x/seed-2")
    assert plan.for_seed(2).folder(Path("x"), 2) == Path("x")
    with pytest.raises(InputError, match="unknown setting labelled: did you mean labeled"):
        Plan.from_yaml(plan.to_yaml().replace("labeled:", "labelled:", 1), "plan")
    with pytest.raises(InputError, match="plan has format 9, this lotnet reads 1 to 3: "):
        Plan.from_yaml(plan.to_yaml().replace("format: 3", "format: 9"), "plan")
    for wrong, words in (
        ("seeds: [0, a]", "seeds cannot be"),
        ("seeds: 3", "seeds cannot be 3: give a list, each item a whole number"),
        ("sedes: [4]", "lacks its training settings or seeds"),
    ):
        with pytest.raises(InputError, match=words):
            Plan.from_yaml(plan.to_yaml().replace("seeds:\n- 4\n- 2", wrong), "plan")


def test_a_plan_of_format_1_is_read_with_current_names() -> None:
    """lotnet wrote the file when there was one format."""
    text = (
        "format: 1\nseeds: [4, 2]\nlabelled: 0.1\nunlabelled: null\nheld_out: 0.2\nteacher_epochs: 70\n"
        "ball: 0.1411764705882353\ntraining:\n  trainer: {epochs: 7, share_polar: false}\n"
    )
    plan = Plan(RunConfig(trainer=TrainerConfig(epochs=7)), dataclasses.replace(TENTH, teacher_epochs=70), seeds=(4, 2))
    assert Plan.from_yaml(text, "plan") == plan
    with pytest.raises(InputError, match="training is not a group of settings"):
        Plan.from_yaml(text.partition("training")[0] + "training: 5", "plan")


def test_pseudo_labels_are_the_predictions_of_the_float64_model(digits: Dataset) -> None:
    model, images = frozen(), digits.test.images[:60]
    found = pseudolabels.label(model, images, 10, batch_size=7)
    shares = model.astype(torch.float64)(to_unit(images, torch.float64)).softmax(dim=1)
    assert torch.equal(found.labels, shares.argmax(dim=1))
    assert torch.equal(found.confidence, shares.amax(dim=1).float())
    assert found.agreeing(found.labels[:9]) == 9
    with pytest.raises(InputError, match="the teacher has 4 classes and the data have 10"):
        pseudolabels.label(frozen(classes=4), images, 10)


def test_pseudo_labels_are_tied_to_their_images_and_their_model(tmp_path: Path, digits: Dataset) -> None:
    model, images = frozen(), digits.test.images[:20]
    assert pseudolabels.read(tmp_path, images, model) is None
    found = pseudolabels.label(model, images, 10)
    pseudolabels.write(tmp_path, found, images, model, pseudolabels.Origin(source="here"))
    again = pseudolabels.read(tmp_path, images, model)
    assert torch.equal(again.labels, found.labels)
    assert torch.equal(again.confidence, found.confidence)
    heading = json.loads((tmp_path / "pseudo-labels.json").read_text())
    assert (heading["format"], heading["images"], heading["source"]) == (1, 20, "here")
    assert heading["teacher_sha256"] == model.spec.checksum
    with pytest.raises(InputError, match="of other images"):
        pseudolabels.read(tmp_path, images.flip(0), model)
    with pytest.raises(InputError, match="of another teacher"):
        pseudolabels.read(tmp_path, images, frozen(seed=1))
    tensors = tmp_path / "pseudo-labels.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"\0")
    with pytest.raises(InputError, match=r"damaged \(the labels are not those of pseudo-labels.json\): delete"):
        pseudolabels.read(tmp_path, images, model)
    tensors.unlink()
    with pytest.raises(InputError, match="are incomplete: delete"):
        pseudolabels.read(tmp_path, images, model)
    for name in ("pseudo-labels.safetensors", "pseudo-labels.json"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).mkdir()
        with pytest.raises(InputError, match=rf"cannot read .*{name} \(Is a directory\): check its permissions"):
            pseudolabels.read(tmp_path, images, model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels_sha256": 3}, r"is damaged \(labels_sha256 must be text\)"),
        ({"teacher": {"run": "a"}}, r"is damaged \(teacher.config is missing\)"),
        ({"format": 9}, "has format 9, this lotnet reads 1"),
    ],
)
def test_damaged_pseudo_labels_are_refused_with_the_reason(
    change: dict[str, object], words: str, tmp_path: Path, digits: Dataset
) -> None:
    model, images, path = frozen(), digits.test.images[:20], tmp_path / "pseudo-labels.json"
    found = pseudolabels.label(model, images, 10)
    pseudolabels.write(tmp_path, found, images, model, pseudolabels.Origin())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=rf"pseudo-labels.json {words}: delete .* and the student to make them again"):
        pseudolabels.read(tmp_path, images, model)


def test_pseudo_labels_of_the_first_version_still_open(tmp_path: Path, digits: Dataset) -> None:
    """Their heading does not count near-duplicates."""
    model, images, path = frozen(), digits.test.images[:20], tmp_path / "pseudo-labels.json"
    pseudolabels.write(tmp_path, pseudolabels.label(model, images, 10), images, model, pseudolabels.Origin())
    heading = json.loads(path.read_text())
    assert list(heading)[:5] == ["format", "images", "images_sha256", "teacher_sha256", "labels_sha256"]
    del heading["near_duplicates_of_test_images_left_out"]
    path.write_text(json.dumps(heading | {"teacher": {"run": "teacher", "config": {"seed": 0}}}))
    assert pseudolabels.read(tmp_path, images, model) is not None
