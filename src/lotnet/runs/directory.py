"""Run directories. Training writes settings, environment, metrics and checkpoints; `certify` adds its proofs.

Invariants:

* `config.yaml` is enough to repeat the run;
* every JSON and YAML file carries a format version;
* every file is written atomically, so a process killed at any moment leaves a directory that `--resume` can continue.
"""

import hashlib
import shutil
from pathlib import Path

from torch import nn

from lotnet.config import RunConfig
from lotnet.data import Dataset
from lotnet.errors import InputError
from lotnet.files import atomic_write, exclusive_lock, is_partial_file, make_folder, remove_partial_files
from lotnet.frozen.model import FrozenModel
from lotnet.models import ImageSpec
from lotnet.records import read_record, write_record
from lotnet.runs.attacks import FILE as ATTACKS
from lotnet.runs.attacks import LINF_FILE as LINF
from lotnet.runs.certificates import Certification, certificate_files, read_certification
from lotnet.runs.checkpoint import Checkpoints, DamagedError, read, strip_prefix
from lotnet.runs.data import image_spec
from lotnet.runs.environment import FORMAT, Environment, Session
from lotnet.runs.metrics import EpochMetrics, MetricsFile

SELF_TRAINING_PLAN = "selftraining.yaml"
"""The settings of a self-training run, in the folder of its teacher and student."""
_PARTS = (
    "environment.json",
    "metrics.jsonl",
    "checkpoints",
    "tensorboard",
    "model",
    ATTACKS,
    LINF,
    "packed",
    "model.onnx",
    "model-float64.onnx",
    "model.pt2",
    "model-float64.pt2",
    "report.html",
    "analysis",
)
"""Everything that lotnet writes into a run beside `certificate_files`. Overwriting a run removes both, and nothing
else."""


def is_run(path: Path) -> bool:
    """Whether the folder is a run directory."""
    return (path / "config.yaml").is_file()


