"""The model card: what a model is for, what is proved about it, what is not, and how to load it.

Its text is the template card.md.j2.
"""

import json
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2

from lotnet.certification.certificate import Claim
from lotnet.certification.formatting import rounded_down
from lotnet.certification.intervals import in_words, wilson
from lotnet.certification.plain import in_255ths
from lotnet.certification.summary import Summary, mistakes
from lotnet.data import is_folder, public_name
from lotnet.errors import printable
from lotnet.frozen.model import FrozenModel
from lotnet.runs.certificates import Certification

if TYPE_CHECKING:
    from lotnet.pretrained.packed import Packed, PackedResult

CARD = "README.md"
_MOST_CLASSES = 50
_MOST_MISTAKES = 10
_CLAIMS: dict[Claim, str] = {
    "plain": "standard certificate (assumes exactly 1-Lipschitz layers and exact arithmetic)",
    "real": "claim A (the function of the stored tensors, in real arithmetic)",
    "float": "claim B (the float64 program, for every representable input)",
}


def frozen_card(model: FrozenModel, name: str, certificates: Certification | None) -> str:
    """The card of a folder with a frozen model. `certificates` are those of the model."""
    about = _about(name, model.input_shape, model.spec.data, model.spec.classes)
    checksum = f"Checksum of stages and tensors: `{model.spec.checksum}`."
    proved = {}
    if certificates is not None:
        proved = _proved(certificates.summary, certificates.split, certificates.total)
        proved["notes"] = certificates.notes
    return _render(**about, **proved, checksum=checksum, packed=False)


def packed_card(name: str, packed: "Packed", sha256: str) -> str:
    """The card of a folder with a packed model. `sha256` is the one in its packed.json."""
    images = packed.images
    about = _about(name, images.shape, packed.data, packed.classes)
    loss = {} if packed.trained is None else packed.trained.loss or {}
    return _render(
        **about,
        **({} if packed.result is None else _proved(packed.result, "test", packed.total)),
        checksum=f"SHA-256 of kernels and settings: `{sha256}`.",
        packed=True,
        trained=packed.trained,
        loss_settings=", ".join(f"{key} {value}" for key, value in loss.items() if key != "kind"),
    )


def _render(**values: Any) -> str:
    text = (resources.files("lotnet.pretrained") / "card.md.j2").read_text()
    rules = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.ChainableUndefined)
    return rules.from_string(text).render(values)


def _about(name: str, shape: Sequence[int], data: str, classes: Sequence[object]) -> dict[str, Any]:
    """What the model is. Of a folder of images, the card has the name and not the path, which is private."""
    return {
        "name": name,
        "title": printable(name),
        "quoted": json.dumps(name),
        "shape": " x ".join(map(str, shape)),
        "data": public_name(data),
        "local": is_folder(data),
        "classes": ", ".join(printable(str(item)) for item in classes),
    }


def _proved(summary: "Summary | PackedResult", split: str, total: int | None) -> dict[str, Any]:
    """What the certificates say. `total` is the number of images of the split, where it is known."""
    claims = [
        {
            "title": title,
            "certified": summary.certified[claim],
            "mean_radius": str(rounded_down(summary.mean_radius[claim], 4)),
        }
        for claim, title in _CLAIMS.items()
    ]
    frequent = mistakes(summary.classes, summary.confusion)[:_MOST_MISTAKES]
    return {
        "summary": summary,
        "split": split,
        "part": "" if total in (None, summary.images) else f" of the {total}",
        "radii": [in_255ths(r) for r in summary.radii],
        "claims": claims,
        "clean_between": in_words(wilson(summary.clean, summary.images)),
        "between": [in_words(wilson(share, summary.images)) for share in summary.certified["float"]],
        "classes_proved": [
            {"title": printable(item.name), "images": item.images, "shares": item.in_words()}
            for item in summary.classes[:_MOST_CLASSES]
        ],
        "unlisted": len(summary.classes) - _MOST_CLASSES,
        "mistakes": [
            f"{printable(m.true)} taken for {printable(m.predicted)}: {m.count} of {m.images}" for m in frequent
        ],
    }
