"""MODEL on the command line: a run, a folder with a frozen or packed model, or the name of one that lotnet has."""

from dataclasses import dataclass
from pathlib import Path

import torch

from lotnet.data import Dataset, Split, load, to_unit
from lotnet.errors import InputError
from lotnet.files import make_folder
from lotnet.frozen.model import FrozenModel
from lotnet.layers import freeze
from lotnet.pretrained import from_pretrained, names, packed
from lotnet.pretrained import load as load_shipped
from lotnet.runs.data import part_of, with_all_tests
from lotnet.runs.directory import Run

MODEL = "A run, a folder with a frozen or packed model, or the name of a model that comes with lotnet."
"""For --help."""


@dataclass(frozen=True)
class LoadedModel:
    """A frozen model, and where what is found out about it is written."""

    model: FrozenModel
    folder: Path
    """Its own, or runs/NAME for one that comes with lotnet; `file` makes it."""
    classes: tuple[str, ...]
    data: str
    """The data set it was trained on."""
    run: Run | None
    checkpoint: str | None = None
    """`Run.best_digest` of what the model was frozen from."""

    def file(self, name: str) -> Path:
        """Where to write a file about the model."""
        make_folder(self.folder, "work in another folder")
        return self.folder / name

    def split(self, name: str, limit: int | None) -> Split:
        return part_of(self.dataset(), name, limit)

    def dataset(self) -> Dataset:
        if self.run is not None:
            return with_all_tests(self.run.config)
        return load(self.data, side=self.model.input_shape[-1])


def load_model(text: str) -> LoadedModel:
    """A run's best checkpoint is frozen anew and written to RUN/model; a frozen one is loaded, checksum and all."""
    path = Path(text)
    if (path / "config.yaml").is_file():
        run = Run.open(path)
        images, checkpoint = run.images(), run.best_digest()
        model = freeze(run.best_model(), (images.channels, images.height, images.width))
        model.settings = model.settings | {"classes": list(run.classes()), "data": run.config.data.name}
        model.save(path / "model")
        return LoadedModel(model, path, run.classes(), run.config.data.name, run, checkpoint)
    if (path / "config.json").is_file() or packed.is_packed(path):
        return _loaded(from_pretrained(path), path)
    if text in names():
        return _loaded(load_shipped(text), Path("runs") / text)
    shipped = f"a model that comes with lotnet ({', '.join(names()) or 'there is none'})"
    raise InputError(
        f"{text} is neither a run, nor a frozen model, nor {shipped}: train one with `lotnet train --out {text}`"
    )


def _loaded(model: FrozenModel, folder: Path) -> LoadedModel:
    classes = tuple(model.settings.get("classes", ()))
    return LoadedModel(model, folder, classes, model.settings.get("data", "digits"), None)


def tensors(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    """Images in [0, 1] as the float64 graph reads them, and labels."""
    return to_unit(split.images, torch.float64), split.labels


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError):
        raise InputError(f"there is no device {name} here: leave --device out, or use cpu") from None
    return device
