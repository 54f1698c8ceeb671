"""`lotnet analyze`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from lotnet.analysis import features, landscape, newton, tightness
from lotnet.analysis.files import AnalysisFiles
from lotnet.analysis.networks import describe, load_networks
from lotnet.cli import analysis_tables as tables
from lotnet.cli.arguments import Parser
from lotnet.cli.help_text import bulleted
from lotnet.cli.options import add_batch_size, add_split, check_counts, check_split, open_model, output_folder, say
from lotnet.device import choose_device
from lotnet.errors import InputError
from lotnet.files import make_folder
from lotnet.load_model import MODEL
from lotnet.spelling import nearest
from lotnet.terminal import Console

_KERNELS = "A run with a checkpoint, the folder of a packed model, or the name of a model that comes with lotnet."


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        examples = tuple(example for _, _, (example, *_) in ANALYSES.values())
        parser = Parser("lotnet analyze", "Analyze trained networks, and plot the results.", examples)
        abouts = {name: about for name, (_, about, _) in ANALYSES.items()}
        title = "The analysis; `lotnet analyze ANALYSIS --help` shows its options. One of:"
        parser.add_argument("analysis", type=str, help=bulleted(title, abouts))
        _add_shared(parser)
        parser.read(arguments)
    analysis, *rest = arguments
    if analysis not in ANALYSES:
        raise InputError(f"there is no analysis {analysis}{nearest(analysis, ANALYSES)}")
    return ANALYSES[analysis][0](rest)


def _newton(arguments: list[str]) -> int:
    options = _parser("newton", several=False).read(arguments)
    console = Console(stderr=options.json)
    [network] = load_networks([options.run], choose_device(options.device))
    layers = newton.analyze(network, console)
    files = newton.files(network, layers)
    return _finish(options, network.folder, files, tables.newton_table(layers), newton.observed(layers))


def _landscape(arguments: list[str]) -> int:
    parser, defaults = _parser("landscape"), landscape.LandscapeSettings()
    add_split(parser, defaults.split)
    parser.add_argument(
        "--points", type=int, default=defaults.points, help="Steps along each direction, an odd number."
    )
    parser.add_argument("--span", type=float, default=defaults.span, help="Longest step, in filter norms.")
    parser.add_argument("--batch_size", type=int, default=defaults.batch_size, help="Images per batch.")
    parser.add_common("limit", "seed")
    parser.set_defaults(limit=defaults.limit)
    options = parser.read(arguments)
    check_split(options.split)
    check_counts(options, batch_size=1)
    settings = landscape.LandscapeSettings(
        options.split, options.limit, options.points, options.span, options.batch_size, options.seed
    )
    networks = load_networks(options.runs, choose_device(options.device))
    found = landscape.analyze(networks, settings, Console(stderr=options.json))
    files = landscape.files(networks, settings, found)
    return _finish(options, networks[0].folder, files, tables.landscape_table(found))


def _features(arguments: list[str]) -> int:
    parser, defaults = _parser("features"), features.AscentSettings()
    parser.add_argument(
        "--layer", type=int | None, default=None, help="Layer, as --print-model counts; by default the last."
    )
    parser.add_argument(
        "--neurons",
        type=int,
        default=None,
        nargs="+",
        metavar="N",
        help="Neurons: indices into the layer's flattened output.",
    )
    parser.add_argument("--count", type=int, default=16, help="Number of random neurons if --neurons names none.")
    parser.add_argument("--steps", type=int, default=defaults.steps, help="Steps of gradient ascent.")
    parser.add_argument("--step", type=float, default=defaults.step_size, help="Step size.")
    parser.add_argument(
        "--decay", type=float, default=defaults.decay, help="Pull of the image towards the mean color in each step."
    )
    parser.add_common("seed")
    options = parser.read(arguments)
    ascent = features.AscentSettings(options.steps, options.step, options.decay, options.seed)
    choice = features.NeuronChoice(options.layer, options.neurons, options.count, options.seed)
    networks = load_networks(options.runs, choose_device(options.device))
    found = features.analyze(networks, choice, ascent, Console(stderr=options.json))
    files = features.files(networks, ascent, found)
    return _finish(options, networks[0].folder, files, tables.features_table(found))


def _tightness(arguments: list[str]) -> int:
    parser = _titled("tightness")
    parser.add_argument("models", type=str, nargs="+", metavar="MODEL", help=f"{MODEL} Several are drawn in one plot.")
    _add_common(parser)
    add_split(parser)
    add_batch_size(parser)
    parser.add_common("limit")
    parser.set_defaults(limit=1000)
    options = parser.read(arguments)
    check_split(options.split)
    check_counts(options, batch_size=1)
    device = choose_device(options.device)
    described = describe(options.models)
    loaded = {name: open_model(name, Console(stderr=options.json)) for name in options.models}
    subjects = {
        source: tightness.Subject(
            described[source].name,
            described[source].method,
            model.model.to(device),
            model.split(options.split, options.limit),
        )
        for source, model in loaded.items()
    }
    found = tightness.analyze(subjects, options.batch_size, Console(stderr=options.json))
    files = tightness.files(subjects, options.split, found, described[options.models[0]].common)
    return _finish(options, loaded[options.models[0]].folder, files, tables.tightness_table(found))


def _parser(analysis: str, several: bool = True) -> Parser:
    parser = _titled(analysis)
    _add_shared(parser, several)
    return parser


def _titled(analysis: str) -> Parser:
    _, about, examples = ANALYSES[analysis]
    return Parser(f"lotnet analyze {analysis}", f"{about[0].upper()}{about[1:]}.", examples)


def _add_shared(parser: Parser, several: bool = True) -> None:
    if several:
        help_line = f"{_KERNELS} Several are drawn side by side."
        parser.add_argument("runs", type=str, nargs="+", metavar="MODEL", help=help_line)
    else:
        parser.add_argument("run", type=str, metavar="MODEL", help=_KERNELS)
    _add_common(parser)


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--out",
        type=str | None,
        default=None,
        metavar="DIR",
        help="Folder; by default `analysis` in the first run or, if nothing can be written there, the current folder.",
    )
    parser.add_common("device", "json")


def _finish(options: Any, first: Path, files: AnalysisFiles, table: Table, sentence: str = "") -> int:
    """Write the files, by default into the folder of the first run, and print the results."""
    console = Console(stderr=options.json)
    usual = first / "analysis"
    folder = output_folder(options.out, usual)
    make_folder(folder, "choose another --out")
    # In the current folder, files of several runs would replace each other.
    prefix = "" if options.out is not None or folder == usual else f"{first.resolve().name}-"
    written = [str(path) for path in files.write(folder, prefix)]
    drawn = any(path.endswith(".png") for path in written)
    if not drawn:
        console.print("No plot without matplotlib: pip install matplotlib", markup=False, soft_wrap=True)
    if options.json:
        print(json.dumps({"written": written, **files.content, "caption": files.caption}, allow_nan=False))
        return 0
    console.print(table)
    caption = f"In the plot: {files.caption}" if drawn else ""
    for line in (sentence, caption, f"Written: {', '.join(written)}"):
        if line:
            say(console, line)
    return 0


ANALYSES: dict[str, tuple[Callable[[list[str]], int], str, tuple[str, ...]]] = {
    "newton": (
        _newton,
        "singular values of every LOT layer of a run at every Newton step",
        ("lotnet analyze newton runs/digits", "lotnet analyze newton runs/digits --out plots --device cpu"),
    ),
    "landscape": (
        _landscape,
        "the loss of each run along two random directions of its kernels",
        ("lotnet analyze landscape runs/lot runs/soc", "lotnet analyze landscape runs/digits --points 51 --span 0.5"),
    ),
    "features": (
        _features,
        "images that hidden neurons of each run respond to most",
        ("lotnet analyze features runs/digits", "lotnet analyze features runs/digits --layer 3 --neurons 0 5 7"),
    ),
    "tightness": (
        _tightness,
        "how much of its proved bound the gradient of a margin reaches, and where it is lost",
        (
            "lotnet analyze tightness runs/digits lipconvnet5-cifar10",
            "lotnet analyze tightness runs/digits --split train --limit 200",
        ),
    ),
}
"""Analysis: (function of its arguments to the exit code, one line for --help, examples)."""
