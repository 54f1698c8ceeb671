"""The self-training pipeline: teacher, pseudo-labels, student, certificates, measured theorems.

Invariants:

* settings that cannot work are refused before anything is written;
* each stage is complete on disk before the next one starts. A resumed pipeline reads the finished stages, continues an
  interrupted training run from its last checkpoint, and ends with the same bits as one that was never interrupted.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from lightning_fabric import Fabric
from rich.console import Console

from lotnet.certification.plain import RADII
from lotnet.certify_run import certify_split, known_certification
from lotnet.config import RunConfig
from lotnet.data import Dataset, Mixture
from lotnet.errors import InputError
from lotnet.load_model import LoadedModel, load_model
from lotnet.progress import progress_bar
from lotnet.runs.data import image_spec, load_data
from lotnet.runs.directory import Run
from lotnet.runs.selftraining import CertifiedAccuracy, ImageCounts, Measured
from lotnet.selftraining import pseudolabels, results
from lotnet.selftraining.plan import FILE, STUDENT, TEACHER, Parts, Plan, divide
from lotnet.selftraining.results import Results, SeedResult
from lotnet.selftraining.theorems import measure, statements
from lotnet.selftraining.unlabeled_images import load_unlabeled
from lotnet.training.launch import launch, make_fabric
from lotnet.training.loop import train
from lotnet.training.signals import Interrupted, stop_signals


class Pipeline:
    """Self-training by a plan, in one process. Messages and progress bars go to the console."""

    def __init__(self, plan: Plan, device: str, console: Console) -> None:
        """Load the data, and refuse a plan that cannot work with them. Writes nothing."""
        self.plan, self.console = plan, console
        self.fabric = make_fabric(plan.training.trainer, device)
        if self.fabric.world_size > 1:
            raise InputError("self-training runs in one process: start it without torchrun")
        launch(self.fabric)
        self.dataset = load_data(plan.training)
        source, limit = plan.selftraining.unlabeled, plan.training.limit
        self._extra = load_unlabeled(self.dataset, source, limit, self.fabric.device, plan.training.data.root)
        for seed in plan.seeds:
            _check(plan, self.parts(seed))

    def parts(self, seed: int) -> Parts:
        """The images that each stage of this seed may see."""
        return divide(self.dataset, self.plan.selftraining, seed, self._extra)

    def run(self, root: Path) -> Results:
        """Run all stages of all seeds that are not finished under `root`, and write `root`/selftraining.json.

        Raises `Interrupted` on a signal. Call `run` again to continue.
        """
        self.console.print(f"self-training {root} on {self.fabric.device}", soft_wrap=True, highlight=False)
        with _stop_on_signals():
            done = Results(tuple(self._run_seed(root, seed) for seed in self.plan.seeds))
            results.write(root / results.FILE, done)
        return done

    def _run_seed(self, root: Path, seed: int) -> SeedResult:
        folder = self.plan.folder(root, seed)
        if not (folder / FILE).is_file():
            self.plan.for_seed(seed).write(folder)
        path = folder / results.FILE
        if path.is_file():
            stored = results.read(path).seeds[0]
            self.console.print(f"{folder} is done already", soft_wrap=True, highlight=False)
            return stored
        result = Stages(self.plan, seed, folder, self.parts(seed), self.fabric, self.console).run()
        results.write(path, Results((result,)))
        return result


@dataclass(frozen=True, eq=False)
class Stages:
    """The stages of one seed. Each reads its finished results from `folder`, and computes the rest."""

    plan: Plan
    seed: int
    folder: Path
    parts: Parts
    fabric: Fabric
    console: Console

    def run(self) -> SeedResult:
        parts = self.parts
        teacher = self.teacher()
        found = self.label(teacher)
        student = self.train(STUDENT, parts.for_student(found))
        measured = self.measure(teacher, student, found)
        chosen = None if self.plan.selftraining.most_confident is None else len(parts.chosen(found))
        return SeedResult(
            seed=self.seed,
            images=ImageCounts(
                labeled=len(parts.labeled),
                held_out=len(parts.held_out),
                unlabeled=len(parts.images),
                test=len(parts.dataset.test),
                near_duplicates=parts.near_duplicates,
                chosen=chosen,
            ),
            radii=tuple(RADII),
            teacher=self.certify(teacher),
            student=self.certify(student),
            measured=measured,
            theorems=statements(measured),
        )

    def teacher(self) -> LoadedModel:
        """Train the teacher, or load the run that the plan names."""
        given = self.plan.selftraining.teacher
        return self.train(TEACHER, self.parts.for_teacher()) if given is None else load_model(given)

    def train(self, name: str, dataset: Dataset) -> LoadedModel:
        """Train the teacher or the student to the end, from the last checkpoint if there is one, and freeze it."""
        config, path = self.plan.stage(name, self.seed), self.folder / name
        remedy = f"restore its config.yaml and {self.folder / FILE}, or start again"
        run = Run.open_or_create(path, config, remedy)
        if not run.is_finished():
            self._say(f"training the {name} of seed {self.seed} on {len(dataset.train)} images")
            train(run, dataset, self.fabric, self.console, self.parts.held_out, _command())
        return load_model(str(path))

    def label(self, teacher: LoadedModel) -> pseudolabels.PseudoLabels:
        """Label the unlabeled images by the teacher. Stores the labels, so that they are computed only once."""
        parts = self.parts
        stored = pseudolabels.read(self.folder, parts.images, teacher.model)
        if stored is not None:
            return stored
        student = self.folder / STUDENT
        if student.exists():  # it was trained on other labels than the teacher would give now
            raise InputError(f"{student} was trained on pseudo-labels that are gone: delete it to train it again")
        self._say(f"labelling {parts.source}")
        with progress_bar(self.console) as progress:
            task = progress.add_task("labelling", total=len(parts.images))
            found = pseudolabels.label(
                teacher.model.to(self.fabric.device),
                parts.images,
                len(parts.dataset.classes),
                progress=lambda n: progress.update(task, advance=n),
            )
        origin = pseudolabels.Origin(
            parts.source, parts.dataset.classes, parts.near_duplicates, self._origin_of(teacher)
        )
        pseudolabels.write(self.folder, found, parts.images, teacher.model, origin)
        return found

    def _origin_of(self, teacher: LoadedModel) -> pseudolabels.Teacher:
        """The teacher's run and settings. Its own run stands beside the labels, a given one elsewhere."""
        assert teacher.run is not None
        run = self.plan.selftraining.teacher or TEACHER
        return pseudolabels.Teacher(run, teacher.run.config.to_dict())

    def measure(self, teacher: LoadedModel, student: LoadedModel, found: pseudolabels.PseudoLabels) -> Measured:
        device = self.fabric.device
        with progress_bar(self.console) as progress:
            task = progress.add_task("certifying unlabeled images", total=None)
            return measure(
                teacher.model.to(device),
                student.model.to(device),
                found,
                self.parts,
                self.plan.selftraining.ball,
                lambda n: progress.update(task, advance=n),
            )

    def certify(self, loaded: LoadedModel) -> CertifiedAccuracy:
        """Certify the test images, unless certificates.json has the same images, radii and network already."""
        test, radii = loaded.split("test", self.plan.training.limit), list(RADII)
        done = known_certification(loaded, loaded.folder, "test", test)
        if done is None or not set(radii) <= set(done.summary.radii):
            done = certify_split(loaded, "test", test, radii, self.fabric.device, self.console)
        return CertifiedAccuracy.of(done.summary.at(radii), done.checksum)

    def _say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, highlight=False)


