"""Save a frozen model with a model card that says what is proved about it."""

import copy
from pathlib import Path

from lotnet.data import without_path
from lotnet.errors import InputError
from lotnet.files import atomic_write, make_folder
from lotnet.frozen.model import FrozenModel, require_frozen
from lotnet.pretrained.card import CARD, frozen_card
from lotnet.runs.certificates import Certification, read_certification


def save_pretrained(
    model: FrozenModel,
    folder: str | Path,
    certificates: str | Path | Certification | None = None,
    name: str | None = None,
) -> None:
    """Save a frozen model in a folder: `model.safetensors`, `config.json` and the model card, `README.md`.

    The folder is made to be given away: if the model was trained on a folder of images, it has its name and no path.

    Args:
        model: the frozen model, from `freeze` or `load`.
        folder: the folder to write.
        certificates: the certificates.json that `lotnet certify` wrote for this model: its path, or the record in it.
            Without it, the card claims nothing.
        name: the title of the card; by default the name of the folder.

    >>> import tempfile, lotnet, torch
    >>> from pathlib import Path
    >>> model = lotnet.freeze(torch.nn.Sequential(lotnet.OrthogonalConv2d(1, 2, 3)), image_size=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lotnet.save_pretrained(model, folder)
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    """
    require_frozen(model, "saved")
    found = _read(certificates)
    if found is not None and found.checksum != model.spec.checksum:
        raise InputError("these certificates are of another model: run `lotnet certify` on this one and pass its file")
    model = _without_path(model)
    card = frozen_card(model, name or Path(folder).resolve().name, found)  # first, because it can fail
    make_folder(Path(folder))
    model.save(folder)
    atomic_write(Path(folder) / CARD, card.encode(errors="backslashreplace"))


def _without_path(model: FrozenModel) -> FrozenModel:
    """The model, or one with the same modules that names its folder of images without the path."""
    named, classes = without_path(model.spec.data), model.spec.classes
    if named == model.spec.data:
        return model
    model = copy.copy(model)
    model.name_classes(classes or [str(n) for n in range(model.output_shape(model.input_shape)[0])], named)
    return model


def _read(certificates: str | Path | Certification | None) -> Certification | None:
    if certificates is None or isinstance(certificates, Certification):
        return certificates
    if not isinstance(certificates, str | Path):
        raise InputError(f"a {type(certificates).__name__} holds no certificates: pass the path of a certificates.json")
    return read_certification(Path(certificates), "pass what `lotnet certify` wrote, RUN/certificates.json")
