"""`lotnet analyze`."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from lotnet.analysis import newton
from lotnet.commands.opening import choose_device
from lotnet.errors import InputError
from lotnet.files import write_whole
from lotnet.parser import Parser, nearest
from lotnet.training.run import FORMAT, Run


def main(arguments: list[str]) -> int:
    about = "; ".join(f"{name}: {about}" for name, (_, about) in ANALYSES.items())
    parser = Parser("lotnet analyze", f"Look inside a trained network. {about}. Written to RUN/analysis.")
    parser.add_argument("analysis", type=str, help=f"One of {', '.join(ANALYSES)}.")
    parser.add_argument("run", type=str, help="A run with a checkpoint.")
    parser.add_common("device", "json")
    options = parser.read(arguments)
    if options.analysis not in ANALYSES:
        raise InputError(f"there is no analysis {options.analysis}{nearest(options.analysis, ANALYSES)}")
    analyse, _ = ANALYSES[options.analysis]
    return analyse(Path(options.run), options.device, options.json)


def _newton(path: Path, device: str, as_json: bool) -> int:
    console = Console(stderr=as_json)
    run = Run.open(path)
    model = run.best_model().to(choose_device(device))
    images = run.images()
    layers = newton.lot_layers(model, (images.channels, images.height, images.width))
    if not layers:
        raise InputError(f"{path} has no LOT layer, so no Newton iteration: analyse a run with parametrization lot")
    rows = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for name, (layer, geometry) in progress.track(layers.items(), description="iterating layers"):
            rows.append(newton.layer_convergence(name, layer, geometry))
    folder = path / "analysis"
    folder.mkdir(exist_ok=True)
    content = {"format": FORMAT, "run": str(path), "layers": [asdict(row) for row in rows]}
    write_whole(folder / "newton.json", json.dumps(content, indent=1, allow_nan=False).encode())
    written = [str(folder / "newton.json")]
    try:
        write_whole(folder / "newton.png", newton.draw(rows))
        written.append(str(folder / "newton.png"))
    except ImportError:
        console.print("No picture without matplotlib: pip install lotnet[bench]", markup=False, soft_wrap=True)
    if as_json:
        print(json.dumps({"written": written, **content}, allow_nan=False))
        return 0
    console.print(_newton_table(rows))
    console.print(f"Every step of every layer: {', '.join(written)}", soft_wrap=True, highlight=False)
    return 0


def _newton_table(rows: list[newton.LayerConvergence]) -> Table:
    """One row for each layer; the JSON file has every step."""
    table = Table(title="Singular values over all frequencies: the paper's iteration, and ours")
    ours = {len(row.ours.largest) - 1 for row in rows}
    after = f"our last ({'-'.join(str(steps) for steps in sorted(ours))} steps)"
    headings = ("layer", "condition", "largest at 4", "at 8", "its bound at 8", "smallest at 8", after, "smallest")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for row in rows:
        condition = "singular" if row.condition is None else f"{row.condition:.3g}"
        bound = "infinite" if row.bound[8] is None else f"{row.bound[8]:.6g}"
        paper, end = row.paper, row.ours
        values = (paper.largest[4], paper.largest[8], bound, paper.smallest[8], end.largest[-1], end.smallest[-1])
        cells = (value if isinstance(value, str) else f"{value:.6f}" for value in values)
        table.add_row(row.name, condition, *cells)
    return table


ANALYSES: dict[str, tuple[Callable[[Path, str, bool], int], str]] = {
    "newton": (_newton, "singular values of every LOT layer at every Newton step"),
}
"""Analysis: (function of run, device and --json to the exit code, one line for --help)."""
