"""The pipeline: stages that are stored, stopped and resumed, and the file of their results."""

import json
import re
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

from lotnet import train
from lotnet.config import RunConfig
from lotnet.config.selftraining import SelfTrainingConfig
from lotnet.errors import InputError
from lotnet.paper.results import Result
from lotnet.records import read_record, write_record
from lotnet.runs.certificates import certificate_files
from lotnet.runs.checkpoint import read
from lotnet.runs.directory import Run
from lotnet.selftraining import results
from lotnet.selftraining.pipeline import Pipeline, create
from lotnet.selftraining.plan import Plan
from lotnet.selftraining.record import collect_student
from lotnet.selftraining.results import CertifiedAccuracy, ImageCounts, Results, SeedResult
from lotnet.selftraining.theorems import Measured, Share, Statement

SEEDS = (0, 7)
TRAINING = {
    "model": {"kind": "lipconvnet", "channels": 4},
    "limit": 200,
    "trainer": {"batch_size": 16, "epochs": 2, "checkpoint_every": 2},
}
PLAN = Plan(RunConfig.from_dict(TRAINING, "test"), SelfTrainingConfig(0.25, teacher_epochs=3), SEEDS)
FORMAT_1 = Path(__file__).parent / "selftraining-format-1.json"


def run(root: Path, plan: Plan = PLAN) -> tuple[Results, str]:
    """The results, and what was printed on the way."""
    console = Console(record=True, width=200, file=StringIO())
    done = Pipeline(plan, "cpu", console).run(root)
    return done, console.export_text()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds, uninterrupted."""
    path = tmp_path_factory.mktemp("selftrain") / "both"
    create(path, PLAN)
    done, _ = run(path)
    assert results.read(path / "selftraining.json") == done
    return path


def pictures(folder: Path) -> Path:
    """A folder of thirty grey images without labels."""
    pixels = torch.randint(0, 256, (30, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    (folder / "pictures").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image.numpy()).save(folder / "pictures" / f"{number:02}.png")
    return folder / "pictures"


def weights(path: Path) -> dict[str, torch.Tensor]:
    return read(Run.open(path).checkpoints.best)[1]


def test_every_stage_is_stored(root: Path) -> None:
    both = results.read(root / "selftraining.json")
    assert json.loads((root / "selftraining.json").read_text())["format"] == 1
    for result, seed in zip(both.seeds, SEEDS, strict=True):
        folder = root / f"seed-{seed}"
        assert results.read(folder / "selftraining.json").seeds == (result,)
        assert Plan.read(folder).seeds == (seed,)
        heading = json.loads((folder / "pseudo-labels.json").read_text())
        labels = load_file(folder / "pseudo-labels.safetensors")
        assert len(labels["labels"]) == len(labels["confidence"]) == result.images.unlabeled == heading["images"]
        assert heading["teacher_sha256"] == result.teacher.checksum
        assert heading["teacher"]["config"] == Run.open(folder / "teacher").config.to_dict()
        assert len(Run.open(folder / "teacher").metrics()) == 3
        assert len(Run.open(folder / "student").metrics()) == 2
        for who, accuracy in (("teacher", result.teacher), ("student", result.student)):
            certificates = json.loads(certificate_files(folder / who)[0].read_text())
            assert tuple(certificates["summary"]["certified"]["float"]) == accuracy.certified
            assert (certificates["split"], certificates["checksum"]) == ("test", accuracy.checksum)
            assert (folder / who / "model" / "config.json").is_file()
        measured = result.measured
        assert measured.wrong_pseudo_labels is not None
        assert measured.disagreement.among == measured.wrong_pseudo_labels.among == heading["images"]
        assert len(result.theorems) == 3
    assert weights(root / "seed-0/student").keys() == weights(root / "seed-0/teacher").keys()


def test_a_run_can_be_the_teacher(root: Path, tmp_path: Path) -> None:
    """The student learns from batches with a fixed share of the images of which that run is most sure."""
    teacher, path = tmp_path / "teacher", tmp_path / "run"
    trained = train(RunConfig.from_dict(TRAINING, "test"), out=str(teacher))
    settings = SelfTrainingConfig(unlabeled=str(pictures(tmp_path)), unlabeled_share=0.5, teacher=str(teacher))
    plan = Plan(trained.config, replace(settings, most_confident=20))
    create(path, plan)
    done, printed = run(path, plan)
    (result,) = done.seeds
    assert "training the teacher" not in printed and not (path / "teacher").exists()
    assert (result.images.labeled, result.images.held_out) == (190, 10), "as `lotnet train` holds out"
    assert (result.images.unlabeled, result.images.near_duplicates) == (30, 0)
    assert result.images.chosen is not None and 0 < result.images.chosen <= 20
    assert result.measured.disagreement.among == result.images.chosen
    heading = json.loads((path / "pseudo-labels.json").read_text())
    assert heading["teacher"] == {"run": str(teacher), "config": trained.config.to_dict()}
    assert heading["teacher_sha256"] == result.teacher.checksum
    steps = {record.step for record in Run.open(path / "student").metrics()}
    assert steps == {23, 46}, "an epoch has 190 // 8 steps: the labeled images once"
    assert json.loads((path / "selftraining.json").read_text())["seeds"][0]["images"]["chosen"] == result.images.chosen


def test_a_teacher_that_has_seen_other_images_is_refused(root: Path, tmp_path: Path) -> None:
    settings = SelfTrainingConfig(unlabeled=str(pictures(tmp_path)), teacher=str(root / "seed-0/teacher"))
    with pytest.raises(InputError, match="is part of a self-training run"):
        run(tmp_path / "run", Plan(PLAN.training, settings))
    teacher = train(RunConfig.from_dict(TRAINING | {"limit": 100}, "test"), out=str(tmp_path / "teacher")).path
    with pytest.raises(InputError, match="was trained on digits with limit 100, not on digits with limit 200"):
        run(tmp_path / "run", Plan(PLAN.training, replace(settings, teacher=str(teacher))))
    Run.open(teacher).checkpoints.steps()[-1].unlink()
    with pytest.raises(InputError, match="is not trained to its end: continue it"):
        run(tmp_path / "run", Plan(PLAN.training, replace(settings, teacher=str(teacher))))
    assert not (tmp_path / "run").exists()


def test_a_finished_pipeline_repeats_nothing(root: Path) -> None:
    def times() -> dict[Path, int]:
        files = (file for file in root.rglob("*") if file.is_file() and file != root / "selftraining.json")
        return {file: file.stat().st_mtime_ns for file in files}

    before = times()
    done, printed = run(root)
    assert times() == before
    assert done == results.read(root / "selftraining.json")
    assert printed.count("is done already") == 2
    assert "epoch" not in printed


def test_a_lost_result_is_rebuilt_from_the_stored_stages(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(root / "seed-0", path)
    expected = results.read(path / "selftraining.json")
    (path / "selftraining.json").unlink()
    times = {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.parent.name in ("checkpoints", "run")}
    certificates = certificate_files(path / "student")[0].stat().st_mtime_ns
    done, printed = run(path, Plan.read(path))
    assert done == expected
    assert "epoch" not in printed and "labelling" not in printed
    assert all(file.stat().st_mtime_ns == time for file, time in times.items())
    assert certificate_files(path / "student")[0].stat().st_mtime_ns == certificates


def test_a_student_is_not_reused_with_labels_it_was_not_trained_on(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(root / "seed-0", path)
    (path / "selftraining.json").unlink()
    (path / "pseudo-labels.json").unlink()
    with pytest.raises(InputError, match="student was trained on pseudo-labels that are gone: delete it"):
        run(path, Plan.read(path))


def test_a_stage_with_other_settings_is_refused(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(root / "seed-0", path)
    (path / "selftraining.json").unlink()
    config = path / "teacher" / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 3", "epochs: 4"))
    with pytest.raises(InputError, match=r"teacher was trained with other settings: .*selftraining.yaml"):
        run(path, Plan.read(path))


def test_a_directory_that_exists_is_not_touched(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"exists: continue it with --resume {root}"):
        create(root, PLAN)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match="is no self-training: choose another --out"):
        create(tmp_path, PLAN)
    with pytest.raises(InputError, match="holds no self-training"):
        Plan.read(tmp_path)


def test_a_student_is_recorded_with_its_teacher_and_its_images(root: Path, tmp_path: Path) -> None:
    result = collect_student(root / "seed-0", "name")
    stored = results.read(root / "seed-0" / "selftraining.json").seeds[0]
    assert result.checksum == stored.student.checksum and result.config["trainer"]["epochs"] == 2
    about = result.selftraining
    assert about is not None and about.teacher.checksum == stored.teacher.checksum
    assert about.settings.labeled == 0.25 and about.images.unlabeled == 151
    write_record(tmp_path / "a.json", result)
    again = read_record(Result, tmp_path / "a.json", "")
    assert again.percentages() == result.percentages() and again.selftraining == about
    stored = json.loads((tmp_path / "a.json").read_text())["selftraining"]
    assert stored["images"] == {"labelled": 39, "held out": 10, "unlabelled": 151, "test": 200}
    assert stored["measured"]["shares"]["wrong_pseudo_labels"] == about.measured.shares["wrong_pseudo_labels"]
    folder = Path(shutil.copytree(root / "seed-0", tmp_path / "private"))
    plan = Plan.read(folder)
    sources = f"cifar100, {tmp_path}/photos,mine"
    replace(plan, selftraining=replace(plan.selftraining, unlabeled=sources)).write(folder)
    private = collect_student(folder, "name").selftraining
    assert private is not None and private.settings == replace(about.settings, unlabeled="cifar100, photos,mine")
    with pytest.raises(InputError, match=r"has several seeds: record each, as .*seed-0"):
        collect_student(root, "name")
    path = tmp_path / "unfinished"
    shutil.copytree(root / "seed-0", path)
    (path / "selftraining.json").unlink()
    with pytest.raises(InputError, match="is not finished: continue it with `lotnet selftrain --resume"):
        collect_student(path, "name")


def accuracy(clean: float) -> CertifiedAccuracy:
    return CertifiedAccuracy("", clean, (clean / 2,), clean / 4)


def seed_result(teacher: float, student: float, hidden: Share | None = None) -> SeedResult:
    share = Share(1, 4)
    measured = Measured(share, share, share, share, ball=0.1, wrong_pseudo_labels=hidden)
    theorems = (Statement("main lemma", None, "It says nothing."),)
    counts = ImageCounts(10, 4, 4, 8)
    return SeedResult(3, counts, (36 / 255,), accuracy(teacher), accuracy(student), measured, theorems)


def test_mean_and_spread_are_over_seeds_and_differences_within_them() -> None:
    comparison = Results((seed_result(0.4, 0.5), seed_result(0.6, 0.7))).compare()
    assert comparison.columns == ("clean", "36/255", "mean radius")
    assert comparison.mean["difference"] == pytest.approx((0.1, 0.05, 0.025))
    assert comparison.spread["difference"] == pytest.approx((0, 0, 0))
    assert comparison.spread["teacher"][0] == pytest.approx(0.02**0.5)
    assert Results((seed_result(0.4, 0.5),)).compare().spread["student"] == (None, None, None)


@pytest.mark.parametrize("hidden", [None, Share(1, 3)])
def test_results_survive_their_file(hidden: Share | None, tmp_path: Path) -> None:
    done = Results((seed_result(0.4, 0.5, hidden), seed_result(0.6, 0.7, hidden)))
    results.write(tmp_path / "selftraining.json", done)
    assert results.read(tmp_path / "selftraining.json") == done


def test_a_file_of_the_first_version_still_opens(tmp_path: Path) -> None:
    """`lotnet selftrain` wrote the file when results had no types."""
    done = results.read(FORMAT_1)
    assert [result.seed for result in done.seeds] == [0, 7]
    assert done.seeds[0].images == ImageCounts(39, 10, 151, 200)
    assert done.seeds[0].measured.wrong_pseudo_labels == Share(118, 151)
    results.write(tmp_path / "again.json", done)
    assert (tmp_path / "again.json").read_text() == FORMAT_1.read_text()


def test_a_value_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "selftraining.json"
    path.write_text(FORMAT_1.read_text().replace('"labelled": 39', '"labelled": "39"'))
    reason = re.escape("(seeds[0].images.labelled must be a whole number)")
    with pytest.raises(InputError, match=rf"selftraining.json is damaged {reason}: delete it"):
        results.read(path)


DAMAGED = {
    "{": "it is not JSON",
    "\xff": "it is not JSON",
    "[]": "it is not a JSON object",
    "3": "it is not a JSON object",
    "{}": "it has no format version",
    '{"format": 1}': "seeds is missing",
    '{"format": 1, "seeds": []}': "seeds is empty",
    '{"format": 1, "seeds": [{}]}': "seeds[0].seed is missing",
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.items())
def test_a_damaged_file_is_refused_with_the_reason(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "selftraining.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=rf"selftraining.json is damaged \({re.escape(reason)}\): delete it"):
        results.read(path)


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .* \(Is a directory\): check its permissions and the disk"):
        results.read(tmp_path)


def test_a_file_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "selftraining.json"
    path.write_text(FORMAT_1.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(InputError, match="has format 9, this lotnet reads 1"):
        results.read(path)
