"""The command `lotnet`: runs the module of a verb, and prints an error as one sentence."""

import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lotnet.errors import InputError, printable

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Train": {
        "train": ("lotnet.cli.verbs.train", "train a model: digits, a recipe, or a folder of your images"),
        "selftrain": ("lotnet.cli.verbs.selftrain", "train a teacher, then a student on images that it labels"),
        "data": ("lotnet.cli.verbs.data", "list data sets, or prepare one from a folder or archive"),
    },
    "Prove and test": {
        "certify": ("lotnet.cli.verbs.certify", "prove a radius for each test image; print certified accuracy"),
        "attack": ("lotnet.cli.verbs.attack", "attack a model, and every certificate at exactly its radius"),
        "report": ("lotnet.cli.verbs.report", "write an offline page about one run, or comparing several"),
    },
    "Use a model": {
        "predict": ("lotnet.cli.verbs.predict", "label image files, each with its proved radius"),
        "demo": ("lotnet.cli.verbs.demo", "try images on a local page: label, radius, attacks"),
        "export": ("lotnet.cli.verbs.export", "write one file for ONNX Runtime or plain PyTorch"),
        "pack": ("lotnet.cli.verbs.pack", "write a run as a small folder to give away"),
    },
    "Study": {
        "analyze": ("lotnet.cli.verbs.analyze", "plot Newton steps, loss landscape, features or tightness"),
        "ablate": ("lotnet.cli.verbs.ablate", "train and certify the variants of an ablation"),
        "paper": ("lotnet.cli.verbs.paper", "list the paper's rows, and the command that trains each"),
        "record": ("lotnet.cli.verbs.record", "store the results of a run beside the paper's row"),
    },
}
"""Verbs by what people do: (module with `main(arguments) -> exit code`, one line for --help).

A verb's module is imported when it is used.
"""
VERBS = {verb: entry for verbs in GROUPS.values() for verb, entry in verbs.items()}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0 done, 2 bad input, 128 + n stopped by signal n."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_help())
            return 0
        if arguments[0] == "--version":
            from importlib.metadata import version

            print(f"lotnet {version('lotnet')}")
            return 0
        if arguments[0] not in VERBS:
            from lotnet.spelling import nearest

            raise InputError(f"there is no verb {arguments[0]}{nearest(arguments[0], VERBS)}")
        module, _ = VERBS[arguments[0]]
        with _log_on_stderr():
            return importlib.import_module(module).main(arguments[1:])
    except InputError as error:
        sentence = " ".join(str(error).split())
        print(sentence if sentence.startswith("lotnet ") else f"lotnet: {sentence}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lotnet: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output has closed it, as in `lotnet paper | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a path that is too long, or a folder that may not be entered
        name = "" if error.filename is None else f" ({printable(os.fsdecode(error.filename))})"
        print(f"lotnet: {error.strerror or error}{name}: choose another path, or make this one usable", file=sys.stderr)
        return 2


@contextmanager
def _log_on_stderr() -> Iterator[None]:
    """Print what lotnet logs about long work, one line each."""
    log, handler = logging.getLogger("lotnet"), logging.StreamHandler(sys.stderr)
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _help() -> str:
    groups = (
        "\n".join([f"{title}:", *(f"  {verb:<10} {about}" for verb, (_, about) in verbs.items())])
        for title, verbs in GROUPS.items()
    )
    return "\n\n".join(
        [
            "Image classifiers whose predictions come with a proof.",
            "Examples:\n  lotnet train --trainer.epochs 10 --out runs/digits\n  lotnet certify runs/digits",
            "Usage: lotnet VERB [OPTION ...]",
            *groups,
            "`lotnet VERB --help` shows examples and options. `lotnet --version` prints the version.",
        ]
    )
