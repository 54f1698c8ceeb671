"""`lotnet selftrain`."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from lotnet.arguments import Parser
from lotnet.cli.verbs.train import default_recipe, only, peek, with_recipe
from lotnet.config import add_settings, from_namespace, recipes
from lotnet.runs.directory import fresh_path
from lotnet.selftraining import results, tables
from lotnet.selftraining.pipeline import Pipeline, create
from lotnet.selftraining.plan import Plan, SelfTrainingConfig
from lotnet.training.signals import Interrupted


def main(arguments: list[str]) -> int:
    options, plan, recipe = read_arguments(arguments)
    console = Console(stderr=options.json)
    pipeline = Pipeline(plan, options.device, console)
    root = Path(options.resume or options.out or fresh_path(recipe))
    if options.resume is None:
        create(root, plan)
    try:
        done = pipeline.run(root)
    except Interrupted as stopped:
        console.print(f"{stopped}: saved. Continue with: lotnet selftrain --resume {root}", soft_wrap=True)
        return 128 + stopped.signal
    if options.json:
        print(json.dumps({"run": str(root), **done.to_dict()}))
    else:
        tables.show(done, console)
        console.print(f"All numbers: {root / results.FILE}", soft_wrap=True, highlight=False)
    return 0


def read_arguments(arguments: list[str]) -> tuple[Any, Plan, str]:
    """(options of the command, plan, name of the recipe)."""
    early = peek(arguments)
    if early.resume is not None:
        options = _parser({"model": "lipconvnet", "loss": "cross-entropy"}).read(arguments)
        only(arguments, "--resume", "--device", "--json")
        return options, Plan.read(Path(options.resume)), options.resume
    data = early.data or "digits"
    recipe = early.config or (f"{data}/selftrain" if f"{data}/selftrain" in recipes() else default_recipe(data))
    options = with_recipe(arguments, recipe, _parser, _add_settings)
    names = (item.name for item in dataclasses.fields(SelfTrainingConfig))
    settings = SelfTrainingConfig(**{name: options[name] for name in names})
    training = from_namespace(options)
    return options, Plan(training, settings, _seeds(options.seeds, training.seed)), recipe


def _parser(kinds: dict[str, str]) -> Parser:
    parser = Parser(
        "lotnet selftrain",
        "Train a teacher on labelled images, let it label others, train a student on both, and certify the two.",
    )
    parser.add_argument(
        "--config", type=str | None, default=None, help=f"A YAML file, or one of {', '.join(recipes())}."
    )
    parser.add_argument("--out", type=str | None, default=None, help="Run directory; by default runs/RECIPE-N.")
    parser.add_argument("--resume", type=str | None, default=None, help="Continue this directory.")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1], help="How many seeds, from --seed on, or which (two or more)."
    )
    parser.add_common("device", "json")
    _add_settings(parser, kinds)
    return parser


def _add_settings(parser: Parser, kinds: dict[str, str]) -> None:
    parser.add_fields(SelfTrainingConfig, "Self-training")
    add_settings(parser, kinds)


def _seeds(given: list[int], first: int) -> tuple[int, ...]:
    return tuple(range(first, first + given[0])) if len(given) == 1 else tuple(given)
