"""`lotnet train`."""

import json
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from lotnet.cli.arguments import Parser
from lotnet.cli.recipe_options import RUN, add_recipe_options, parse
from lotnet.config import RunConfig, default_recipe
from lotnet.models import describe, parameter_count
from lotnet.runs.checkpoint import Best
from lotnet.runs.data import image_spec, load_data, with_shape
from lotnet.spelling import counted
from lotnet.terminal import Console
from lotnet.training.evaluate import Accuracy
from lotnet.training.launch import destroy_process_group
from lotnet.training.run import RunFolder, open_run, start
from lotnet.training.signals import Interrupted


def main(arguments: list[str]) -> int:
    options, config, recipe = read_arguments(arguments)
    console = Console(stderr=options.json)
    if options.resume is None:
        config = with_shape(config)
    if options.print_model:
        _print_model(config, console, options.json)
        return 0
    path, resume = options.resume or options.out, options.resume is not None
    ready = start(config, RunFolder(path and Path(path), recipe, options.overwrite, resume), options.device)
    run, first = ready.run, ready.fabric.is_global_zero
    if first:
        verb = "continuing" if resume else "training"
        console.print(f"{verb} {run.path} on {ready.fabric.device}", soft_wrap=True, highlight=False)
    try:
        best = ready.train(console)
    except Interrupted as stopped:
        destroy_process_group()
        if first:
            console.print(f"{stopped}: saved. Continue with: lotnet train --resume {run.path}", soft_wrap=True)
        return 128 + stopped.signal
    accuracy = ready.test_accuracy()
    destroy_process_group()
    if first and options.json:
        result = {"run": str(run.path), "best_epoch": best.epoch, "certificate": "plain", "test": accuracy.to_dict()}
        print(json.dumps(result | {"validated": best.score is not None}))
    elif first:
        _print_result(run.path, best, accuracy, console)
    return 0


def read_arguments(arguments: list[str]) -> tuple[Any, RunConfig, str]:
    """Returns (options of the command, configuration of the run, name of the recipe)."""
    line = parse(_parser(), arguments)
    if line.options.resume is not None and not line.asks_for_help:
        line.allow_only("--resume", "--device", "--json")
        return line.options, open_run(Path(line.options.resume)).config, line.options.resume
    recipe = line.recipe(default_recipe)
    return line.options, RunConfig.from_settings(line.settings(recipe)), recipe


def _parser() -> Parser:
    parser = Parser(
        "lotnet train",
        "Train a classifier: on the embedded digits, on a data set with a recipe, or on a folder of your images. "
        "Defaults in this help are those of the recipe: `lotnet train --data.name folder:PATH --help` shows those of a "
        "folder, with what its preset chooses.",
        (
            "lotnet train --trainer.epochs 10 --out runs/digits",
            "lotnet train --config cifar10/creg-hh --model.depth 20",
            "lotnet train --data.name folder:photos --preset medium",
            "lotnet train --config cifar10/emma --help   # its settings and their values",
        ),
    )
    add_recipe_options(parser)
    parser.add_argument(
        "--resume",
        type=str | None,
        default=None,
        metavar="RUN",
        help="Continue this run with its own settings.",
        group=RUN,
    )
    parser.add_argument("--overwrite", action="store_true", help="Replace the run that is in --out.", group=RUN)
    parser.add_argument(
        "--print-model", action="store_true", help="Show layers, shapes and parameters, then stop.", group=RUN
    )
    return parser


def _print_model(config: RunConfig, console: Console, as_json: bool) -> None:
    images = image_spec(load_data(config))
    model = config.model.build(images).eval()
    with torch.no_grad():
        rows = describe(model, torch.zeros(1, *images.shape))
    total = parameter_count(model)
    if as_json:
        layers = [dict(zip(("name", "layer", "shape", "parameters"), row, strict=True)) for row in rows]
        print(json.dumps({"layers": layers, "parameters": total}))
        return
    table = Table("", "layer", "output", "parameters", caption=f"{total:,} parameters")
    for name, layer, shape, count in rows:
        table.add_row(name, layer, " x ".join(map(str, shape)), f"{count:,}")
    console.print(table)


def _print_result(path: Path, best: Best, accuracy: Accuracy, console: Console) -> None:
    chosen = "last epoch, trained on all images" if best.score is None else "best checkpoint"
    images = counted(accuracy.images, "test image")
    table = Table(title=f"Accuracy of the {chosen} (epoch {best.epoch}) on {images}")
    table.add_column("clean")
    cells = [f"{accuracy.clean:.2%}"]
    for radius, certified in accuracy.by_name().items():
        table.add_column(f"certified at {radius}")
        cells.append(f"{certified:.2%}")
    table.add_row(*cells)
    console.print(table)
    console.print(
        "This is the standard certificate, as in most papers. It ignores rounding errors. For proved radii, run next:\n"
        f"  lotnet certify {path}",
        soft_wrap=True,
        highlight=False,
    )
