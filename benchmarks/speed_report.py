"""results/speed.md and its plot, from what `gpu.py` measured. It calls this at its end; the plot needs matplotlib.

python benchmarks/speed_report.py results/speed.json
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lotnet.analysis.plotting import figure, png
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
    ]
    for table, write in TABLES.items():
        if measured.get(table):
            lines += [*write(measured[table]), ""]
    if measured.get("profiles"):
        lines += [*where_the_time_goes(measured["profiles"]), ""]
    missing = [table for table in TABLES if not measured.get(table)]
    if missing:
        lines += [f"Not measured in this run: {', '.join(missing)}.", ""]
    if measured.get("wide"):
        lines += ["![Training step against plain convolutions](speed.png)", ""]
        with suppress(ImportError):  # the tables are complete without the plot
            path.with_suffix(".png").write_bytes(plot(measured["wide"], about["gpu"]))
    path.with_suffix(".md").write_text("\n".join(lines))


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
        rate = row["polar_tflop"] / max(row["graph_ms"] - base, 1e-3) * 1e3
        yield (
            f"| {row['network']} | LOT, {'ill-conditioned' if ill else 'at the start'} | {row['graph_ms']:.2f} | "
            f"{row['graph_ms'] / base:.2f} | {goal or ''} | {row['polynomials']}, {row['gradient_steps']} | "
            f"{row['polar_tflop']:.2f} | {rate:.0f} | {row['memory_gib']:.2f} |"
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
    for (name, kind), loops in _by(rows, ("network", "kind"), "loop"):
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
    for (name, batch, parts), kinds in _by(rows, ("network", "batch", "parts"), "kind"):
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
        "`literal` is the paper's algorithm as printed. Cayley's library solver cannot be recorded: its time is eager.",
        "",
        "| network | layer | ms | peak GiB |",
        "|---|---|---|---|",
    )
    for row in rows:
        time = row.get("graph_ms", row.get("eager_ms"))
        yield f"| {row['network']} | {row['kind']} | {time:.1f} | {row['memory_gib']:.2f} |"


def growth(rows: Rows) -> Iterator[str]:
    yield from (
        "## Other batches and images",
        "",
        "| network | batch | plain, ms | LOT, ms | times plain | LOT's peak GiB |",
        "|---|---|---|---|---|---|",
    )
    for (name, batch), kinds in _by(rows, ("network", "batch"), "kind"):
        plain, lot = kinds["plain"]["graph_ms"], kinds["lot"]["graph_ms"]
        memory = kinds["lot"]["memory_gib"]
        yield f"| {name} | {batch} | {plain:.1f} | {lot:.1f} | {lot / plain:.2f} | {memory:.1f} |"


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
        "| network | layer | ms |",
        "|---|---|---|",
    )
    for row in rows:
        yield f"| {row['network']} | {row['kind']} | {row['graph_ms']:.2f} |"


TABLES: dict[str, Callable[[Rows], Iterator[str]]] = {
    "wide": wide, "own": own, "micro": micro, "peers": peers, "growth": growth, "evaluation": evaluation,
}  # fmt: skip


def _by(rows: Rows, keys: tuple[str, ...], second: str) -> list[tuple[Any, dict[str, dict[str, Any]]]]:
    """Rows by the values of `keys` and then by that of `second`. Groups that are not complete are left out."""
    found: dict[Any, dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), {})[row[second]] = row
    most = max((len(group) for group in found.values()), default=0)
    return [(key, group) for key, group in found.items() if len(group) == most]


def plot(rows: Rows, gpu: str) -> bytes:
    picture = figure(9, 3.6)
    axis = picture.subplots()
    networks = _by(rows, ("network",), "kind")
    for n, (kind, label) in enumerate(KERNELS.items()):
        heights = [kinds[kind]["graph_ms"] / kinds["plain"]["graph_ms"] for _, kinds in networks]
        bars = axis.bar([x + 0.4 * n - 0.2 for x in range(len(networks))], heights, width=0.38, label=f"LOT, {label}")
        axis.bar_label(bars, fmt="%.2f", fontsize=8)
    axis.axhline(1, color="black", linewidth=0.8)
    names = [name.replace(", ", ",\n").replace(" at ", "\nat ") for (name,), _ in networks]
    axis.set_xticks(range(len(networks)), names)
    axis.tick_params(axis="x", labelsize=8)
    axis.set_ylabel("training step, times plain")
    axis.set_title(f"LOT against plain convolutions ({gpu}, batch 256, TF32, CUDA graphs)", fontsize=10)
    axis.legend(fontsize=8)
    return png(picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
