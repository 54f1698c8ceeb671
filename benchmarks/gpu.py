"""How fast LOT trains and runs on one GPU, beside a plain convolution and the other layers: medians and ratios.

    python benchmarks/gpu.py [--out results/speed.json] [--seconds 450] [--tables wide own ...]
    python benchmarks/gpu.py --trial --out /tmp/trial.json    # on a CPU, to see that it works

A training step computes loss and gradients of one batch, as a CUDA graph in TF32 (TensorFloat-32) arithmetic unless
the row says otherwise. LOT's step includes the orthogonalisation, with as many steps as its kernels need. Kernels are
initial ones, with noise added to identity kernels; `ill-conditioned` ones are as badly conditioned as trained ones.
`literal` is the paper's algorithm as printed. Memory is the peak of an eager step above weights and batch.

First, Triton compiles the kernels of all networks, side by side. Then rows are measured, the most important ones first,
and each is written as soon as it is measured. At last, networks that missed their ratio are profiled, and the report is
written beside the numbers (`speed_report.py`). No group of rows is begun after `--seconds`: the same command goes on
where it stopped, with the same GPU, PyTorch and commit. A group whose rows are compared is measured in one run. A group
that fails, for example for lack of memory, is named in the report; the next call tries it again after all others.
"""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import speed_report
from lotnet.errors import InputError
from lotnet.kernels import dispatch
from profile_step import profile
from speed_rows import BATCH, GOALS, KINDS, Bench, Group, Network, groups, step
from timing import Timer

_COMPILING = 120
"""Most seconds that all networks' kernels are compiled for, before measuring begins."""
TABLES = tuple(dict.fromkeys(group.table for group in groups()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/speed.json"))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=450, help="begin nothing after this time; default: 450")
    parser.add_argument("--commit", default="", help="commit of the code, to store in the output; default: git's")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--trial", action="store_true", help="tiny networks on a CPU: shows that everything works")
    parser.add_argument("--compile-one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    started = time.perf_counter()
    bench = Bench(Timer(torch.device("cuda"), options.repeats))
    if options.trial:
        bench = Bench(Timer(torch.device("cpu"), repeats=1, warm_up=0), trial=True)
        dispatch.products_are_cheap = lambda x: True  # take the way of a GPU
    if options.compile_one is not None:
        net = next(group.network for group in groups() if group.network.name == options.compile_one)
        for kind in KINDS[1:]:
            step(net, kind, Bench(Timer(bench.device, repeats=1)))
        return
    result = resumed(options.out, about(options.commit, bench))
    todo = missing(result, options.tables)
    if not options.trial:
        compile_side_by_side(todo)
    for group in todo:
        if time.perf_counter() - started > options.seconds:
            break
        result[group.table] = [row for row in rows(result, group) if not belongs(row, group)]
        result["failed"].pop(group.title, None)
        try:
            for row in group.measure(bench):
                result[group.table].append(row)
                shown = (f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
                print(f"{time.perf_counter() - started:4.0f} s {group.table}", *shown, flush=True)
                write(options.out, result)
        except (RuntimeError, AssertionError, InputError) as error:
            result["failed"][group.title] = str(error).partition("\n")[0]
            print(f"{time.perf_counter() - started:4.0f} s {group.title} failed: {error}", flush=True)
            write(options.out, result)
    for net, kind in missed(result):
        if f"{net.name}, {kind}" not in result["profiles"] and time.perf_counter() - started < options.seconds:
            result["profiles"][f"{net.name}, {kind}"] = profile(net, kind, bench)
            print(result["profiles"][f"{net.name}, {kind}"], flush=True)
            write(options.out, result)
    speed_report.main(options.out)
    left = missing(result, options.tables)
    print(f"Not measured yet: {len(left)} groups of rows. Run it again." if left else "Everything is measured.")


def about(commit: str, bench: Bench) -> dict[str, Any]:
    if not commit and shutil.which("git"):
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
        commit = found.stdout.strip()
    return {
        "gpu": "a trial on a CPU" if bench.trial else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "commit": commit,
        "batch": BATCH,
    }


def resumed(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    """What was measured already, if it was with the same GPU, PyTorch and commit."""
    found = json.loads(path.read_text()) if path.is_file() else {}
    return found if found.get("about") == about else {"about": about, "profiles": {}, "failed": {}}


def missing(result: dict[str, Any], tables: list[str]) -> list[Group]:
    """What is left to measure. Groups that failed come last, so that they do not stop the others again."""
    left = [group for group in groups() if group.table in tables and not group.among(rows(result, group))]
    return sorted(left, key=lambda group: group.title in result["failed"])


def rows(result: dict[str, Any], group: Group) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.get(group.table, [])
    return found


def belongs(row: dict[str, Any], group: Group) -> bool:
    return any(
        {"network": group.network.name} | name == {k: row[k] for k in ("network", *name)} for name, _ in group.rows
    )


def missed(result: dict[str, Any]) -> Iterator[tuple[Network, str]]:
    """The networks and kinds of kernels whose ratio to plain convolutions is above the goal."""
    for group in groups():
        found = group.among(rows(result, group)) if group.table == "wide" else None
        for goal, row in zip(GOALS.get(group.network.name, ()), (found or [])[1:], strict=False):
            if goal and row["graph_ms"] > goal * found[0]["graph_ms"]:
                yield group.network, row["kind"]


def compile_side_by_side(todo: list[Group]) -> None:
    """Fill Triton's cache: it compiles each kernel when it is first used, for minutes in all if one after another."""
    command = [sys.executable, __file__, "--compile-one"]
    compiling = {name: subprocess.Popen([*command, name]) for name in {group.network.name for group in todo}}
    deadline = time.monotonic() + _COMPILING
    for name, process in compiling.items():
        try:
            code = process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code:
            print(f"the kernels of {name} are not compiled yet: exit code {code}", flush=True)


def write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
