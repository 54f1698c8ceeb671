"""The model card: what a model is for, what is proved about it, what is not, and how to load it."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lotnet.certification.formatting import rounded_down
from lotnet.certification.plain import in_255ths
from lotnet.errors import printable
from lotnet.frozen.model import FrozenModel

if TYPE_CHECKING:
    from lotnet.pretrained.packed import Packed

CARD = "README.md"
_CLAIMS = {
    "plain": "standard certificate (assumes exactly 1-Lipschitz layers and exact arithmetic)",
    "real": "claim A (the function of the stored tensors, in real arithmetic)",
    "float": "claim B (the float64 program, for every representable input)",
}


def frozen_card(model: FrozenModel, name: str, certificates: Mapping[str, Any] | None) -> str:
    """The card of a folder with a frozen model. `certificates` is the content of a certificates.json."""
    data = model.settings.get("data")
    checksum = f"Checksum of stages and tensors: `{model.settings['checksum']}`."
    return _card(
        name=name,
        data=data,
        facts=_facts(model.input_shape, data, model.settings.get("classes", ()), checksum),
        certificates=certificates,
        more=[],
        comment="the path of this folder",
        files="`model.safetensors` holds the tensors and `config.json` the structure. There is no pickle: loading runs "
        "no code, and refuses tensors that do not match the checksum.",
    )


def packed_card(name: str, packed: "Packed", sha256: str) -> str:
    """The card of a folder with a packed model. `sha256` is the one in its packed.json."""
    images, data, result = packed.images, packed.data, packed.result
    shape = (images.channels, images.height, images.width)
    return _card(
        name=name,
        data=data,
        facts=_facts(shape, data, packed.classes, f"SHA-256 of kernels and settings: `{sha256}`."),
        certificates=None if result is None else {"summary": result, "split": "test", "data": data},
        more=["## How it was trained", _trained(packed.trained)],
        comment="its name if it comes with lotnet, else the path of this folder",
        files="`kernels.safetensors` holds the free kernels in half precision, and `packed.json` the settings to build "
        "the network. Loading orthogonalises the kernels again, in float64. The table above is about the resulting "
        "network. There is no pickle: loading runs no code, and refuses kernels and settings that do not match their "
        "SHA-256.",
    )


def _card(
    *,
    name: str,
    data: str | None,
    facts: str,
    certificates: Mapping[str, Any] | None,
    more: Sequence[str],
    comment: str,
    files: str,
) -> str:
    """The card in Markdown, with the header that model hubs read. `comment` explains the argument of `lotnet.load`."""
    sections = [
        _header(data),
        f"# {printable(name)}",
        "An image classifier whose predictions come with a proof. Each image gets a radius: no change of the image "
        "whose l2 norm is smaller than the radius changes the predicted class.",
        facts,
        "## What is proved",
        _proved(certificates),
        "*Claim A*: in real arithmetic, the function that the stored tensors define predicts the same class for every "
        "input closer than the radius. *Claim B*: so does lotnet's float64 program that computes it, for every "
        "representable input, whatever the order of its sums. Radii are l2, in pixels of [0, 1].",
        "Nothing is proved about other changes, such as rotations; about whether a prediction is correct; about the "
        "program that resizes an image for the model; or about programs in lower precision.",
        *more,
        "## How to load it",
        f"```python\nimport lotnet\n\nmodel = lotnet.load({json.dumps(name)})  # {comment}\n```",
        f"```sh\nlotnet predict {name} photo.png\nlotnet certify {name}\n```",
        files,
    ]
    return "\n\n".join(sections) + "\n"


def _facts(shape: Sequence[int], data: str | None, classes: Sequence[object], checksum: str) -> str:
    """The input, data set, classes and checksum of a model, as a list."""
    names = ", ".join(printable(str(name)) for name in classes)
    return "\n".join(
        (
            f"* Input: images of {' x '.join(map(str, shape))} (channels, height, width), pixels in [0, 1]. The model "
            "normalises them itself.",
            f"* Data set: {data or 'not recorded'}.",
            f"* Classes, in the order of the logits: {names or 'not recorded'}.",
            f"* {checksum}",
        )
    )


def _header(data: str | None) -> str:
    lines = ["library_name: lotnet", "pipeline_tag: image-classification", "tags:"]
    lines += [f"- {tag}" for tag in ("certified-robustness", "lipschitz", "orthogonal-convolution")]
    if data is not None and ":" not in data:  # folder:PATH is not a public data set
        lines += ["datasets:", f"- {data}"]
    return "\n".join(["---", *lines, "---"])


def _proved(certificates: Mapping[str, Any] | None) -> str:
    if certificates is None:
        return "This card was written without certificates. `lotnet certify` on this folder proves a radius per image."
    summary = certificates["summary"]
    radii = [in_255ths(radius) for radius in summary["radii"]]
    rows = [
        [
            _CLAIMS[claim],
            *(f"{share:.2%}" for share in summary["certified"][claim]),
            str(rounded_down(summary["mean_radius"][claim], 4)),
        ]
        for claim in _CLAIMS
    ]
    table = _table(["certificate", *(f"at {radius}" for radius in radii), "mean radius"], rows)
    return (
        f"Share of images that are classified correctly and certified at a radius, of {summary['images']} images of "
        f"the {certificates['split']} split of {certificates['data']}. {summary['clean']:.2%} are classified "
        f"correctly.\n\n{table}\n\n"
        f"Proved Lipschitz bound of the features before the last layer: {summary['lipschitz_bound']:.6f}."
    )


def _trained(trained: Mapping[str, Any]) -> str:
    """The recorded settings of the training run, and the hardware and versions of each session."""
    if not trained:
        return "Not recorded."
    loss, optimizer, trainer = (trained[group] for group in ("loss", "optimizer", "trainer"))
    settings = ", ".join(f"{key} {value}" for key, value in loss.items() if key != "kind")
    lines = [
        f"* Loss: {loss['kind']}{f' ({settings})' if settings else ''}.",
        f"* Optimizer: {optimizer['name']}, learning rate {optimizer['lr']:g}, schedule {optimizer['schedule']}, "
        f"weight decay {optimizer['weight_decay']:g}.",
        f"* Epochs: {trainer['epochs']}, in batches of {trainer['batch_size']}; seed {trained['seed']}.",
    ]
    for session in trained["sessions"]:
        commit = "" if session["commit"] is None else f" at commit {session['commit']}"
        versions = session["versions"]
        lines.append(
            f"* On {session['hardware']['device']}, with torch {versions['torch']} and lotnet "
            f"{versions['lotnet']}{commit}."
        )
    return "\n".join(lines)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
