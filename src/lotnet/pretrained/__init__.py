"""Model folders with a model card, and the models that come with lotnet.

    lotnet.save_pretrained(model, "my-model")  # model.safetensors, config.json and a model card, README.md
    model = lotnet.load("my-model")
    model = lotnet.load("lipconvnet5-cifar10")  # comes with lotnet; `shipped_names()` lists all

A shipped model is a packed model (`lotnet.pretrained.packed`), in a folder of its name beside this file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lotnet.frozen.model import FrozenModel
from lotnet.pretrained import packed
from lotnet.pretrained.cache import load_cached
from lotnet.pretrained.folder import save_pretrained
from lotnet.runs.directory import is_run

__all__ = ["Source", "resolve", "save_pretrained", "shipped_names"]

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Source:
    """What a user means by the name of a model: a folder, and what is in it."""

    kind: Literal["run", "packed", "frozen", "shipped"]
    """A shipped model is a packed model that comes with lotnet."""
    folder: Path
    place: Path
    """Where files about the model belong: `folder`; for a shipped model runs/NAME, which may not exist."""

    def read_packed(self) -> packed.Packed | None:
        """The packed model with its free kernels; None if the source is of another kind."""
        return packed.read(self.folder) if self.kind in ("packed", "shipped") else None

    def load_frozen(self) -> FrozenModel:
        """Load a model that is not a run. A packed model is unpacked and frozen on this machine.

        The first call for a shipped model keeps a frozen copy (`lotnet.pretrained.cache`).
        """
        if self.kind == "shipped":
            return load_cached(self.folder)
        stored = self.read_packed()
        return FrozenModel.load(self.folder) if stored is None else stored.unpack()


def resolve(source: str | Path) -> Source | None:
    """Find the run directory, the model folder or the shipped model that `source` names; None if there is none.

    A folder comes before a shipped model of the same name.
    """
    path = Path(source)
    if is_run(path):
        return Source("run", path, path)
    if packed.is_packed(path):
        return Source("packed", path, path)
    if (path / "config.json").is_file():  # of `save_pretrained` or `FrozenModel.save`
        return Source("frozen", path, path)
    if str(source) in shipped_names():
        return Source("shipped", FOLDER / source, Path("runs") / source)
    return None


def shipped_names() -> list[str]:
    """Names of the models that come with lotnet."""
    return sorted(file.parent.name for file in FOLDER.glob(f"*/{packed.SETTINGS}"))