class Run:
    """A run directory. Make a new one by `Run.create(path, config)`, or read one by `Run.open(path)`."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.metrics_file = MetricsFile(path / "metrics.jsonl")
        self.environment_file = path / "environment.json"

    @staticmethod
    def create(path: Path, config: RunConfig, overwrite: bool = False) -> "Run":
        """Make a run in a new or empty directory. `overwrite` removes a run that is there, but never anything else."""
        _make_room(path, overwrite)
        make_folder(path, "choose another --out")
        atomic_write(path / "config.yaml", config.to_yaml().encode())  # first: from now on this is a run
        make_folder(path / "checkpoints", "choose another --out")
        return Run(path, config)

    @staticmethod
    def open(path: Path) -> "Run":
        try:
            text = (path / "config.yaml").read_text()
        except (OSError, UnicodeDecodeError):
            raise InputError(f"{path} holds no run: start one with `lotnet train --out {path}`") from None
        return Run(path, RunConfig.from_yaml(text, str(path / "config.yaml")))

    @staticmethod
    def open_or_create(path: Path, config: RunConfig, remedy: str = "choose another folder, or repeat them") -> "Run":
        """Open the run with these settings to continue it, or make it. `remedy` is for a run with other settings."""
        if not is_run(path):
            return Run.create(path, config)
        run = Run.open(path)
        if run.config != config:
            raise InputError(f"{path} was trained with other settings: {remedy}")
        return run

    def images(self) -> ImageSpec:
        """Image size, classes and statistics that the model was built for. The data are not needed."""
        return self.environment().images

    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the logits."""
        return self.environment().classes

    def best_model(self) -> nn.Sequential:
        """The model with the weights of the best checkpoint, in `eval()` mode on the CPU."""
        if not self.checkpoints.best.is_file():
            raise InputError(
                f"{self.path} has no finished epoch yet: continue it with `lotnet train --resume {self.path}`"
            )
        _, tensors = read(self.checkpoints.best, self.config.fingerprint())
        model = self.config.model.build(self.images())
        if self.config.trainer.precision == "double":
            model = model.double()
        model.load_state_dict(strip_prefix(tensors, "weights"))
        return model.eval()

    def best_digest(self) -> str | None:
        """SHA-256 of the best checkpoint, or None if there is none. Certificates store it to name their checkpoint."""
        if not self.checkpoints.best.is_file():
            return None
        return hashlib.sha256(self.checkpoints.best.read_bytes()).hexdigest()

    def is_finished(self) -> bool:
        """Whether the last epoch was trained and saved."""
        try:
            position, _ = read(self.checkpoints.steps()[-1], self.config.fingerprint())
        except (IndexError, DamagedError):  # there is no checkpoint, or it is damaged: training goes on
            return False
        return position.epoch == self.config.trainer.epochs

    def metrics(self) -> list[EpochMetrics]:
        """One record for each finished epoch."""
        return self.metrics_file.read()

    def record_session(
        self, dataset: Dataset, parameters: int, session: Session, finished: bool = False, initial: str | None = None
    ) -> None:
        """Add a session to environment.json. Refuses data that have changed since the run was started.

        `initial` is the digest of the weights that the run starts from, where this session has read them. A finished
        run trains no more, so its file is only written if it is missing.
        """
        images = image_spec(dataset)
        earlier: tuple[Session, ...] = ()
        if self.environment_file.exists():
            known = self.environment()
            if known.images != images:
                raise InputError(
                    f"the images of {dataset.name} are not those that {self.path} was started with: put them back, or "
                    "start a new run"
                )
            if finished:
                return
            earlier, initial = known.sessions, initial or known.initial
        record = Environment(dataset.name, tuple(dataset.classes), images, parameters, (*earlier, session), initial)
        write_record(self.environment_file, record, FORMAT)

    def environment(self) -> Environment:
        """Data, classes and images of the run, and one record for each session."""
        remedy = f"delete it if it is there, and `lotnet train --resume {self.path}` writes it again"
        return read_record(Environment, self.environment_file, remedy)

    def certification(self) -> Certification:
        """Read the certificates: those of all test images, else of the largest part of them, else of training images.

        Refuses certificates of an older best checkpoint.
        """
        certify, files = f"`lotnet certify {self.path}`", certificate_files(self.path)
        if not files:
            raise InputError(f"{self.path} has no certificates yet: make them with {certify}")
        now = self.best_digest()
        for file in files:
            found = read_certification(file, f"make it again with {certify}")
            # A run that was copied without its checkpoints has nothing to compare with.
            if None in (found.checkpoint, now) or found.checkpoint == now:
                return found
        raise InputError(
            f"{self.path} was trained further after it was certified: make its certificates again with {certify}"
        )

    def frozen_model(self) -> FrozenModel:
        """Load the model that `lotnet certify` stored in RUN/model, if it is of the present best checkpoint.

        Otherwise an `InputError` says why not. A run that was copied without its checkpoints has only this model.
        """
        make = f"make it with `lotnet certify {self.path}`"
        if not certificate_files(self.path) or not (self.path / "model").exists():
            raise InputError(f"{self.path} holds no frozen model: {make}")
        known = self.certification()
        model = FrozenModel.load(self.path / "model")
        if known.checksum != model.spec.checksum:
            raise InputError(f"{self.path} holds a frozen model that its certificates are not about: {make}")
        return model


def fresh_path(recipe: str, folder: Path = Path("runs")) -> Path:
    """The path runs/RECIPE-N with the first free N."""
    name = recipe.removesuffix(".yaml").removesuffix(".yml").strip("/.").replace("/", "-")
    n = 1
    while (folder / f"{name}-{n}").exists():
        n += 1
    return folder / f"{name}-{n}"


def _make_room(path: Path, overwrite: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise InputError(f"{path} is a file: choose another --out")
    if all(map(_is_leftover, path.iterdir())):
        remove_partial_files(path)
        return
    if not overwrite:
        raise InputError(
            f"{path} exists: continue it with --resume {path}, replace it with --overwrite, or choose another --out"
        )
    if not is_run(path):
        raise InputError(f"{path} is not a run and is not overwritten: choose another --out")
    with exclusive_lock(path):
        remove_partial_files(path)
        # config.yaml stays until it is replaced, so a kill at any moment leaves a run.
        for victim in (*certificate_files(path), *(path / name for name in _PARTS)):
            if victim.is_dir() and not victim.is_symlink():
                shutil.rmtree(victim)
            else:
                victim.unlink(missing_ok=True)


def _is_leftover(path: Path) -> bool:
    """Whether a run that was killed while it was made left this: a half-written file, or no checkpoints yet."""
    return is_partial_file(path) or (path.name == "checkpoints" and path.is_dir() and not any(path.iterdir()))
