"""What a person reads before the first step of a run."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lotnet.config import RunConfig
from lotnet.data import Batches, load
from lotnet.runs.data import image_spec
from lotnet.training.launch import make_fabric
from lotnet.training.loop import make_batches
from lotnet.training.outlook import Outlook, Pace
from lotnet.training.run import train
from runs import TINY, assert_same, lotnet

CONFIG = RunConfig.from_recipe("digits/default", {"model.channels": 4, "trainer.batch_size": 32})


@pytest.fixture
def outlook() -> Outlook:
    torch.manual_seed(0)
    dataset = load("digits")
    batches, validation = make_batches(CONFIG, dataset, make_fabric(CONFIG.trainer, "cpu"), None)
    return Outlook(CONFIG, dataset, CONFIG.model.build(image_spec(dataset)), batches, validation)


def test_the_lines_name_images_pixels_augmentation_network_and_plan(outlook: Outlook) -> None:
    lines = dict(outlook.lines("cpu"))
    assert lines["images"] == "1,368 to train on, 70 to choose the best epoch, 359 to test; 10 classes"
    assert lines["pixels"] == "8 x 8 pixels, grey"
    assert lines["augmentation"] == "shifts by up to 1 pixel"
    assert re.fullmatch(r"LipConvnet, 4 lot layers, [\d,]+ parameters", lines["network"])
    assert lines["training"] == "30 epochs of 42 steps with 32 images, on cpu with 1 thread"
    pace, seconds = Pace(step=2.0, validation=4.0), 30 * (42 * 2 + 4)
    said = outlook.duration(pace)
    assert said.startswith(f"2 s per step as measured now, about {seconds / 60:.0f} min in all, until ")
    assert f"about {seconds / 120:.0f} min in all" in outlook.duration(pace, done=15 * 42)
    assert "after the first steps" in outlook.duration(None)


def test_few_images_that_choose_the_best_epoch_are_noted(outlook: Outlook) -> None:
    assert outlook.doubts() == []
    few = Batches(outlook.dataset.test.select(slice(4)), 2)
    (note,) = replace(outlook, validation=few).doubts()
    assert note == (
        "only 4 images choose the best epoch, so the choice is mostly chance: --data.validation 0 trains on all images "
        "and keeps the last epoch"
    )
    (note,) = replace(outlook, validation=few, splits_training=False).doubts()
    assert note == "only 4 images choose the best epoch, so the choice is mostly chance"
    assert replace(outlook, validation=None).doubts() == []


def test_one_of_anything_is_singular(outlook: Outlook) -> None:
    config = CONFIG.override({"trainer.epochs": 1, "trainer.batch_size": 1})
    one = Batches(outlook.dataset.test.select(slice(1)), 1)
    lines = dict(replace(outlook, config=config, batches=one).lines("cpu"))
    assert lines["training"] == "1 epoch of 1 step with 1 image, on cpu with 1 thread"


def test_measuring_changes_neither_the_model_nor_the_random_numbers(outlook: Outlook) -> None:
    before, state = copy.deepcopy(outlook.model.state_dict()), torch.get_rng_state()
    pace = outlook.measure(make_fabric(CONFIG.trainer, "cpu"))
    assert pace.step > 0 and pace.validation > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in outlook.model.state_dict().items())
    assert all(parameter.grad is None for parameter in outlook.model.parameters())


def test_a_run_that_says_what_it_does_equals_a_quiet_one(reference: Path, tmp_path: Path) -> None:
    overrides = dict(option.removeprefix("--").split("=") for option in TINY)
    quiet = train("digits/default", tmp_path / "quiet", device="cpu", quiet=True, **overrides)
    assert_same(reference, quiet.path)
    said = lotnet("train", *TINY, "--trainer.epochs=1", "--out", str(tmp_path / "said"))
    titles = ["images", "pixels", "augmentation", "network", "training", "time", "epoch 1/1"]
    assert [title for title in titles if not re.search(rf"^{title} ", said, re.MULTILINE)] == []
