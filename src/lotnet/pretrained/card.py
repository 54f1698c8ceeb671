"""The model card: what a model is for, what is proved of it and what is not, and how to load it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lotnet.certification.plain import in_255ths
from lotnet.certification.shown import rounded_down
from lotnet.frozen.model import FrozenModel

_CLAIMS = {
    "plain": "plain (the literature's formula, which trusts layers and arithmetic)",
    "real": "claim A (the function of the stored tensors, in real arithmetic)",
    "float": "claim B (the float64 program, for every representable input)",
}


def model_card(model: FrozenModel, name: str, certificates: Mapping[str, Any] | None) -> str:
    """Markdown, with the header that model hubs read; `certificates` is the content of a certificates.json."""
    channels, height, width = model.input_shape
    classes = [str(label) for label in model.settings.get("classes", ())]
    data = model.settings.get("data")
    sections = [
        _header(data),
        f"# {name}",
        "An image classifier whose predictions come with a proof: for each image, a radius such that no change of the "
        "image smaller than it, measured in l2, changes the predicted class.",
        f"* Input: images of {channels} x {height} x {width} (channels, height, width), pixels in [0, 1]; the "
        "normalisation is inside.\n"
        f"* Data set: {data or 'not recorded'}.\n"
        f"* Classes, in the order of the logits: {', '.join(classes) or 'not recorded'}.\n"
        f"* Checksum of stages and tensors: `{model.settings['checksum']}`.",
        "## What is proved",
        _proved(certificates),
        "*Claim A*: in real arithmetic, the function that the stored tensors define predicts the same class for every "
        "input closer than the radius. *Claim B*: so does lotnet's float64 program that computes it, for every "
        "representable input, whatever the order of its sums. Radii are l2, in pixels of [0, 1].",
        "Nothing is proved of other changes, such as rotations, of whether a prediction is right, of what resizes an "
        "image before it enters, nor of programs in lower precision.",
        "## How to load it",
        f"```python\nimport lotnet\n\nmodel = lotnet.from_pretrained({json.dumps(name)})  # this folder's path\n```",
        f"```sh\nlotnet predict {name} photo.png\nlotnet certify {name}\n```",
        "`model.safetensors` holds the numbers and `config.json` the structure. There is no pickle: loading runs no "
        "code, and refuses tensors that do not match the checksum.",
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


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
