"""Frozen copies of the models that come with lotnet, in the user's cache, because freezing and proving take seconds.

Invariants:

* the cache is the folder `models` beside the prepared data sets: $LOTNET_DATA, else ~/.cache/lotnet. It may be deleted
  at any time;
* a copy is used only if its tensors have the checksum in its settings. Otherwise the model is frozen again, and the
  copy replaced. So neither a damaged copy nor two processes that write at a time can change a model;
* the Lipschitz bounds that were proved for the copy are stored beside it. They are used only with a model of the
  checksum that they were proved for, and if the file is intact. Otherwise they are proved again;
* a change of the packed model, of lotnet's code or of the version of PyTorch leads to a new copy. The three newest
  copies of a model stay, for environments that are used in turn;
* where nothing can be written, models are frozen at each call, without an error.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

import lotnet
from lotnet.data.cache import root_folder
from lotnet.errors import InputError
from lotnet.files import atomic_write, make_folder
from lotnet.frozen.model import FORMAT, FrozenModel
from lotnet.pretrained import packed
from lotnet.records import parse_json

PROOFS = "proofs.json"
_CODE = ("frozen", "kernels", "layers", "linalg", "models", "operators", "parametrizations", "pretrained")
"""Packages that freezing and proofs depend on."""
_DIGITS = 16
"""Length of the version in a copy's name."""
_COPIES = 3
"""Copies of one model that are kept."""


def load_cached(folder: Path) -> FrozenModel:
    """Load the packed model in `folder`, frozen and proved now or by an earlier call."""
    copy = root_folder() / "models" / f"{folder.name}-{_version(folder)}"
    frozen = None
    with suppress(InputError):  # there is none yet, or it is damaged
        frozen = FrozenModel.load(copy)
    if frozen is None:
        frozen = packed.read(folder).unpack()
        with suppress(InputError, OSError):
            make_folder(copy)
            frozen.save(copy)
            _sweep(copy)
    frozen.adopt_for_float64(frozen.spec.checksum, _read_proofs(copy, frozen) or _prove(copy, frozen))
    return frozen


def _sweep(newest: Path) -> None:
    """Remove old copies of a model. A process that is just reading one of them freezes the model again."""
    copies = list(newest.parent.glob(newest.name[:-_DIGITS] + _DIGITS * "[0-9a-f]"))
    copies.sort(key=lambda folder: (folder == newest, folder.stat().st_mtime), reverse=True)
    for old in copies[_COPIES:]:
        shutil.rmtree(old, ignore_errors=True)


def _prove(copy: Path, model: FrozenModel) -> Mapping[str, float]:
    proofs = model.astype(torch.float64).proofs()
    content = {"checksum": model.spec.checksum, "bounds": {name: b.hex() for name, b in proofs.items()}}
    with suppress(InputError, OSError):
        atomic_write(copy / PROOFS, json.dumps({**content, "digest": _digest(content)}).encode())
    return proofs


def _read_proofs(copy: Path, model: FrozenModel) -> dict[str, float] | None:
    """The stored bounds; None if they are not there, not intact, or of another model."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        content = parse_json((copy / PROOFS).read_text())
        digest = content.pop("digest")
        proofs = {name: float.fromhex(text) for name, text in content["bounds"].items()}
        names = {name for name, part in model.named_modules() if hasattr(part, "lipschitz_bound")}
        sound = proofs.keys() == names and all(0 <= bound < math.inf for bound in proofs.values())
        if sound and digest == _digest(content) and content["checksum"] == model.spec.checksum:
            return proofs
    return None


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _version(folder: Path) -> str:
    """A digest of all that the copy depends on. The settings of a packed model hold the SHA-256 of its kernels."""
    digest = hashlib.sha256((folder / packed.SETTINGS).read_bytes())
    digest.update(f"{torch.__version__} {FORMAT}".encode())
    source = Path(lotnet.__file__).parent
    for file in sorted(file for package in _CODE for file in (source / package).glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:_DIGITS]
