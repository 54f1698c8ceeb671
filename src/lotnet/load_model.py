"""Load a frozen model from the name of a shipped model, a run directory or a model folder.

Loading writes nothing but a copy of a shipped model in the user's cache (`lotnet.pretrained.cache`). For a run, the
model that `lotnet certify` stored in RUN/model is read. Without one, the best checkpoint is frozen in memory, and
`LoadedModel.note` says so.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

from lotnet.data import Dataset, Split, without_path
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.layers import freeze
from lotnet.pretrained import Source, resolve, shipped_names
from lotnet.runs.data import load_for_model, load_with_all_test_images, split_subset
from lotnet.runs.directory import Run

__all__ = ["LoadedModel", "load", "load_model"]

MODEL = "A run directory, a model folder, or the name of a model that comes with lotnet."
"""For --help."""
_SHOWN = 5
"""Most runs that an error message names, the newest first."""


@dataclass(frozen=True)
class LoadedModel:
    """A frozen model with its data set, and its run if it comes from one."""

    model: FrozenModel
    folder: Path
    """The run directory or model folder. For a shipped model it is runs/NAME, which may not exist."""
    classes: tuple[str, ...]
    data: str
    """The data set it was trained on; empty if a model folder does not say it."""
    run: Run | None = None
    checkpoint: str | None = None
    """`Run.best_digest` of the checkpoint that the model was frozen from."""
    note: str | None = None
    """A message for the user about where the model comes from."""

    def split(self, name: str, limit: int | None) -> Split:
        """The test or training images of the model's data set, or `limit` of them."""
        return split_subset(self.dataset(), name, limit)

    def dataset(self) -> Dataset:
        if self.run is not None:
            return load_with_all_test_images(self.run.config)
        if not self.data:
            raise InputError(
                f"{self.folder} does not say which data set the model is for: store it with `name_classes` before the "
                "model is saved"
            )
        return load_for_model(self.data, self.model.input_shape, self.classes, str(self.folder))


def load(source: str | Path) -> FrozenModel:
    """Load a frozen model: the name of one that comes with lotnet, a run directory, or a model folder.

    No code from the folder runs, and no connection is opened. Nothing is written, except that the first call for a
    shipped model keeps a copy in $LOTNET_DATA, by default ~/.cache/lotnet, so that later calls are fast.

    >>> import tempfile, lotnet, torch
    >>> model = lotnet.freeze(torch.nn.Sequential(lotnet.OrthogonalConv2d(1, 2, 3)), image_size=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lotnet.save_pretrained(model, folder)
    ...     lotnet.load(folder).checksum() == model.checksum()
    True
    >>> lotnet.load("resnet-50")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    lotnet.errors.InputError: resnet-50 is neither a run nor a model: ...
    """
    return load_model(source).model


def load_model(source: str | Path) -> LoadedModel:
    """Load a frozen model like `load`, together with its folder, classes, data set and run."""
    found = resolve(source)
    if found is not None:
        return _from_run(Run.open(found.folder)) if found.kind == "run" else _from_folder(found)
    what = "holds neither a run nor a model" if Path(source).is_dir() else "is neither a run nor a model"
    raise InputError(f"{source} {what}: {_near(str(source))}")


def _near(source: str) -> str:
    """The end of an error message: the run or shipped model that was probably meant, or those to choose from."""
    found = {file for folder in (Path("runs"), Path(source).parent) for file in folder.glob("*/config.yaml")}
    runs = [str(file.parent) for file in sorted(found, key=lambda file: -file.stat().st_mtime)]
    by_name = {Path(known).name: known for known in (*shipped_names(), *runs)}
    if close := difflib.get_close_matches(Path(source).name, by_name, n=1):
        return f"did you mean {by_name[close[0]]}?"
    return f"choose one of {', '.join((*runs[:_SHOWN], *shipped_names()))}, or train one with `lotnet train`"


def _from_run(run: Run) -> LoadedModel:
    note = None
    try:
        model = run.frozen_model()
    except InputError as reason:
        if run.best_digest() is None:
            raise  # there is nothing else to load
        model = freeze(run.best_model(), run.images().shape)
        model.name_classes(run.classes(), without_path(run.config.data.name))
        note = f"Froze the best checkpoint in memory, because {reason}"
    return LoadedModel(model, run.path, run.classes(), run.config.data.name, run, run.best_digest(), note)


def _from_folder(found: Source) -> LoadedModel:
    model = found.load_frozen()
    return LoadedModel(model, found.place, model.spec.classes, model.spec.data)
