"""`lotnet predict`."""

import json

import torch

from lotnet.certification.formatting import rounded_down
from lotnet.cli.arguments import Parser
from lotnet.cli.options import check_counts, open_model, say
from lotnet.data import to_unit
from lotnet.errors import printable
from lotnet.load_model import MODEL, choose_device
from lotnet.prediction import Picture, Prediction, find_files, predict, read_pictures
from lotnet.terminal import Console

_SHOWN = 5
"""Number of classes whose probability is printed; --json prints all."""


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet predict", "Predict the label of each image, and the radius in which it is proved not to change."
    )
    parser.add_argument("model", type=str, help=MODEL)
    parser.add_argument(
        "images", type=str, nargs="+", help="Image files or folders, or - to read a list of them from stdin."
    )
    parser.add_argument("--batch_size", type=int, default=250, help="Images at a time.")
    parser.add_common("device", "json")
    options = parser.read(arguments)
    check_counts(options, batch_size=1)
    device = choose_device(options.device)
    files = find_files(options.images)
    console = Console(stderr=options.json)
    opened = open_model(options.model, console)
    # Read all files first, so that a damaged file is an error before any result is printed.
    pictures = read_pictures(files, opened.model.input_shape)
    graph = opened.model.astype(torch.float64).to(device)
    pixels = torch.stack([picture.pixels for picture in pictures])
    predictions = [
        prediction
        for batch in pixels.split(options.batch_size)
        for prediction in predict(graph, to_unit(batch, torch.float64), batch_size=options.batch_size)
    ]
    pairs = list(zip(pictures, predictions, strict=True))
    if options.json:
        images = [
            {"image": p.name, "changes": list(p.changes), "scope": p.scope(found.radius), **found.to_dict()}
            for p, found in pairs
        ]
        print(json.dumps({"model": str(opened.folder), "checksum": graph.settings["checksum"], "images": images}))
        return 0
    for picture, prediction in pairs:
        say(console, _text(picture, prediction))
    return 0


def _text(picture: Picture, prediction: Prediction) -> str:
    likeliest = sorted(prediction.probabilities.items(), key=lambda item: -item[1])[:_SHOWN]
    lines = [
        f"{printable(picture.name)}: {printable(prediction.label)}, confidence {prediction.confidence:.1%}",
        f"certified l2 radius {rounded_down(prediction.radius, 4)}, which is "
        f"{rounded_down(prediction.radius_255, 2)}/255 (claim B, float64)",
        prediction.meaning,
        "confidence: " + ", ".join(f"{name} {share:.1%}" for name, share in likeliest),
    ]
    if picture.changes:
        lines.append(f"the model's input: {'; '.join(picture.changes)}")
    lines.append(picture.scope(prediction.radius))
    return "\n  ".join(lines)
