"""Ablations, seeds and self-training, compared by the program and shown in results/README.md."""

from dataclasses import replace
from typing import Any

import pytest
from test_results import cifar10, made_up

from lotnet.config import SelfTrainingConfig
from lotnet.paper import comparisons, results_page
from lotnet.paper.results import Result, StudentResult, measured
from lotnet.runs.selftraining import CertifiedAccuracy, ImageCounts, Measured, Share

PLAIN20 = {"kind": "lipconvnet", "depth": 20}
CREG = {"model": {"kind": "lipconvnet", "activation": "hh1"}, "loss": {"kind": "creg"}}


def student(name: str, images: int, clean: float, epochs: int = 100, **settings: Any) -> Result:
    """A LipConvnet-5 with CReg and HH that learned from unlabeled images, half of each batch."""
    share = Share(1, 4)
    about = StudentResult(
        settings=replace(SelfTrainingConfig(unlabeled="cifar100,tiny-imagenet", unlabeled_share=0.5), **settings),
        seed=0,
        images=ImageCounts(47500, 2500, 150000, 10000, near_duplicates=148, chosen=images),
        teacher=CertifiedAccuracy("", clean=0.5, certified=(0.4, 0.3, 0.2), mean_radius=0.1),
        measured=Measured(share, share, share, share, ball=0.1, wrong_pseudo_labels=None),
    )
    made = made_up(name, cifar10(**CREG), clean)
    return replace(made, command="lotnet selftrain", epochs=epochs, selftraining=about)


def test_an_ablation_compares_networks_with_the_same_epochs() -> None:
    usual = made_up("residual", cifar10(model=PLAIN20), clean=0.78)
    short = replace(made_up("residual, short", cifar10(model=PLAIN20), clean=0.70), epochs=60)
    without = replace(made_up("none", cifar10(model=PLAIN20 | {"residual": False}), clean=0.68), epochs=60)
    assert comparisons.ablations([usual, without]) == []
    (found,) = comparisons.ablations([usual, short, without])
    assert (found.usual.variant, found.changed.variant) == ("residual", "no residual")
    paper, ours = found.differences()
    assert paper["clean"] == pytest.approx(0.70) and ours["clean"] == pytest.approx(2)
    circular = replace(made_up("circular", cifar10(model=PLAIN20 | {"padding_mode": "circular"}), 0.71), epochs=60)
    padding = comparisons.ablations([circular, short, without])[1]
    assert padding.usual.variant == "zero padding" and padding.differences()[1]["clean"] == pytest.approx(-1)
    text = results_page.markdown([circular, short, without])
    assert "| LipConvnet-20, LOT | residual | no residual | 60 | +0.70 / **+2.00** |" in text
    assert "| LipConvnet-20, LOT | zero padding | circular padding | 60 | +1.21 / **-1.00** |" in text


def test_seeds_of_the_same_settings_are_averaged() -> None:
    first, second = (made_up(str(seed), cifar10(seed=seed, **CREG), 0.7 + 0.02 * seed) for seed in (0, 1))
    other = made_up("other", cifar10(model=PLAIN20))
    (found,) = comparisons.repeated([first, second, other])
    assert found.mean()["clean"] == pytest.approx(71) and found.spread()["clean"] == pytest.approx(2**0.5)
    assert "| LipConvnet-5, LOT, CReg loss, 200 epochs | CIFAR-10 | 0, 1 | 71.00 ± 1.41 |" in results_page.markdown(
        [first, second, other]
    )
    assert comparisons.repeated([first, replace(first, name="again")]) == []


def test_a_student_is_compared_with_supervised_training_of_as_many_steps() -> None:
    """Half of each batch is unlabeled, so 100 epochs of the student are 200 epochs of supervised training."""
    long, other = (made_up(str(seed), cifar10(seed=seed, **CREG), 0.76 + 0.02 * seed) for seed in (0, 1))
    short = replace(made_up("short", cifar10(**CREG), 0.5), epochs=60)
    some, all_images = student("some", 25000, 0.72), student("all", 150000, 0.70)
    found = comparisons.selftrained([all_images, long, other, short, some])
    assert [item.images for item in found] == [25000, 150000]
    assert found[0].about_baseline == "supervised, 200 epochs, mean of 2 seeds"
    assert found[0].differences()["clean"] == pytest.approx(-5)
    gain = comparisons.paper_gain(some)
    assert gain is not None and (gain["clean"], gain["cert_108"]) == pytest.approx((-4.82, 6.32))
    text = results_page.markdown([all_images, long, other, short, some], figures={"self-training.png"})
    assert "too near to a test image were left out: 148 images of cifar100 and tiny-imagenet." in text
    assert "| LipConvnet-5, LOT, CReg loss | 25,000 | 100 | 72.00 (-5.00) |" in text
    assert "| LipConvnet-5, LOT, CReg loss, paper | 500,000 | 200 | (-4.82) | (-0.82) | (+3.14) | (+6.32) |" in text
    assert "](self-training.png)" in text
    assert comparisons.selftrained([some]) == [], "nothing to compare with"


def test_a_student_that_knew_few_labels_is_compared_with_its_teacher() -> None:
    tenth = student("tenth", 45000, 0.6, labeled=0.1, unlabeled=None)
    (found,) = comparisons.selftrained([tenth])
    assert found.about_baseline == "its teacher, on 10% of the labels"
    assert found.differences()["clean"] == pytest.approx(10)
    assert comparisons.paper_gain(tenth) is None and comparisons.with_all_labels([found]) == []


def test_a_students_row_is_semi_supervised_and_the_one_with_most_images_stands_there() -> None:
    some, most = student("some", 25000, 0.72), student("most", 150000, 0.70)
    ((row, result),) = measured([most, some]).items()
    assert (row.table, row.model, row.conv, result.name) == ("ssl-crhh", "LipConvnet-5", "LOT", "most")
