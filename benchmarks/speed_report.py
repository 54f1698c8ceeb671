"""results/speed.md and its plot, from what `gpu.py` measured. It calls this at its end; the plot needs matplotlib.

python benchmarks/speed_report.py results/speed.json
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lotnet.paper.titles import layer
from speed_figure import LAYERS, draw
from speed_rows import GOALS

Rows = list[dict[str, Any]]
KERNELS = {"lot": "at the start", "lot, ill-conditioned": "ill-conditioned"}


def main(path: Path) -> None:
    measured = json.loads(path.read_text())
    about = measured["about"]
    lines = [
        "# Speed on one GPU",
        "",
        f"{about['gpu']}, torch {about['torch']}, CUDA {about['cuda']}, commit {about['commit']}; images of 32 x 32",
        "pixels in batches of 256, TF32 (TensorFloat-32), CUDA graphs, medians of one run, unless a row says more:",
        "",
        "    python benchmarks/gpu.py --out results/speed.json",
        "",
        "![Milliseconds of a training step and of evaluation, with each layer](speed.png)",
        "",
        "Shorter bars are faster: compare LOT (layer-wise orthogonal training) with the plain convolution above it,",
        "with SOC (skew orthogonal convolution) and BCOP (block convolution orthogonal parametrization), and with the",
        "paper's algorithm as it is printed (hatched).",
        "",
    ]
    for table, write in TABLES.items():
        if measured.get(table):
            rows = [*_lot_and_plain(measured), *measured[table]] if table == "peers" else measured[table]
            lines += [*write(rows), ""]
    if measured.get("profiles"):
        lines += [*where_the_time_goes(measured["profiles"]), ""]
    missing = [table for table in TABLES if not measured.get(table)]
    if missing:
        lines += [f"Not measured in this run: {', '.join(missing)}.", ""]
    for title, reason in measured.get("failed", {}).items():
        lines += [f"Failed: {title} ({reason}).", ""]
    path.with_suffix(".md").write_text("\n".join(lines))
    with suppress(ImportError):  # the tables are complete without the plot, which needs matplotlib
        path.with_suffix(".png").write_bytes(draw(measured))


def wide(rows: Rows) -> Iterator[str]:
    yield from (
        "## LOT against plain convolutions",
        "",
        "A training step is loss and gradients of one batch. `Ill-conditioned` kernels are like those of a trained",
        "LipConvnet-20. P and K are the most polynomials and steps of the gradient of any layer. TFLOP are the",
        "operations of all polar factors and their gradients, TFLOP/s that number over the step less the plain step.",
        "",
        "| network | kernels | ms | times plain | to reach | P, K | TFLOP | TFLOP/s | peak GiB |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    plain = {row["network"]: row for row in rows if row["kind"] == "plain"}
    for row in rows:
        base = plain[row["network"]]["graph_ms"]
        if row["kind"] == "plain":
            yield f"| {row['network']} | plain | {base:.2f} | 1.00 | | | | | {row['memory_gib']:.2f} |"
            continue
        ill = "ill-conditioned" in row["kind"]
        goal = GOALS.get(row["network"], (None, None))[ill]
        operations = "| | | |"  # an older record has no count of them
        if "polar_tflop" in row:
            rate = row["polar_tflop"] / max(row["graph_ms"] - base, 1e-3) * 1e3
            steps = f"{row['polynomials']}, {row['gradient_steps']}"
            operations = f"| {steps} | {row['polar_tflop']:.2f} | {rate:.0f} |"
        yield (
            f"| {row['network']} | LOT, {'ill-conditioned' if ill else 'at the start'} | {row['graph_ms']:.2f} | "
            f"{row['graph_ms'] / base:.2f} | {goal or ''} {operations} {row['memory_gib']:.2f} |"
        )


def own(rows: Rows) -> Iterator[str]:
    yield from (
        "## A loop of your own",
        "",
        "A whole step with its optimizer: `lotnet train`, and a loop with `orthogonalized` and `CapturedGradients`.",
        "",
        "| network | kernels | `lotnet train`, ms | own loop, ms | ratio (to reach: 1.05) |",
        "|---|---|---|---|---|",
    )
    for (name, kind), loops in _by(rows, ("network", "kind"), "loop", ("lotnet train", "own loop")):
        ours, theirs = loops["lotnet train"]["ms"], loops["own loop"]["ms"]
        yield f"| {name} | {KERNELS[kind]} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.3f} |"


def micro(rows: Rows) -> Iterator[str]:
    yield from (
        "## Many images for one orthogonalisation",
        "",
        "To reach: 1.3 times the single batch for four micro-batches, and 2.0 times plain for eight batches of 256",
        "images with 128 channels. Plain convolutions run as many micro-batches.",
        "",
        "| network | images | micro-batches | kernels | plain, ms | LOT, ms | times plain | times single | peak GiB |",
        "|---|---|---|---|---|---|---|---|---|",
    )
    single = {(row["network"], row["kind"]): row["graph_ms"] for row in rows if row["parts"] == 1}
    for (name, batch, parts), kinds in _by(rows, ("network", "batch", "parts"), "kind", ("plain", *KERNELS)):
        plain = kinds["plain"]["graph_ms"]
        for kind, label in KERNELS.items():
            lot, alone = kinds[kind]["graph_ms"], single.get((name, kind))
            yield (
                f"| {name} | {batch} | {parts} | {label} | {plain:.2f} | {lot:.2f} | {lot / plain:.2f} | "
                f"{f'{lot / alone:.2f}' if alone else ''} | {kinds[kind]['memory_gib']:.2f} |"
            )


def peers(rows: Rows) -> Iterator[str]:
    yield from (
        "## Other layers",
        "",
        "Cayley's library solver cannot be recorded as a CUDA graph: its time is eager. Rows without `float32` are in",
        "TF32.",
        "",
        "| network | layer | ms | times LOT's | peak GiB |",
        "|---|---|---|---|---|",
    )
    for (name,), kinds in _by(rows, ("network",), "kind", ("lot",)):
        for kind, row in kinds.items():
            time = row.get("graph_ms", row.get("eager_ms"))
            lot = kinds.get("lot, float32" if kind.endswith("float32") else "lot")
            ratio = f"{time / lot['graph_ms']:.2f}" if lot and "graph_ms" in row else ""
            yield f"| {name} | {_named(kind)} | {time:.2f} | {ratio} | {row['memory_gib']:.2f} |"


def _named(kind: str) -> str:
    """
    >>> _named("literal, float32")
    "the paper's LOT, float32"
    """
    name, *rest = kind.split(", ")
    return ", ".join([LAYERS[name][0] if name in LAYERS else layer(name), *rest])


def _lot_and_plain(measured: dict[str, Any]) -> Rows:
    """The rows of the table `wide` to compare other layers with, on the networks that these were measured on."""
    networks = {row["network"] for row in measured["peers"]}
    return [row for row in measured["wide"] if row["network"] in networks and row["kind"] in ("plain", "lot")]


def growth(rows: Rows) -> Iterator[str]:
    yield from (
        "## Other batches and images",
        "",
        "| network | batch | plain, ms | LOT, ms | times plain | LOT's peak GiB |",
        "|---|---|---|---|---|---|",
    )
    for (name, batch), kinds in _by(rows, ("network", "batch"), "kind", ("lot",)):
        lot, memory = kinds["lot"]["graph_ms"], kinds["lot"]["memory_gib"]
        plain = kinds["plain"]["graph_ms"] if "plain" in kinds else None
        compared = f"| {lot:.1f} | |" if plain is None else f"{plain:.1f} | {lot:.1f} | {lot / plain:.2f} |"
        yield f"| {name} | {batch} | {compared} {memory:.1f} |"


def where_the_time_goes(profiles: dict[str, str]) -> Iterator[str]:
    yield from (
        "## Where the time goes in the networks that missed their ratio",
        "",
        "The batches of polar factors, each alone as a CUDA graph, and the kernels of one eager step",
        "(`benchmarks/profile_step.py`):",
    )
    for text in profiles.values():
        yield from ("", "```text", text, "```")


def evaluation(rows: Rows) -> Iterator[str]:
    yield from (
        "## Evaluation of the frozen network, IEEE float32",
        "",
        "A frozen SOC layer sums 12 terms.",
        "",
        "| network | layer | ms | times plain |",
        "|---|---|---|---|",
    )
    for (name,), kinds in _by(rows, ("network",), "kind"):
        for kind, row in kinds.items():
            ratio = f"{row['graph_ms'] / kinds['plain']['graph_ms']:.2f}" if "plain" in kinds else ""
            yield f"| {name} | {_named(kind)} | {row['graph_ms']:.2f} | {ratio} |"


TABLES: dict[str, Callable[[Rows], Iterator[str]]] = {
    "wide": wide, "own": own, "micro": micro, "peers": peers, "growth": growth, "evaluation": evaluation,
}  # fmt: skip


def _by(
    rows: Rows, keys: tuple[str, ...], second: str, needed: Iterable[str] = ()
) -> list[tuple[Any, dict[str, dict[str, Any]]]]:
    """Rows by the values of `keys` and then by that of `second`. Groups without what is needed are left out.

    A measurement that was stopped leaves such groups.
    """
    found: dict[Any, dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), {})[row[second]] = row
    return [(key, group) for key, group in found.items() if group.keys() >= set(needed)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
