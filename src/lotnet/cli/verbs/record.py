"""`lotnet record`."""

from pathlib import Path

from lotnet.cli.arguments import Parser
from lotnet.errors import InputError
from lotnet.paper import results, results_page
from lotnet.runs.directory import Run


def main(arguments: list[str]) -> int:
    parser = Parser("lotnet record", "Store the results of a certified run, and compare them with the paper's row.")
    parser.add_argument("run", type=str, help="A run with certificates of its test images.")
    parser.add_argument(
        "--name", type=str | None, default=None, help="Name of the result; by default the name of the run."
    )
    parser.add_argument("--to", type=str, default="results", help="Folder of results; its README.md is written again.")
    options = parser.read(arguments)
    if Run.open(Path(options.run)).certification().complete is False:
        raise InputError(
            f"{options.run} is certified on a part of the test images: certify all of them with `lotnet certify "
            f"{options.run}`"
        )
    folder = Path(options.to)
    path = results.save(results.collect(Path(options.run), options.name or Path(options.run).name), folder)
    results_page.write_readme(folder)
    print(f"recorded {path}")
    return 0
