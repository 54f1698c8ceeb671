"""The model card: what a model is for, what is proved of it and what is not, and how to load it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lotnet.certification.formatting import rounded_down
from lotnet.certification.plain import in_255ths
from lotnet.frozen.model import FrozenModel
from lotnet.models import ImageSpec

CARD = "README.md"
_CLAIMS = {
    "plain": "plain (the literature's formula, which trusts layers and arithmetic)",
    "real": "claim A (the function of the stored tensors, in real arithmetic)",
    "float": "claim B (the float64 program, for every representable input)",
}


def frozen_card(model: FrozenModel, name: str, certificates: Mapping[str, Any] | None) -> str:
    """That of a folder with a frozen model; `certificates` is the content of a certificates.json."""
    return _card(
        name=name,
        shape=model.input_shape,
        classes=[str(label) for label in model.settings.get("classes", ())],
        data=model.settings.get("data"),
        certificates=certificates,
        identity=f"Checksum of stages and tensors: `{model.settings['checksum']}`.",
        more=[],
        loading=f"model = lotnet.load({json.dumps(name)})  # this folder's path",
        files="`model.safetensors` holds the numbers and `config.json` the structure. There is no pickle: loading runs "
        "no code, and refuses tensors that do not match the checksum.",
    )


def packed_card(
    name: str,
    images: ImageSpec,
    classes: Sequence[str],
    data: str,
    result: Mapping[str, Any] | None,
    trained: Mapping[str, Any],
    sha256: str,
) -> str:
    """That of a folder with a packed model: what certifying came to, and how it was trained."""
    return _card(
        name=name,
        shape=(images.channels, images.height, images.width),
        classes=classes,
        data=data,
        certificates=None if result is None else {"summary": result, "split": "test", "data": data},
        identity=f"SHA-256 of the kernels: `{sha256}`.",
        more=["## How it was trained", _trained(trained)],
        loading=f"model = lotnet.load({json.dumps(name)})  # where it came with lotnet; or\n"
        f"model = lotnet.load({json.dumps(name)})  # this folder's path",
        files="`kernels.safetensors` holds the free kernels in half precision and `packed.json` how to build the "
        "network: loading orthogonalises them anew, in float64, and the table above is of the network that this gives. "
        "There is no pickle: loading runs no code, and refuses kernels that do not match their SHA-256.",
    )


def _card(
    *,
    name: str,
    shape: Sequence[int],
    classes: Sequence[str],
    data: str | None,
    certificates: Mapping[str, Any] | None,
    identity: str,
    more: Sequence[str],
    loading: str,
    files: str,
) -> str:
    """Markdown, with the header that model hubs read."""
    channels, height, width = shape
    sections = [
        _header(data),
        f"# {name}",
        "An image classifier whose predictions come with a proof: for each image, a radius such that no change of the "
        "image smaller than it, measured in l2, changes the predicted class.",
        f"* Input: images of {channels} x {height} x {width} (channels, height, width), pixels in [0, 1]; the "
        "normalisation is inside.\n"
        f"* Data set: {data or 'not recorded'}.\n"
        f"* Classes, in the order of the logits: {', '.join(classes) or 'not recorded'}.\n"
        f"* {identity}",
        "## What is proved",
        _proved(certificates),
        "*Claim A*: in real arithmetic, the function that the stored tensors define predicts the same class for every "
        "input closer than the radius. *Claim B*: so does lotnet's float64 program that computes it, for every "
        "representable input, whatever the order of its sums. Radii are l2, in pixels of [0, 1].",
        "Nothing is proved of other changes, such as rotations, of whether a prediction is right, of what resizes an "
        "image before it enters, nor of programs in lower precision.",
        *more,
        "## How to load it",
        f"```python\nimport lotnet\n\n{loading}\n```",
        f"```sh\nlotnet predict {name} photo.png\nlotnet certify {name}\n```",
        files,
    ]
    return "\n\n".join(sections) + "\n"


def _header(data: str | None) -> str:
    lines = ["library_name: lotnet", "pipeline_tag: image-classification", "tags:"]
    lines += [f"- {tag}" for tag in ("certified-robustness", "lipschitz", "orthogonal-convolution")]
    if data is not None and ":" not in data:  # a folder of one's own is no public data set
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
        f"Share of images that are classified rightly and certified at a radius, of {summary['images']} images of the "
        f"{certificates['split']} split of {certificates['data']}; {summary['clean']:.2%} are classified rightly.\n\n"
        f"{table}\n\n"
        f"Proved Lipschitz bound of the features before the last layer: {summary['lipschitz_bound']:.6f}."
    )


def _trained(trained: Mapping[str, Any]) -> str:
    """The settings that were recorded with the model, and where it ran."""
    if not trained:
        return "Not recorded."
    loss, optimizer, trainer = (trained[group] for group in ("loss", "optimizer", "trainer"))
    settings = ", ".join(f"{key} {value}" for key, value in loss.items() if key != "kind")
    lines = [
        f"* Loss: {loss['kind']}{f' ({settings})' if settings else ''}.",
        f"* Optimiser: {optimizer['name']}, learning rate {optimizer['lr']:g}, schedule {optimizer['schedule']}, "
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
