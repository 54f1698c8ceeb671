"""`lotnet predict`."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lotnet.certification.batches import usual_batch
from lotnet.certification.formatting import rounded_down
from lotnet.cli.arguments import Parser
from lotnet.cli.options import add_batch_size, check_counts, open_model, parse_radius, say
from lotnet.data import to_unit
from lotnet.device import choose_device
from lotnet.errors import InputError, printable
from lotnet.files import atomic_write
from lotnet.frozen.model import FrozenModel
from lotnet.load_model import MODEL
from lotnet.prediction import Picture, Prediction, find_files, predict, read_picture
from lotnet.terminal import Console

UNCERTAIN = "uncertain"
"""The answer for a picture whose radius is below --abstain-below."""

_SHOWN = 5
"""Number of classes whose probability is printed; --json prints all."""

_COLUMNS = ["image", "answer", "label", "confidence", "radius", "radius_255", "changes"]


def main(arguments: list[str]) -> int:
    options = _parser().read(arguments)
    check_counts(options, batch_size=1)
    device = choose_device(options.device)
    least = 0.0 if options.abstain_below is None else parse_radius(options.abstain_below)
    files = find_files(options.images)
    console = Console(stderr=options.json)
    opened = open_model(options.model, console)
    program = opened.model.astype(torch.float64).to(device)
    failed: dict[str, str] = {}
    rows, images = [], []
    for picture, found in _answers(program, files, usual_batch(program.input_shape, options.batch_size), failed):
        # Pixels are dropped with the picture, so that a folder may be larger than memory.
        if options.csv is not None:
            rows.append(_row(picture, found, least))
        if options.json:
            images.append(_entry(picture, found, least))
        elif options.csv is None:
            say(console, _text(picture, found, least))
    if options.csv is not None:
        atomic_write(Path(options.csv), _csv(rows).encode())
    if options.json:
        about = {"model": str(opened.folder), "checksum": program.spec.checksum, "images": images}
        print(json.dumps(about | {"failed": failed}))
    elif options.csv is not None:
        say(console, f"Written to {options.csv}: {len(rows)} pictures.")
    for problem in failed.values():
        say(Console(stderr=True), f"lotnet: {problem}")
    return 2 if failed else 0


def _parser() -> Parser:
    parser = Parser(
        "lotnet predict",
        "Predict the label of each image, and the l2 radius within which it is proved not to change.",
        (
            "lotnet predict lipconvnet5-cifar10 photo.png",
            "lotnet predict runs/photos-1 inbox --csv answers.csv --abstain-below 36/255",
        ),
    )
    parser.add_argument("model", type=str, help=MODEL)
    parser.add_argument(
        "images",
        type=str,
        nargs="+",
        metavar="IMAGE",
        help="Image files or folders, or - to read a list of them from stdin.",
    )
    add_batch_size(parser)
    parser.add_argument(
        "--csv", type=str | None, default=None, metavar="FILE", help="Write one line for each picture to this file."
    )
    parser.add_argument(
        "--abstain-below",
        type=str | None,
        default=None,
        metavar="R",
        help=f"Answer {UNCERTAIN!r} where the proved radius is smaller than this, such as 36/255.",
    )
    parser.add_common("device", "json")
    return parser


def _answers(
    program: FrozenModel, files: list[Path], batch_size: int, failed: dict[str, str]
) -> Iterator[tuple[Picture, Prediction]]:
    """The pictures that can be read, with their predictions, a batch at a time.

    The problem of each other file goes into `failed`, by its name. If no file can be read, that is an error.
    """
    for start in range(0, len(files), batch_size):
        pictures = []
        for file in files[start : start + batch_size]:
            try:
                pictures.append(read_picture(file, program.input_shape, str(file)))
            except InputError as error:
                failed[str(file)] = str(error)
        if pictures:
            pixels = to_unit(torch.stack([picture.pixels for picture in pictures]), torch.float64)
            yield from zip(pictures, predict(program, pixels, batch_size=batch_size), strict=True)
    if len(failed) == len(set(map(str, files))):
        raise InputError(next(iter(failed.values())))


def _answer(prediction: Prediction, least: float) -> str:
    """The label, if its radius is at least `least`."""
    return prediction.label if prediction.radius >= least else UNCERTAIN


def _entry(picture: Picture, found: Prediction, least: float) -> dict[str, Any]:
    """An answer in JSON."""
    about = {"image": picture.name, "answer": _answer(found, least), "changes": list(picture.changes)}
    return about | {"scope": picture.scope(found.radius), **found.to_dict()}


def _row(picture: Picture, found: Prediction, least: float) -> list[object]:
    """A line of the table, in the order of `_COLUMNS`."""
    numbers = (f"{found.confidence:.6f}", rounded_down(found.radius, 6), rounded_down(found.radius_255, 4))
    return [picture.name, _answer(found, least), found.label, *numbers, "; ".join(picture.changes)]


def _csv(rows: list[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *rows])
    return text.getvalue()


def _text(picture: Picture, prediction: Prediction, least: float) -> str:
    likeliest = sorted(prediction.probabilities.items(), key=lambda item: -item[1])[:_SHOWN]
    answer = _answer(prediction, least)
    if answer == UNCERTAIN:
        answer = f"{UNCERTAIN} (the radius is smaller than asked for), most likely {prediction.label}"
    lines = [
        f"{printable(picture.name)}: {printable(answer)}, confidence {prediction.confidence:.1%}",
        f"certified l2 radius {rounded_down(prediction.radius, 4)}, which is "
        f"{rounded_down(prediction.radius_255, 2)}/255 (claim B, float64)",
        prediction.meaning,
        "confidence: " + ", ".join(f"{name} {share:.1%}" for name, share in likeliest),
    ]
    if picture.changes:
        lines.append(f"the model's input: {'; '.join(picture.changes)}")
    lines.append(picture.scope(prediction.radius))
    return "\n  ".join(lines)
