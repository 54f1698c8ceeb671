"""Model folders with a model card, and the models that come with lotnet.

    lotnet.save_pretrained(model, "my-model")  # model.safetensors, config.json and a model card, README.md
    model = lotnet.load("my-model")
    model = lotnet.load("lipconvnet5-cifar10")  # comes with lotnet; `shipped_names()` lists all

A shipped model is a packed model (`lotnet.pretrained.packed`), in a folder of its name beside this file.
"""

from pathlib import Path

from lotnet.frozen.model import FrozenModel
from lotnet.pretrained import packed
from lotnet.pretrained.cache import load_cached
from lotnet.pretrained.folder import save_pretrained

__all__ = ["is_model_folder", "load_folder", "load_shipped", "read_packed", "save_pretrained", "shipped_names"]

FOLDER = Path(__file__).parent


def shipped_names() -> list[str]:
    """Names of the models that come with lotnet."""
    return sorted(file.parent.name for file in FOLDER.glob(f"*/{packed.SETTINGS}"))


def load_shipped(name: str) -> FrozenModel:
    """Load a model that comes with lotnet, by its name. The first call freezes it on this machine and keeps a copy."""
    return load_cached(FOLDER / name)


def read_packed(source: str | Path) -> packed.Packed | None:
    """The packed model in a folder or of a shipped name, with its free kernels; None if it is neither."""
    folder = FOLDER / source if str(source) in shipped_names() else Path(source)
    return packed.read(folder) if packed.is_packed(folder) else None


def is_model_folder(folder: Path) -> bool:
    """Whether `save_pretrained`, `FrozenModel.save` or `lotnet pack` wrote this folder."""
    return (folder / "config.json").is_file() or packed.is_packed(folder)


def load_folder(folder: Path) -> FrozenModel:
    """Load a frozen model from a folder. A packed model is unpacked and frozen on this machine."""
    return packed.read(folder).unpack() if packed.is_packed(folder) else FrozenModel.load(folder)
