"""`lotnet record`."""

from pathlib import Path

from lotnet.cli.arguments import Parser
from lotnet.errors import InputError
from lotnet.paper import results, results_page
from lotnet.runs.directory import Run
from lotnet.selftraining.plan import STUDENT
from lotnet.selftraining.record import collect_student, is_selftraining


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet record",
        "Store the results of a certified run, beside the row of the paper that it repeats.",
        ("lotnet record runs/cifar10-creg-hh-1", "lotnet record runs/digits --name digits --to my-results"),
    )
    parser.add_argument("run", type=str, help="A run or a self-training folder, certified on all test images.")
    parser.add_argument(
        "--name", type=str | None, default=None, help="Name of the result; by default the name of the run."
    )
    parser.add_argument(
        "--to", type=str, default="results", metavar="DIR", help="Folder of results; its README.md is written again."
    )
    options = parser.read(arguments)
    run, folder = Path(options.run), Path(options.to)
    selftrained = is_selftraining(run)
    certified = run / STUDENT if selftrained else run
    if Run.open(certified).certification().complete is False:
        raise InputError(
            f"{certified} is certified on a part of the test images: certify all of them with `lotnet certify "
            f"{certified}`"
        )
    collect = collect_student if selftrained else results.collect
    path = results.save(collect(run, options.name or run.name), folder)
    results_page.write_readme(folder)
    print(f"recorded {path}")
    return 0
