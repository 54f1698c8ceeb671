"""`lotnet report`."""

import json
from pathlib import Path

from lotnet.cli.arguments import Parser
from lotnet.cli.options import OUT, output_file, parse_radius, say
from lotnet.data import Split
from lotnet.errors import InputError
from lotnet.files import atomic_write
from lotnet.frozen.model import FrozenModel
from lotnet.report import RunData, collect, render
from lotnet.runs.data import load_with_all_test_images
from lotnet.runs.directory import Run
from lotnet.terminal import Console


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet report",
        "Write a page about certified runs that opens offline, in any browser.",
        ("lotnet report runs/digits", "lotnet report runs/lot runs/soc --radius 72/255 --out comparison.html"),
    )
    parser.add_argument("runs", type=str, nargs="+", metavar="RUN", help="Certified runs; several are compared.")
    parser.add_argument("--out", type=str | None, default=None, metavar="FILE", help=f"The file; {OUT}")
    parser.add_argument("--radius", type=str, default="36/255", metavar="R", help="Radius at which the slider starts.")
    parser.add_common("json")
    options = parser.read(arguments)
    radius = parse_radius(options.radius)
    paths = [Path(text) for text in options.runs]
    runs = collect(paths)
    split, missing = _images(runs[0])
    page = render(runs, split, radius, _model(paths[0])).encode(errors="backslashreplace")
    path = output_file(options.out, paths[0], "report.html")
    atomic_write(path, page)
    if options.json:
        print(json.dumps({"written": str(path), "bytes": len(page), "images": split is not None}))
        return 0
    console = Console()
    say(console, f"Written to {path}: {len(page) / 1e6:.1f} MB, open it in a browser.")
    if missing:
        say(console, f"Without images: {missing}")
    return 0


def _images(run: RunData) -> tuple[Split | None, str]:
    """The images that were certified, or None and the reason why they cannot be read."""
    try:
        dataset = load_with_all_test_images(run.config)
    except InputError as error:
        return None, str(error)
    return (dataset.train if run.certification.split == "train" else dataset.test), ""


def _model(path: Path) -> FrozenModel | None:
    """The frozen model of a run. A run may be kept without it: then only the example of a perturbation is another."""
    try:
        return Run.open(path).frozen_model()
    except InputError:
        return None
