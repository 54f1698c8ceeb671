"""Checks and output that several verbs share."""

from pathlib import Path
from typing import Any

from rich.console import Console

from lotnet.cli.arguments import Parser
from lotnet.config.reader import read_number
from lotnet.errors import InputError
from lotnet.files import is_writable, make_folder
from lotnet.load_model import LoadedModel, load_model

OUT = "by default in the run or model folder or, where nothing can be written there, in the current folder."
"""The end of the help line of --out."""


def open_model(source: str, console: Console) -> LoadedModel:
    """Load a model. Prints a note if the model had to be frozen first."""
    loaded = load_model(source)
    if loaded.note is not None:
        say(console, loaded.note)
    return loaded


def output_file(out: str | None, folder: Path, name: str) -> Path:
    """The path of a verb's output file: `out`, else `name` in the folder, else FOLDER-NAME in the current folder."""
    if out is not None:
        if Path(out).is_dir():
            raise InputError(f"{out} is a folder: name a file in it, as in --out {Path(out) / name}")
        return Path(out)
    place = output_folder(None, folder)
    return place / (name if place == folder else f"{folder.resolve().name}-{name}")


def output_folder(out: str | None, folder: Path) -> Path:
    """The folder of a verb's output: `out`, else `folder` if it is writable, else the current folder."""
    if out is not None:
        return Path(out)
    try:
        make_folder(folder)
    except InputError:
        return Path()
    return folder if is_writable(folder) else Path()


def say(console: Console, line: str) -> None:
    """Print a line as it is, without wrapping, colours or markup."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def add_split(parser: Parser, default: str = "test") -> None:
    parser.add_argument("--split", type=str, default=default, metavar="{test,train}", help="Images to use.")


def add_batch_size(parser: Parser) -> None:
    parser.add_argument(
        "--batch_size", type=int | None, default=None, help="Images at a time; by default 250, fewer if they are large."
    )


def check_split(name: str) -> None:
    if name not in ("test", "train"):
        raise InputError(f"there is no split {name}: choose test or train")


def check_counts(options: Any, **least: int) -> None:
    """Refuse options that are given below their smallest sensible value, before any work is done."""
    for name, limit in least.items():
        if options[name] is not None and options[name] < limit:
            raise InputError(f"--{name} cannot be {options[name]}: give {limit} or more")


def parse_radius(text: str) -> float:
    """A radius on a command line: a number, or a fraction such as 36/255."""
    value = read_number(text)
    if value is None:
        raise InputError(f"a radius is a number or a fraction such as 36/255, not {text!r}")
    if value < 0:
        raise InputError(f"a radius cannot be negative, as {text} is: give 0 or more")
    return value
