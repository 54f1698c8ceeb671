"""Models to take away: folders that explain themselves, and those that come with lotnet.

    lotnet.save_pretrained(model, "my-model")  # model.safetensors, config.json and a model card, README.md
    model = lotnet.from_pretrained("my-model")
    model = lotnet.load("lipconvnet5-cifar10")  # one that comes with lotnet; `names()` lists them

A model that comes with lotnet is a packed one (`lotnet.pretrained.packed`) in a folder of its name beside this file.
Loading runs no code that the folder brings, and no function here opens a connection.
"""

from pathlib import Path

from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.pretrained import packed
from lotnet.pretrained.folder import save_pretrained

__all__ = ["from_pretrained", "load", "names", "save_pretrained"]

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Of the models that come with lotnet."""
    return sorted(file.parent.name for file in FOLDER.glob(f"*/{packed.SETTINGS}"))


def load(name: str) -> FrozenModel:
    """The model of that name that comes with lotnet, frozen on this machine.

    >>> import lotnet
    >>> lotnet.load("resnet-50")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    lotnet.errors.InputError: no model resnet-50 comes with lotnet: ...
    """
    if name not in names():
        choices = ", ".join(names())
        raise InputError(
            f"no model {name} comes with lotnet: choose one of {choices}, or open a folder with from_pretrained"
        )
    return packed.read(FOLDER / name).unpack()


def from_pretrained(folder: str | Path) -> FrozenModel:
    """The model in a folder: one that `save_pretrained`, `FrozenModel.save` or `lotnet pack` wrote.

    >>> import tempfile, lotnet, torch
    >>> model = lotnet.freeze(torch.nn.Sequential(lotnet.OrthogonalConv2d(1, 2, 3)), image_size=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lotnet.save_pretrained(model, folder)
    ...     lotnet.from_pretrained(folder).checksum() == model.checksum()
    True
    """
    if packed.is_packed(Path(folder)):
        return packed.read(Path(folder)).unpack()
    return FrozenModel.load(folder)
