"""`lotnet selftrain`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lotnet.cli.arguments import Parser
from lotnet.cli.recipe_options import RUN, add_recipe_options, parse
from lotnet.config import RunConfig, SelfTrainingConfig, default_recipe
from lotnet.records import to_json
from lotnet.runs.data import with_shape
from lotnet.runs.directory import fresh_path
from lotnet.selftraining import results, tables
from lotnet.selftraining.pipeline import Pipeline, create
from lotnet.selftraining.plan import Plan
from lotnet.terminal import Console
from lotnet.training.signals import Interrupted


def main(arguments: list[str]) -> int:
    options, plan, recipe = read_arguments(arguments)
    console = Console(stderr=options.json)
    if options.resume is None:
        plan = replace(plan, training=with_shape(plan.training))
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
        print(json.dumps({"run": str(root), "format": results.FORMAT, **to_json(done)}))
    else:
        tables.show(done, console)
        console.print(f"All numbers: {root / results.FILE}", soft_wrap=True, highlight=False)
    return 0


def read_arguments(arguments: list[str]) -> tuple[Any, Plan, str]:
    """Returns (options of the command, plan, name of the recipe)."""
    line = parse(_parser(), arguments)
    if line.options.resume is not None and not line.asks_for_help:
        line.allow_only("--resume", "--device", "--json")
        return line.options, Plan.read(Path(line.options.resume)), line.options.resume
    recipe = line.recipe(lambda data: default_recipe(data, "selftrain"))
    settings = line.settings(recipe, extra=SelfTrainingConfig)
    training = RunConfig.from_settings(settings)
    seeds, command = _seeds(line.options.seeds, training.seed), ("lotnet", "selftrain", *arguments)
    plan = Plan(training, settings.make(SelfTrainingConfig), seeds, command)
    return line.options, plan, recipe


def _parser() -> Parser:
    parser = Parser(
        "lotnet selftrain",
        "Train a teacher on labeled images, label other images with it, train a student on both, and certify the two.",
        (
            "lotnet selftrain --seeds 3",
            "lotnet selftrain --config cifar10/selftrain --unlabeled photos",
        ),
    )
    add_recipe_options(parser)
    parser.add_argument(
        "--resume",
        type=str | None,
        default=None,
        metavar="RUN",
        help="Continue this directory with its own settings.",
        group=RUN,
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[1],
        help="Number of seeds, counted from --seed, or a list of two or more seeds.",
        group=RUN,
    )
    return parser


def _seeds(given: list[int], first: int) -> tuple[int, ...]:
    return tuple(range(first, first + given[0])) if len(given) == 1 else tuple(given)
