"""`lotnet paper`."""

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from lotnet import paper
from lotnet.parser import Parser

_NUMBERS = {
    "clean": "clean",
    "cert_36": "36/255",
    "cert_72": "72/255",
    "cert_108": "108/255",
    "eval_seconds": "eval s",
    "pgd_linf": "PGD",
}


def main(arguments: list[str]) -> int:
    parser = Parser("lotnet paper", "The paper's rows, and the command that trains each.")
    parser.add_argument("table", nargs="?", default=None, help=f"One of {', '.join(paper.tables())}.")
    parser.add_common("json")
    options = parser.read(arguments)
    rows = paper.rows_of(options.table)
    if options.json:
        print(json.dumps([asdict(row) | {"command": paper.command_for(row)} for row in rows]))
        return 0
    console = Console()
    for name in dict.fromkeys(row.table for row in rows):
        _print(name, [row for row in rows if row.table == name], console)
    return 0


def _print(name: str, rows: list[paper.Row], console: Console) -> None:
    shown = {key: title for key, title in _NUMBERS.items() if any(getattr(row, key) is not None for row in rows)}
    table = Table("", "data", "model", "conv", *shown.values(), title=name, title_justify="left")
    for n, row in enumerate(rows, start=1):
        numbers = (getattr(row, key) for key in shown)
        cells = ("" if number is None else f"{number:.2f}" for number in numbers)
        table.add_row(str(n), row.dataset, row.model, row.conv, *cells)
    console.print(table)
    for n, row in enumerate(rows, start=1):
        console.print(f"{n:>3}  {paper.command_for(row)}", soft_wrap=True, highlight=False)
    console.print()
