"""Train, certify, attack and record a list of runs, and go on where an earlier call was stopped.

    python benchmarks/run_queue.py benchmarks/paper_rows.yaml --device cuda --seconds 1500

Each entry of the list is a result to make:

    - name: cifar10-lipconvnet5-lot-plain        # results/NAME.json
      command: train --config cifar10/plain      # as after `lotnet`: train or selftrain
      attack: true                               # also the paper's l-infinity attack
      certify: false                             # only train: a run that is compared on validation images
      after: another-name                        # wait for that entry, for instance because it is the teacher
      seconds: 200                               # what to expect, for people

What is left to do is read from the files: an entry with a result is done, a run that was stopped is resumed, a trained
run is certified. So the same command, given again, continues. After `--seconds`, or on Ctrl-C or SIGTERM, runs save a
checkpoint and the queue ends. For a copy of the files without their git history, name their commit by `--commit`.

`--trial` runs every entry with few images, a narrow network and one epoch, in a folder of its own: so that mistakes are
found before they cost time on a GPU. It works on a CPU, and needs the data sets.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import yaml

TRIAL = {"limit": "500", "model.channels": "4", "trainer.batch_size": "32", "trainer.epochs": "1"}
"""Settings of every entry in a trial."""


@dataclass(frozen=True)
class Entry:
    """A result to make."""

    name: str
    command: tuple[str, ...]
    """The words after `lotnet`."""
    attack: bool = False
    certify: bool = True
    """Certify and record the run. A candidate is compared on validation images, and only trained."""
    after: str | None = None
    """Name of the entry that has to be done before this one starts."""
    seconds: float | None = None
    """Time to expect."""

    @property
    def trains(self) -> str:
        """train, or selftrain, which also certifies."""
        return self.command[0]

    @property
    def settings(self) -> dict[str, str]:
        """The words of a training command by name, without dashes."""
        words = self.command[1:]
        return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


@dataclass(frozen=True)
class Places:
    runs: Path
    results: Path
    device: str

    def steps(self, entry: Entry) -> Iterator[list[str]]:
        """The commands that are left, each decided on when the one before it is done."""
        run, device = self.runs / entry.name, ["--device", self.device]
        model = run / "student" if entry.trains == "selftrain" else run
        settings = run / ("selftraining.yaml" if entry.trains == "selftrain" else "config.yaml")
        record = ["record", str(run), "--name", entry.name, "--to", str(self.results)]
        if self._has_result(entry):
            return
        if settings.exists():
            yield [entry.trains, "--resume", str(run), *device]
        else:
            yield [*entry.command, "--out", str(run), *device]
        if not entry.certify:
            return
        if not _is_certified(model):
            yield ["certify", str(model), *device]
        yield record
        if entry.attack:
            yield ["attack", str(model), "--table", "linf", *device]
            yield record

    def _has_result(self, entry: Entry) -> bool:
        path = self.results / f"{entry.name}.json"
        return path.exists() and not (entry.attack and json.loads(path.read_text())["linf"] is None)


def _is_certified(model: Path) -> bool:
    """Whether all test images have certificates. With a limit, self-training certifies fewer."""
    path = model / "certificates.json"
    return path.exists() and json.loads(path.read_text())["complete"] is not False


class Queue:
    """Works through entries, `at_once` at a time, until they are done or `stop()` is called.

    At most `training` of them train, and the others certify, attack or wait.
    """

    def __init__(self, entries: list[Entry], places: Places, at_once: int = 1, training: int = 1) -> None:
        self.entries, self.places, self._at_once = entries, places, at_once
        self._training = threading.Semaphore(training)
        self._finished = {entry.name: threading.Event() for entry in entries}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self._stopping = threading.Lock(), False
        self._recording = threading.Lock()  # each result is also written into the folder's README.md

    def work(self) -> dict[str, str]:
        """What became of each entry: "recorded", "trained", "stopped", or the command that failed."""
        with ThreadPoolExecutor(self._at_once) as pool:
            outcomes = list(pool.map(self._finish, self.entries))
        return {entry.name: outcome for entry, outcome in zip(self.entries, outcomes, strict=True)}

    def stop(self) -> None:
        """Ask what is running to save and end; start nothing more."""
        with self._lock:
            self._stopping = True
            for process in self._running:
                process.send_signal(signal.SIGTERM)

    def _finish(self, entry: Entry) -> str:
        try:
            if entry.after in self._finished:
                # The pool starts entries in their order, so the other one is at work already: this wait ends.
                self._finished[entry.after].wait()
            return self._take_steps(entry)
        finally:
            self._finished[entry.name].set()

    def _take_steps(self, entry: Entry) -> str:
        locks = {"train": self._training, "selftrain": self._training, "record": self._recording}
        for words in self.places.steps(entry):
            with locks.get(words[0], nullcontext()):
                code = self._run(entry, words)
            if self._stopping and code != 0:
                return "stopped"
            if code != 0:
                return f"failed with exit code {code}: lotnet {shlex.join(words)}"
            if words[0] == "record":
                self._finished[entry.name].set()  # those who wait need no attack on it
        return "recorded" if entry.certify else "trained"

    def _run(self, entry: Entry, words: list[str]) -> int:
        """The exit code of one command. Its output is added to RUNS/NAME.log."""
        self.places.runs.mkdir(parents=True, exist_ok=True)
        with (self.places.runs / f"{entry.name}.log").open("ab") as log:
            with self._lock:
                if self._stopping:
                    return 1
                command = [sys.executable, "-m", "lotnet", *words]
                process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
                self._running.add(process)
            started = time.monotonic()
            code = process.wait()
        with self._lock:
            self._running.discard(process)
        print(f"{entry.name}: {words[0]} ended with {code} after {time.monotonic() - started:.0f} s", flush=True)
        return code


def read_entries(path: Path) -> list[Entry]:
    """The entries of a list in YAML."""
    content = yaml.safe_load(path.read_text())
    fields = {"name", "attack", "certify", "after", "seconds"}
    entries = [
        Entry(command=tuple(shlex.split(item["command"])), **{key: item[key] for key in fields & item.keys()})
        for item in content
    ]
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        raise SystemExit(f"{path} has a name twice: results would replace each other")
    for entry in entries:
        if entry.after is not None and entry.after not in names:
            raise SystemExit(f"{path}: {entry.name} is after {entry.after}, which is not in the list")
    check_order(entries)
    return entries


def for_trial(entry: Entry, runs: Path) -> Entry:
    """The entry with few images, a narrow network and one epoch. Its teacher is the one of the trial."""
    settings = entry.settings | TRIAL
    if "teacher" in settings:
        settings["teacher"] = str(runs / Path(settings["teacher"]).name)
    if settings["config"].endswith("/wide"):
        settings["model.dense_width"] = "32"
    if "teacher_epochs" in settings:
        settings["teacher_epochs"] = "1"
    words = (word for name, value in settings.items() for word in (f"--{name}", value))
    return replace(entry, command=(entry.trains, *words))


def chosen(entries: list[Entry], names: list[str] | None) -> list[Entry]:
    """The entries of these names, in the order of the names."""
    by_name = {entry.name: entry for entry in entries}
    unknown = [name for name in names or [] if name not in by_name]
    if unknown:
        raise SystemExit(f"the list has no entry {unknown[0]}: choose from {', '.join(by_name)}")
    found = entries if names is None else [by_name[name] for name in names]
    check_order(found)
    return found


def check_order(entries: list[Entry]) -> None:
    """Refuse an entry that would wait for a later one, which may never start."""
    places = {entry.name: place for place, entry in enumerate(entries)}
    for place, entry in enumerate(entries):
        if entry.after is not None and places.get(entry.after, -1) >= place:
            raise SystemExit(f"{entry.name} is after {entry.after}, which does not come before it")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--only", nargs="*", help="names of the entries to work on, in this order; by default all")
    parser.add_argument("--runs", type=Path, help="default: runs/queue, in a trial runs/trial")
    parser.add_argument("--results", type=Path, help="default: results, in a trial runs/trial/results")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--at-once", type=int, default=1, help="entries worked on side by side")
    parser.add_argument("--training", type=int, default=1, help="how many of them may train at a time")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--commit", help="the commit that the files are from, if they are a copy")
    parser.add_argument("--trial", action="store_true", help="every entry with few images: shows that it works")
    options = parser.parse_args()
    if options.commit:
        os.environ["LOTNET_COMMIT"] = options.commit
    runs = options.runs or Path("runs/trial" if options.trial else "runs/queue")
    results = options.results or (runs / "results" if options.trial else Path("results"))
    entries = chosen(read_entries(options.list), options.only)
    if options.trial:
        entries = [for_trial(entry, runs) for entry in entries]
    queue = Queue(entries, Places(runs, results, options.device), options.at_once, options.training)

    def stop(signum: int, frame: FrameType | None) -> None:
        queue.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.seconds:
        timer = threading.Timer(options.seconds, queue.stop)
        timer.daemon = True
        timer.start()
    outcomes = queue.work()
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome}")
    return 0 if all(outcome in ("recorded", "trained") for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
