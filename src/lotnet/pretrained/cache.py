"""Frozen copies of the models that come with lotnet, in the user's cache, because freezing takes seconds.

Invariants:

* the cache is the folder `models` beside the prepared data sets: $LOTNET_DATA, else ~/.cache/lotnet. It may be deleted
  at any time;
* a copy is used only if its tensors have the checksum in its settings. Otherwise the model is frozen again, and the
  copy replaced. So neither a damaged copy nor two processes that write at a time can change a model;
* a change of the packed model, of the version of lotnet or of PyTorch leads to a new copy;
* where nothing can be written, models are frozen at each call, without an error.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

import torch

from lotnet import __version__
from lotnet.data.cache import root_folder
from lotnet.errors import InputError
from lotnet.files import make_folder
from lotnet.frozen.model import FORMAT, FrozenModel
from lotnet.pretrained import packed


def load_cached(folder: Path) -> FrozenModel:
    """Load the packed model in `folder`, frozen now or by an earlier call."""
    model = packed.read(folder)
    copy = root_folder() / "models" / f"{folder.name}-{_version(folder)}"
    with suppress(InputError):  # there is none yet, or it is damaged
        return FrozenModel.load(copy)
    frozen = model.unpack()
    with suppress(InputError, OSError):
        make_folder(copy)
        frozen.save(copy)
    return frozen


def _version(folder: Path) -> str:
    """A digest of all that the copy depends on. The settings of a packed model hold the SHA-256 of its kernels."""
    digest = hashlib.sha256((folder / packed.SETTINGS).read_bytes())
    digest.update(f"{__version__} {torch.__version__} {FORMAT}".encode())
    return digest.hexdigest()[:16]
