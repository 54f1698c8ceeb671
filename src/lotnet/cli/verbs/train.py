"""`lotnet train`."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from rich.console import Console
from rich.table import Table

from lotnet.arguments import Parser, flatten
from lotnet.config import RunConfig, add_settings, from_namespace, kinds_in, read_recipe, recipes
from lotnet.data import Batches, Dataset, Shard, validation_split
from lotnet.errors import InputError
from lotnet.models import describe, parameter_count
from lotnet.runs.data import image_spec, load_data
from lotnet.runs.directory import Run, fresh_path
from lotnet.selftraining.plan import FILE
from lotnet.training.evaluate import RADII, Accuracy, evaluate
from lotnet.training.launch import cpu_threads, destroy_process_group, launch, make_fabric, on_rank_zero
from lotnet.training.loop import train
from lotnet.training.signals import Interrupted


def main(arguments: list[str]) -> int:
    options, config, recipe = read_arguments(arguments)
    console = Console(stderr=options.json)
    if options.print_model:
        _print_model(config, console, options.json)
        return 0
    fabric = make_fabric(config.trainer, options.device)
    launch(fabric)
    dataset = load_data(config)
    check(config, dataset)
    run = _run_directory(options, config, recipe, fabric)
    if fabric.is_global_zero:
        verb = "continuing" if options.resume else "training"
        console.print(f"{verb} {run.path} on {fabric.device}", soft_wrap=True, highlight=False)
    try:
        best = train(run, dataset, fabric, console)
    except Interrupted as stopped:
        destroy_process_group()
        if fabric.is_global_zero:
            console.print(f"{stopped}: saved. Continue with: lotnet train --resume {run.path}", soft_wrap=True)
        return 128 + stopped.signal
    accuracy = test_accuracy(run, dataset, fabric)
    destroy_process_group()
    if fabric.is_global_zero:
        result = {"run": str(run.path), "best_epoch": best.epoch, "certificate": "plain", "test": accuracy.to_dict()}
        if options.json:
            print(json.dumps(result))
        else:
            _print_result(run, best.epoch, accuracy, console)
    return 0


def read_arguments(arguments: list[str]) -> tuple[Any, RunConfig, str]:
    """(options of the command, configuration of the run, name of the recipe).

    A recipe's values are the parser's defaults, so an option wins over them wherever it stands, and --help shows them.
    """
    early = peek(arguments)
    if early.resume is not None:
        parser = _parser({"model": "lipconvnet", "loss": "cross-entropy"})
        options = parser.read(arguments)
        only(arguments, "--resume", "--device", "--json")
        whole = Path(options.resume).parent
        if (whole / FILE).is_file():  # its own config.yaml does not say which labels it may see
            raise InputError(f"{options.resume} is part of a self-training: use `lotnet selftrain --resume {whole}`")
        return options, Run.open(Path(options.resume)).config, options.resume
    recipe = early.config or default_recipe(early.data or "digits")
    if recipe.endswith("/selftrain"):
        raise InputError(f"{recipe} is a recipe of self-training: use `lotnet selftrain --config {recipe}`")
    options = with_recipe(arguments, recipe, _parser, add_settings)
    return options, from_namespace(options), recipe


def with_recipe(
    arguments: list[str],
    recipe: str,
    make_parser: Callable[[dict[str, str]], Parser],
    add: Callable[[Parser, dict[str, str]], None],
) -> Any:
    """Options read by the parser for the kinds that are asked for, with the recipe's values as defaults.

    `add` gives a parser every setting that a recipe may have.
    """
    early = peek(arguments)
    settings = read_recipe(recipe)
    kinds = kinds_in(settings, recipe)
    checker = Parser(recipe)
    add(checker, kinds)
    typed = checker.check(settings, recipe)
    for group, kind in (("model", early.model), ("loss", early.loss)):
        if kind is not None:
            kinds |= {group: kinds_in({group: {"kind": kind}}, "lotnet train")[group]}
    parser = make_parser(kinds)
    # A recipe's settings for another kind than the one asked for apply as far as that has them, too.
    known = set(parser.settings()) - {"model.kind", "loss.kind"}
    parser.set_defaults({name: typed[name] for name in flatten(settings, checker.settings(), recipe) if name in known})
    return parser.read(arguments)


def default_recipe(data: str) -> str:
    """The recipe for a data set when none is named."""
    group = "folder" if data.startswith("folder:") else data
    found = [name for name in (f"{group}/default", f"{group}/plain") if name in recipes()]
    return found[0] if found else "digits/default"


def test_accuracy(run: Run, dataset: Dataset, fabric: Fabric) -> Accuracy:
    """Of the best checkpoint on the test images, which it has not been chosen by."""
    model = run.best_model().to(fabric.device)
    batches = Batches(
        dataset.test,
        run.config.trainer.batch_size,
        device=fabric.device,
        dtype=next(model.parameters()).dtype,
        shard=Shard(fabric.global_rank, fabric.world_size),
    )
    with cpu_threads(run.config.trainer.threads):
        return evaluate(model, batches, RADII, fabric)


def _parser(kinds: dict[str, str]) -> Parser:
    parser = Parser("lotnet train", "Train a model: the embedded digits by default, a recipe with --config.")
    parser.add_argument(
        "--config", type=str | None, default=None, help=f"A YAML file, or one of {', '.join(recipes())}."
    )
    parser.add_argument("--out", type=str | None, default=None, help="Run directory; by default runs/RECIPE-N.")
    parser.add_argument("--resume", type=str | None, default=None, help="Continue this run directory.")
    parser.add_argument("--overwrite", action="store_true", help="Replace the run that is in --out.")
    parser.add_argument("--print-model", action="store_true", help="Show layers, shapes and parameters, then stop.")
    parser.add_common("device", "json")
    add_settings(parser, kinds)
    return parser


def peek(arguments: list[str]) -> argparse.Namespace:
    """What has to be known before the options can be: which recipe, which kinds."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config")
    parser.add_argument("--resume")
    parser.add_argument("--data.name", dest="data")
    parser.add_argument("--model.kind", dest="model")
    parser.add_argument("--loss.kind", dest="loss")
    try:
        return parser.parse_known_args(arguments)[0]
    except argparse.ArgumentError:  # the full parser says it better
        return parser.parse_args([])


