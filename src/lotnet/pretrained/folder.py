"""Folders that explain themselves: a frozen model beside a model card that says what is proved of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotnet.errors import InputError
from lotnet.files import write_whole
from lotnet.frozen.model import FrozenModel
from lotnet.pretrained.card import model_card

CARD = "README.md"


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
    found = _read(certificates)
    if found is not None and found.get("checksum") != model.settings["checksum"]:
        raise InputError("these certificates are of another model: run `lotnet certify` on this one and pass its file")
    model.save(folder)
    write_whole(Path(folder) / CARD, model_card(model, name or Path(folder).resolve().name, found).encode())


def _read(certificates: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if certificates is None or isinstance(certificates, Mapping):
        return certificates
    try:
        content = json.loads(Path(certificates).read_text())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or "summary" not in content:
        raise InputError(f"{certificates} holds no certificates: `lotnet certify RUN` writes RUN/certificates.json")
    return content
