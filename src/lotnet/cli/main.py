"""The command `lotnet`: runs the module of a verb, and prints an error as one sentence."""

import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lotnet.errors import InputError, printable

VERBS: dict[str, tuple[str, str]] = {
    "train": ("lotnet.cli.verbs.train", "train a model: digits by default, a recipe with --config"),
    "selftrain": (
        "lotnet.cli.verbs.selftrain",
        "train a teacher, and a student on the teacher's labels of more images",
    ),
    "certify": ("lotnet.cli.verbs.certify", "prove, for each image, a radius in which the prediction cannot change"),
    "attack": ("lotnet.cli.verbs.attack", "attack a model, and every certificate at exactly its radius"),
    "predict": ("lotnet.cli.verbs.predict", "predict the label of an image file, and the radius in which it is proved"),
    "export": (
        "lotnet.cli.verbs.export",
        "write one file for ONNX Runtime or plain PyTorch, with logits and radius as outputs",
    ),
    "pack": ("lotnet.cli.verbs.pack", "write a run as a small folder to give away, with kernels in half precision"),
    "demo": ("lotnet.cli.verbs.demo", "serve a local page: drop an image, see its label, radius and attacks"),
    "report": ("lotnet.cli.verbs.report", "write a page about certified runs, compared if there are several"),
    "analyze": ("lotnet.cli.verbs.analyze", "analyze trained networks: newton, landscape, features, tightness"),
    "ablate": ("lotnet.cli.verbs.ablate", "train and certify the variants of an ablation of the paper"),
    "data": ("lotnet.cli.verbs.data", "list data sets, or prepare one from a folder or archive"),
    "record": ("lotnet.cli.verbs.record", "store the results of a certified run beside the paper's row"),
    "paper": ("lotnet.cli.verbs.paper", "list the paper's rows, and the command that trains each"),
}
"""Verb: (module with `main(arguments) -> exit code`, one line for --help). The module is imported when it is used."""


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
    verbs = "\n".join(f"  {verb:<10} {about}" for verb, (_, about) in VERBS.items())
    return (
        "usage: lotnet VERB ...\n\n"
        "Image classifiers whose predictions come with a proof.\n\n"
        f"{verbs}\n\n"
        "`lotnet VERB --help` lists the options of each. `lotnet train` alone trains on the embedded digits."
    )