def only(arguments: list[str], *allowed: str) -> None:
    for argument in arguments:
        name = argument.split("=")[0]
        if name.startswith("--") and name not in allowed:
            raise InputError(
                f"--resume continues a run with its own settings: leave {name} out, or start a new run without --resume"
            )


def check(config: RunConfig, dataset: Dataset) -> None:
    """What can be known to fail fails before there is a run directory."""
    config.model.build(image_spec(dataset))
    training, _ = validation_split(dataset.train)
    if len(training) < config.trainer.batch_size:
        raise InputError(
            f"{len(training)} training images do not fill one batch of {config.trainer.batch_size}: lower "
            "trainer.batch_size or raise the limit"
        )


def _run_directory(options: Any, config: RunConfig, recipe: str, fabric: Fabric) -> Run:
    """Made or opened by the first process."""

    def path() -> str:
        if options.resume is not None:
            return options.resume
        chosen = options.out or str(fresh_path(recipe))
        Run.create(Path(chosen), config, options.overwrite)
        return chosen

    return Run.open(Path(on_rank_zero(fabric, path)))


def _print_model(config: RunConfig, console: Console, as_json: bool) -> None:
    images = image_spec(load_data(config))
    model = config.model.build(images).eval()
    with torch.no_grad():
        rows = describe(model, torch.zeros(1, images.channels, images.height, images.width))
    total = parameter_count(model)
    if as_json:
        layers = [dict(zip(("name", "layer", "shape", "parameters"), row, strict=True)) for row in rows]
        print(json.dumps({"layers": layers, "parameters": total}))
        return
    table = Table("", "layer", "output", "parameters", caption=f"{total:,} parameters")
    for name, layer, shape, count in rows:
        table.add_row(name, layer, " x ".join(map(str, shape)), f"{count:,}")
    console.print(table)


def _print_result(run: Run, epoch: int, accuracy: Accuracy, console: Console) -> None:
    table = Table(title=f"Test accuracy of the best checkpoint (epoch {epoch}), plain certificate")
    table.add_column("clean")
    cells = [f"{accuracy.clean:.2%}"]
    for radius, certified in accuracy.by_name().items():
        table.add_column(f"certified at {radius}")
        cells.append(f"{certified:.2%}")
    table.add_row(*cells)
    console.print(table)
    console.print(
        f"The plain certificate is the literature's: it trusts the arithmetic. Next, proved radii:\n"
        f"  lotnet certify {run.path}",
        soft_wrap=True,
        highlight=False,
    )
