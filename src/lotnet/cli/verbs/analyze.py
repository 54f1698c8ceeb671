"""`lotnet analyze`."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from safetensors.torch import save

from lotnet.analysis import features, landscape, newton, tightness
from lotnet.arguments import Parser, nearest
from lotnet.cli.options import check_counts, check_split
from lotnet.data import to_unit
from lotnet.errors import InputError
from lotnet.files import atomic_write, make_folder
from lotnet.load_model import MODEL, choose_device, load_model
from lotnet.models import LipConvnet
from lotnet.progress import progress_bar
from lotnet.runs.data import load_data, part_of
from lotnet.runs.directory import FORMAT, Run
from lotnet.training.precision import arithmetic, evaluating


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        parser = Parser("lotnet analyze", "Look inside trained networks.")
        about = "; ".join(f"{name}: {about}" for name, (_, about) in ANALYSES.items())
        parser.add_argument("analysis", type=str, help=f"{about}. `lotnet analyze ANALYSIS --help` has the rest.")
        _add_shared(parser)
        parser.read(arguments)
    analysis, *rest = arguments
    if analysis not in ANALYSES:
        raise InputError(f"there is no analysis {analysis}{nearest(analysis, ANALYSES)}")
    analyse, _ = ANALYSES[analysis]
    return analyse(rest)


def _newton(arguments: list[str]) -> int:
    parser = _parser("newton", several=False)
    options = parser.read(arguments)
    console = Console(stderr=options.json)
    path = Path(options.run)
    run = Run.open(path)
    model = run.best_model().to(choose_device(options.device))
    layers = newton.lot_layers(model, _shape(run))
    if not layers:
        raise InputError(f"{path} has no LOT layer, so no Newton iteration: analyse a run with parametrization lot")
    rows = []
    with progress_bar(console) as progress:
        for name, (layer, geometry) in progress.track(layers.items(), description="iterating layers"):
            rows.append(newton.layer_convergence(name, layer, geometry))
    content = {"run": str(path), "layers": [asdict(row) for row in rows]}
    written = _write(_folder(options, run.path), "newton", content, lambda: newton.draw(rows), console)
    _print(console, options.json, content, _newton_table(rows), written, newton.observed(rows))
    return 0


def _landscape(arguments: list[str]) -> int:
    parser = _parser("landscape")
    parser.add_argument("--split", type=str, default="train", help="Whose images the loss is of: train or test.")
    parser.add_argument("--points", type=int, default=25, help="Steps along each direction, an odd number.")
    parser.add_argument("--span", type=float, default=1.0, help="Longest step, in norms of the filters.")
    parser.add_argument("--batch_size", type=int, default=1000, help="Images at a time.")
    parser.add_common("limit", "seed")
    parser.set_defaults(limit=1000)
    options = parser.read(arguments)
    check_split(options.split)
    console, device = Console(stderr=options.json), choose_device(options.device)
    check_counts(options, batch_size=1)
    runs = [Run.open(Path(path)) for path in options.runs]
    models = [run.best_model().to(device) for run in runs]
    surfaces: dict[str, landscape.Landscape] = {}
    with progress_bar(console) as progress, evaluating():
        task = progress.add_task("evaluating losses", total=len(runs) * options.points**2)
        for run, model, name in zip(runs, models, _titles(runs), strict=True):
            split = part_of(load_data(run.config), options.split, options.limit)
            images = to_unit(split.images, next(model.parameters()).dtype).to(device)
            labels = split.labels.to(device)

            def value(model: Any = model, run: Run = run, images: Any = images, labels: Any = labels) -> float:
                return landscape.mean_loss(model, run.config.loss, images, labels, options.batch_size)

            surfaces[name] = landscape.landscape(
                model, value, options.points, options.span, options.seed, lambda: progress.update(task, advance=1)
            )
    content = {
        "split": options.split,
        "limit": options.limit,
        "seed": options.seed,
        "surfaces": [
            {"run": str(run.path), "name": name, "loss_kind": type(run.config.loss).__name__}
            | {"minima": surface.minima(), **asdict(surface)}
            for run, (name, surface) in zip(runs, surfaces.items(), strict=True)
        ],
    }
    written = _write(_folder(options, runs[0].path), "landscape", content, lambda: landscape.draw(surfaces), console)
    table = _by_network("Loss around each network", "loss", "smallest", "largest", "local minima")
    for name, surface in surfaces.items():
        values = [value for row in surface.loss for value in row]
        table.add_row(name, *(f"{x:.4f}" for x in (surface.center, min(values), max(values))), str(surface.minima()))
    _print(console, options.json, content, table, written)
    return 0


def _features(arguments: list[str]) -> int:
    parser, defaults = _parser("features"), features.AscentSettings()
    parser.add_argument("--layer", type=int | None, default=None, help="As --print-model counts; by default the last.")
    parser.add_argument("--neurons", type=int, default=None, nargs="+", help="Places in its output.")
    parser.add_argument("--count", type=int, default=16, help="Number of random neurons, where none are named.")
    parser.add_argument("--steps", type=int, default=defaults.steps, help="Steps uphill.")
    parser.add_argument("--step", type=float, default=defaults.step_size, help="Size of each.")
    parser.add_argument("--decay", type=float, default=defaults.decay, help="Pull towards the mean colour.")
    parser.add_common("seed")
    options = parser.read(arguments)
    ascent = features.AscentSettings(options.steps, options.step, options.decay, options.seed)
    console, device = Console(stderr=options.json), choose_device(options.device)
    runs = [Run.open(Path(path)) for path in options.runs]
    plans = []
    for run in runs:
        model = run.best_model().to(device)
        layer = features.hidden_layer(model, options.layer)
        total = features.count_neurons(model, layer, _shape(run))
        plans.append((model, layer, features.choose_neurons(total, options.neurons, options.count, options.seed)))
    found: dict[str, features.Features] = {}
    with progress_bar(console) as progress:
        task = progress.add_task("climbing", total=len(runs) * options.steps)
        for run, name, (model, layer, neurons) in zip(runs, _titles(runs), plans, strict=True):
            found[name] = features.maximize_neurons(
                model, layer, neurons, _shape(run), ascent, lambda: progress.update(task, advance=1)
            )
    names = ("layer", "neurons", "before", "after")
    content = {
        "steps": options.steps,
        "step": options.step,
        "decay": options.decay,
        "seed": options.seed,
        "networks": [
            {"run": str(run.path), "name": name} | {key: getattr(item, key) for key in names}
            for run, (name, item) in zip(runs, found.items(), strict=True)
        ],
    }
    folder = _folder(options, runs[0].path)
    images = {f"images.{n}": item.images.contiguous() for n, item in enumerate(found.values())}
    atomic_write(folder / "features.safetensors", save(images))
    written = _write(folder, "features", content, lambda: features.draw(found), console)
    table = _by_network("Mean value over norm of the input", "layer", "neurons", "noise", "image")
    for name, item in found.items():
        means = (sum(values) / len(values) for values in (item.before, item.after))
        table.add_row(name, str(item.layer), str(len(item.neurons)), *(f"{mean:.3f}" for mean in means))
    _print(console, options.json, content, table, [*written, str(folder / "features.safetensors")])
    return 0


def _tightness(arguments: list[str]) -> int:
    parser = _titled("tightness")
    parser.add_argument("models", type=str, nargs="+", help=f"{MODEL} Several are drawn in one picture.")
    _add_common(parser)
    parser.add_argument("--split", type=str, default="test", help="Whose images: test or train.")
    parser.add_argument("--batch_size", type=int, default=250, help="Images at a time.")
    parser.add_common("limit")
    parser.set_defaults(limit=1000)
    options = parser.read(arguments)
    check_split(options.split)
    check_counts(options, batch_size=1)
    console, device = Console(stderr=options.json), choose_device(options.device)
    if len(set(options.models)) < len(options.models):
        raise InputError("a model is named twice: name each once")
    opened = {text: load_model(text) for text in options.models}
    splits = {text: model.split(options.split, options.limit) for text, model in opened.items()}
    found: dict[str, tightness.Tightness] = {}
    with progress_bar(console) as progress, arithmetic(tf32=False):
        task = progress.add_task("following gradients", total=sum(map(len, splits.values())))
        for text, split in splits.items():
            found[text] = tightness.tightness(
                opened[text].model.to(device),
                to_unit(split.images).to(device),
                options.batch_size,
                lambda n: progress.update(task, advance=n),
            )
    content = {
        "split": options.split,
        "models": [{"model": text, "images": len(splits[text]), **asdict(result)} for text, result in found.items()],
    }
    folder = _folder(options, opened[options.models[0]].folder)
    written = _write(folder, "tightness", content, lambda: tightness.draw(found), console)
    table = _by_network("Gradient of the margin over its bound", "mean", "5 %", "95 %", "least kept at", "there")
    for text, result in found.items():
        worst = result.worst
        place = f"{worst.name} {worst.kind} {' x '.join(map(str, worst.shape))}"
        table.add_row(text, *(f"{x:.3f}" for x in (result.share, *result.spread)), place, f"{worst.kept:.3f}")
    _print(console, options.json, content, table, written)
    return 0


def _parser(analysis: str, several: bool = True) -> Parser:
    parser = _titled(analysis)
    _add_shared(parser, several)
    return parser


def _titled(analysis: str) -> Parser:
    about = ANALYSES[analysis][1]
    return Parser(f"lotnet analyze {analysis}", f"{about[0].upper()}{about[1:]}.")


def _add_shared(parser: Parser, several: bool = True) -> None:
    if several:
        parser.add_argument("runs", type=str, nargs="+", help="Runs with a checkpoint, drawn side by side.")
    else:
        parser.add_argument("run", type=str, help="A run with a checkpoint.")
    _add_common(parser)


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--out", type=str | None, default=None, help="Folder; by default analysis in that of the first."
    )
    parser.add_common("device", "json")


def _shape(run: Run) -> tuple[int, int, int]:
    images = run.images()
    return images.channels, images.height, images.width


def _titles(runs: list[Run]) -> list[str]:
    """What each network is; with the path of its run where that does not tell them apart."""
    kinds = []
    for run in runs:
        model = run.config.model
        residual = isinstance(model, LipConvnet) and model.residual and model.depth > 10
        kinds.append(f"{model.parametrization.upper()}{', residual' if residual else ''}")
    titles = [kind if kinds.count(kind) == 1 else f"{run.path}: {kind}" for run, kind in zip(runs, kinds, strict=True)]
    for title in titles:
        if titles.count(title) > 1:
            raise InputError(f"{title.split(':')[0]} is named twice: name each run once")
    return titles


def _folder(options: Any, first: Path) -> Path:
    folder = first / "analysis" if options.out is None else Path(options.out)
    make_folder(folder, "choose another --out")
    return folder


def _write(folder: Path, name: str, content: dict[str, Any], draw: Callable[[], bytes], console: Console) -> list[str]:
    """NAME.json, and NAME.png where matplotlib is there to draw it: the files written."""
    text = json.dumps({"format": FORMAT, **content}, indent=1, allow_nan=False)
    atomic_write(folder / f"{name}.json", text.encode())
    try:
        atomic_write(folder / f"{name}.png", draw())
    except ImportError:
        console.print("No picture without matplotlib: pip install lotnet[bench]", markup=False, soft_wrap=True)
        return [str(folder / f"{name}.json")]
    return [str(folder / f"{name}.json"), str(folder / f"{name}.png")]


def _print(
    console: Console, as_json: bool, content: dict[str, Any], table: Table, written: list[str], sentence: str = ""
) -> None:
    if as_json:
        print(json.dumps({"written": written, **content}, allow_nan=False))
        return
    console.print(table)
    if sentence:
        console.print(sentence, soft_wrap=True, highlight=False)
    console.print(f"Written: {', '.join(written)}", soft_wrap=True, highlight=False)


def _by_network(title: str, *headings: str) -> Table:
    """A long path is folded, not cut: its end tells runs apart."""
    table = Table(title=title)
    table.add_column("network", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _newton_table(rows: list[newton.LayerConvergence]) -> Table:
    """One row for each layer; the JSON file has every step. It fits 80 columns."""
    lengths = sorted({len(row.ours.largest) - 1 for row in rows})
    ours = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    table = Table(title=f"Singular values: {newton.OBSERVED} of the paper's steps, and {ours} of ours")
    columns = ("\nlayer", "\ncond.", "paper's\nlargest", "its\nbound", "paper's\nsmallest")
    for heading in (*columns, "our\nlargest", "our\nsmallest"):
        table.add_column(heading, justify="left" if heading == "\nlayer" else "right")
    for row in rows:
        condition = "singular" if row.condition is None else f"{row.condition:.3g}"
        bound = "infinite" if row.bound[newton.OBSERVED] is None else f"{row.bound[newton.OBSERVED]:.5g}"
        paper, end = row.paper, row.ours
        step = newton.OBSERVED
        values = (paper.largest[step], bound, paper.smallest[step], end.largest[-1], end.smallest[-1])
        table.add_row(row.name, condition, *(v if isinstance(v, str) else f"{v:.6f}" for v in values))
    return table


ANALYSES: dict[str, tuple[Callable[[list[str]], int], str]] = {
    "newton": (_newton, "singular values of every LOT layer of a run at every Newton step"),
    "landscape": (_landscape, "the loss of each run on two random directions of its kernels"),
    "features": (_features, "images that hidden neurons of each run respond to most"),
    "tightness": (_tightness, "how much of its proved bound the gradient of a margin reaches, and where it is lost"),
}
"""Analysis: (function of its arguments to the exit code, one line for --help)."""
