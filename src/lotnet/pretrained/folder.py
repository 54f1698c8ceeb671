"""Folders that explain themselves: a frozen model beside a model card that says what is proved of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotnet.errors import InputError
from lotnet.files import atomic_write, make_folder
from lotnet.frozen.model import FrozenModel
from lotnet.pretrained.card import CARD, frozen_card


def save_pretrained(
    model: FrozenModel,
    folder: str | Path,
    certificates: str | Path | Mapping[str, Any] | None = None,
    name: str | None = None,
) -> None:
    """`model.safetensors`, `config.json` and the card, `README.md`, each written whole.

    `certificates` is what `lotnet certify` wrote about this very model, a certificates.json or its content; without it
    the card claims nothing. `name` is the card's title, by default the folder's name.

    >>> import tempfile, lotnet, torch
    >>> from pathlib import Path
    >>> model = lotnet.freeze(torch.nn.Sequential(lotnet.OrthogonalConv2d(1, 2, 3)), image_size=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lotnet.save_pretrained(model, folder)
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    """
    if not isinstance(model, FrozenModel):
        raise InputError(
            f"a {type(model).__name__} cannot be saved: freeze it first with lotnet.freeze(model, image_size)"
        )
    found = _read(certificates)
    if found is not None and found.get("checksum") != model.settings["checksum"]:
        raise InputError("these certificates are of another model: run `lotnet certify` on this one and pass its file")
    card = frozen_card(model, name or Path(folder).resolve().name, found)  # first: a folder without it explains nothing
    make_folder(Path(folder))
    model.save(folder)
    atomic_write(Path(folder) / CARD, card.encode())


def _read(certificates: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if certificates is None:
        return None
    content: Any = certificates
    if not isinstance(certificates, Mapping):
        try:
            content = json.loads(Path(certificates).read_text())
        except (OSError, ValueError):
            content = None
    if not isinstance(content, Mapping) or "summary" not in content:
        given = "this dict" if isinstance(certificates, Mapping) else certificates
        raise InputError(f"{given} holds no certificates: `lotnet certify RUN` writes RUN/certificates.json")
    return content
