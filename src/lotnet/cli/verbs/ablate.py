"""`lotnet ablate`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from lotnet.cli.arguments import Parser
from lotnet.cli.help_text import bulleted
from lotnet.cli.recipe_options import RUN, add_recipe_options, parse
from lotnet.config import Settings, default_recipe
from lotnet.errors import InputError
from lotnet.paper import ablation_runs
from lotnet.paper import tables as paper
from lotnet.paper.ablation_runs import AblationResult, make_variants, run_variants
from lotnet.paper.ablations import ABLATIONS, BASE, Ablation
from lotnet.spelling import nearest
from lotnet.terminal import Console
from lotnet.training.signals import Interrupted


def main(arguments: list[str]) -> int:
    options, settings, given = read_arguments(arguments)
    console = Console(stderr=options.json)
    if options.name is None:
        _list(console, options.json)
        return 0
    if options.name not in ABLATIONS:
        raise InputError(f"there is no ablation {options.name}{nearest(options.name, ABLATIONS)}")
    ablation = ABLATIONS[options.name]
    _refuse_varied(given, settings, ablation)
    variants = make_variants(settings, ablation)
    folder = Path(options.out or f"runs/ablation-{options.name}")
    try:
        path = run_variants(options.name, ablation.about, variants, folder, options.device, console)
    except Interrupted as stopped:
        console.print(f"{stopped}: saved. Continue with the same command.", soft_wrap=True)
        return 128 + stopped.signal
    result = ablation_runs.read(path)
    if options.json:
        print(json.dumps({"written": str(path), **asdict(result)}))
        return 0
    _show(console, result)
    console.print(f"Written to {path}", soft_wrap=True, highlight=False)
    return 0


def read_arguments(arguments: list[str]) -> tuple[Any, Settings, tuple[str, ...]]:
    """Returns (options of the command, settings of all variants, names of the given options)."""
    parser = Parser(
        "lotnet ablate",
        "Train and certify the variants of an ablation, and show the results beside the paper's rows.",
        (
            "lotnet ablate",
            "lotnet ablate residual --epochs 5",
            "lotnet ablate padding --config cifar10/plain --out runs/padding",
        ),
    )
    abouts = {name: ablation.about for name, ablation in ABLATIONS.items()}
    parser.add_argument("name", nargs="?", default=None, help=bulleted("The ablation; none lists all.", abouts))
    add_recipe_options(parser, "Folder of runs; by default runs/ablation-NAME.")
    parser.add_argument(
        "--epochs", type=int | None, default=None, metavar="N", help="Short for --trainer.epochs.", group=RUN
    )
    line = parse(parser, arguments)
    recipe = line.recipe(default_recipe)
    if "--init" in line.names and not line.asks_for_help:
        raise InputError("an ablation trains every variant from random weights: leave --init out")
    settings = line.settings(recipe, BASE)
    if settings.values.get("init") is not None:
        raise InputError(
            f"{recipe} starts from another model, and an ablation trains every variant from random weights: choose "
            "another --config"
        )
    if line.options.epochs is not None:
        settings = settings.override({"trainer.epochs": line.options.epochs}, parser.prog)
    return line.options, settings, line.names


def _refuse_varied(given: tuple[str, ...], settings: Settings, ablation: Ablation) -> None:
    """Refuse options that the variants set, and entries of such an option (`--model.options "{condition: 2}"`)."""
    for option in given:
        name = option.removeprefix("--")
        if name in ablation.varied():
            raise InputError(f"this ablation sets {name} itself: leave {option} out, or run `lotnet train` with it")
        value = settings.values.get(name)
        for entry in value if isinstance(value, dict) else ():
            if f"{name}.{entry}" in ablation.varied():
                raise InputError(
                    f"this ablation sets {name}.{entry} itself: leave {entry} out of {option}, or run `lotnet train` "
                    "with it"
                )


def _list(console: Console, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: asdict(ablation) for name, ablation in ABLATIONS.items()}))
        return
    table = Table("ablation", "what it varies", "variants", title="lotnet ablate NAME", title_justify="left")
    for name, ablation in ABLATIONS.items():
        table.add_row(name, ablation.about, ", ".join(ablation.variants))
    console.print(table)


def _show(console: Console, result: AblationResult) -> None:
    first = result.variants[0]
    epochs = "1 epoch" if first.epochs == 1 else f"{first.epochs} epochs"
    title = f"% of {first.images} test images of {first.data}, claim B, after {epochs}"
    table = Table("variant", title=title)
    for heading in (*paper.ACCURACIES.values(), "mean radius"):
        table.add_column(heading, justify="right")
    for row in result.variants:
        table.add_row(row.variant, *_cells(row), f"{row.mean_radius:.4f}")
        if row.paper is not None:
            table.add_row("  paper", *_cells(row.paper), "", style="dim")
    console.print(table)
    if any(row.paper for row in result.variants):
        console.print("The paper's numbers are for CIFAR-10, LipConvnet-20 and 200 epochs.")
    else:
        console.print("The paper has no numbers for this ablation.")


def _cells(row: ablation_runs.VariantResult | paper.Row) -> list[str]:
    return [f"{getattr(row, name):.2f}" for name in paper.ACCURACIES]
