"""`lotnet pack`."""

import json
from dataclasses import asdict
from pathlib import Path

from lotnet.cli.arguments import Parser
from lotnet.cli.options import add_batch_size, check_counts
from lotnet.device import choose_device
from lotnet.errors import InputError
from lotnet.files import writable_folder
from lotnet.pack_run import pack_run
from lotnet.pretrained.packed import PackedResult, is_packed
from lotnet.runs.certificates import images_in_words
from lotnet.runs.data import load_with_all_test_images, split_subset
from lotnet.runs.directory import Run
from lotnet.terminal import Console


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet pack",
        "Write a run's best network as a small folder to give away: free kernels in half precision, and the certified "
        "accuracy of exactly this network on the test images.",
        ("lotnet pack runs/digits", "lotnet pack runs/photos-1 --out photos-model"),
    )
    parser.add_argument("run", type=str, help="A run with a checkpoint.")
    parser.add_argument(
        "--out", type=str | None, default=None, metavar="DIR", help="The folder; by default RUN/packed."
    )
    add_batch_size(parser)
    parser.add_common("limit", "device", "json")
    options = parser.read(arguments)
    check_counts(options, batch_size=1)
    console = Console(stderr=options.json)
    device = choose_device(options.device)
    run = Run.open(Path(options.run))
    folder = Path(options.out) if options.out else run.path / "packed"
    if folder.exists() and not is_packed(folder) and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise InputError(f"{folder} exists and is not a packed model: choose another --out")
    writable_folder(folder)  # before the proofs, which take long
    dataset = load_with_all_test_images(run.config)
    test = split_subset(dataset, "test", options.limit)
    packed, summary = pack_run(run, test, len(dataset.test), device, console, options.batch_size)
    size = packed.write(folder)
    if options.json:
        print(json.dumps({"written": str(folder), "bytes": size, "result": asdict(PackedResult.of(summary))}))
        return 0
    at = ", ".join(f"{share:.2%}" for share in summary.certified["float"])
    images = images_in_words(summary.images, packed.total, "test")
    for line in (
        f"Written to {folder}: {size / 1e6:.1f} MB.",
        f"Of {images}, {summary.clean:.2%} are classified correctly; certified at 36, 72 and 108/255 (claim B): {at}.",
    ):
        console.print(line, soft_wrap=True, highlight=False)
    return 0
