"""`lotnet paper`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from lotnet.cli.arguments import Parser
from lotnet.paper import results
from lotnet.paper import tables as paper
from lotnet.terminal import Console

_NUMBERS = paper.ACCURACIES | {"eval_seconds": "eval s", "pgd_linf": "PGD"}


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet paper",
        "List the rows of the paper's tables, and the command that trains each.",
        ("lotnet paper", "lotnet paper abl-padding"),
    )
    parser.add_argument(
        "table", nargs="?", default=None, help=f"The table; none lists all. One of {', '.join(paper.tables())}."
    )
    parser.add_argument(
        "--results",
        type=str,
        default="results",
        metavar="DIR",
        help="Folder of measured results, shown beside the paper's.",
    )
    parser.add_common("json")
    options = parser.read(arguments)
    rows = paper.rows_of(options.table)
    measured = results.measured(results.load_all(Path(options.results)))
    if options.json:
        print(json.dumps([_as_dict(row, measured.get(row)) for row in rows]))
        return 0
    console = Console()
    for name in dict.fromkeys(row.table for row in rows):
        _print(name, [row for row in rows if row.table == name], measured, console)
    return 0


def _as_dict(row: paper.Row, result: results.Result | None) -> dict[str, Any]:
    ours = None if result is None else result.percentages() | {"epochs": result.epochs}
    return asdict(row) | {"command": paper.command_for(row), "measured": ours}


def _print(name: str, rows: list[paper.Row], measured: dict[paper.Row, results.Result], console: Console) -> None:
    shown = {key: title for key, title in _NUMBERS.items() if any(getattr(row, key) is not None for row in rows)}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1), title=name, title_justify="left")
    for heading in ("", "data", "model", "layer"):
        table.add_column(heading, no_wrap=True)
    for heading in shown.values():
        table.add_column(heading, justify="right")
    for n, row in enumerate(rows, start=1):
        numbers = (getattr(row, key) for key in shown)
        cells = ("" if number is None else f"{number:.2f}" for number in numbers)
        table.add_row(str(n), row.dataset, row.model, f"{row.conv} {row.variant}", *cells)
        if (result := measured.get(row)) is not None:
            ours = result.percentages()
            budget = "" if result.epochs == paper.EPOCHS else f", {result.epochs} ep."
            table.add_row("", "", f"here{budget}", "", *(f"{ours[key]:.2f}" if key in ours else "" for key in shown))
            apart = (f"{ours[key] - getattr(row, key):+.2f}" if key in ours else "" for key in shown)
            table.add_row("", "", "difference", "", *apart)
    console.print(table)
    for n, row in enumerate(rows, start=1):
        console.print(f"{n:>3}  {paper.command_for(row)}", soft_wrap=True, highlight=False)
    console.print()