def create(root: Path, plan: Plan) -> None:
    """Make a new directory for self-training, and store the plan there. An existing one is never changed."""
    if (root / FILE).is_file():
        raise InputError(f"{root} exists: continue it with --resume {root}, or choose another --out")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{root} exists and is no self-training: choose another --out")
    plan.write(root)


def _check(plan: Plan, parts: Parts) -> None:
    plan.training.model.build(image_spec(parts.dataset))
    size, share = plan.training.trainer.batch_size, plan.selftraining.unlabeled_share
    if share is not None:
        Mixture(len(parts.labeled), share).steps(size)
    if len(parts.labeled) < size:
        raise InputError(
            f"{len(parts.labeled)} labeled images do not fill one batch of {size}: lower trainer.batch_size or show "
            "more labels"
        )
    if plan.selftraining.teacher is not None:
        _check_teacher(plan.selftraining.teacher, plan.training)


def _check_teacher(name: str, training: RunConfig) -> None:
    """Check that a given teacher was trained to its end, on the images that the student learns from."""
    run = Run.open(Path(name))
    if (run.path.parent / FILE).is_file():  # its settings do not say which labels it has seen
        raise InputError(f"{name} is part of a self-training run: give a run of `lotnet train` as the teacher")
    if not run.is_finished():
        raise InputError(f"{name} is not trained to its end: continue it with `lotnet train --resume {name}`")
    theirs = run.config
    if (theirs.data.name, theirs.limit) != (training.data.name, training.limit):
        raise InputError(
            f"the teacher {name} was trained on {theirs.data.name} with limit {theirs.limit}, not on "
            f"{training.data.name} with limit {training.limit}: use a teacher that has seen the same images"
        )


def _command() -> list[str]:
    """The command line of this process if it is one of self-training, else one that says that it was self-training."""
    return sys.argv if "selftrain" in sys.argv[1:2] else ["lotnet", "selftrain"]


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    """Raise `Interrupted` on a signal between training runs: finished stages are on disk. Runs handle their own."""

    def stop(signum: int, _: FrameType | None) -> None:
        raise Interrupted(signum)

    before = {signum: signal.signal(signum, stop) for signum in stop_signals()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
