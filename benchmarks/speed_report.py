"""results/speed.md and its plot, from what `gpu.py` measured.

python benchmarks/speed_report.py results/speed.json
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main(path: Path) -> None:
    measured = json.loads(path.read_text())
    about = measured["about"]
    training = {(row["kind"], row["depth"], row["tf32"]): row for row in measured["train"]}
    evaluation = {(row["kind"], row["depth"]): row for row in measured["evaluation"]}
    ill_conditioned = ";\nthe kernels of `lot, ill-conditioned` are as badly conditioned as trained ones."
    lines = [
        "# Speed on one GPU",
        "",
        f"{about['gpu']}, torch {about['torch']}, CUDA {about['cuda']}, commit {about['commit']}; "
        f"batch {about['batch']}, CIFAR-sized images, 32 channels, medians of one run:",
        "",
        "    python benchmarks/gpu.py --out results/speed.json && python benchmarks/speed_report.py results/speed.json",
        "",
        "## Training step (loss and gradients), milliseconds",
        "",
        "Ratios are of CUDA graphs at the same precision; Cayley's library solver cannot be recorded as one. TF32",
        "means 11 significant bits in products: LOT's polar factors use float16 there, which has as many, with sums in",
        "float32. Kernels are those at the start of training"
        + (ill_conditioned if any(k == "lot, ill-conditioned" for k, *_ in training) else "."),
        "",
        "| network | layer | precision | eager | graph | times plain | times faster than literal | peak GiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (kind, depth, tf32), row in training.items():
        plain, literal = (training.get((other, depth, tf32)) for other in ("plain", "literal"))
        graph = row.get("graph_ms")
        cells = [
            f"LipConvnet-{depth}",
            kind,
            "TF32" if tf32 else "float32",
            f"{row['eager_ms']:.1f}",
            f"{graph:.2f}" if graph else "",
            f"{graph / plain['graph_ms']:.2f}" if graph and plain else "",
            f"{literal['graph_ms'] / graph:.2f}" if graph and literal else "",
            f"{row['memory_gib']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Evaluation of the frozen network, float32 (IEEE), milliseconds",
        "",
        "| network | layer | eager | graph | times plain |",
        "|---|---|---|---|---|",
    ]
    for (kind, depth), row in evaluation.items():
        ratio = row["graph_ms"] / evaluation["plain", depth]["graph_ms"]
        name = "soc, 12 terms" if kind == "soc" else kind
        lines.append(f"| LipConvnet-{depth} | {name} | {row['eager_ms']:.2f} | {row['graph_ms']:.2f} | {ratio:.2f} |")
    lines += [
        "",
        "## How a training step grows (TF32, graph), milliseconds",
        "",
        "| depth | channels | batch | side | plain | LOT | LOT's peak GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    sizes = {(r["depth"], r["channels"], r["batch"], r["side"]): {} for r in measured["growth"]}
    for row in measured["growth"]:
        sizes[row["depth"], row["channels"], row["batch"], row["side"]][row["kind"]] = row
    for size, by_kind in sizes.items():
        plain = f"{by_kind['plain']['graph_ms']:.1f}" if "plain" in by_kind else ""
        lot = by_kind["lot"]
        lines.append(f"| {' | '.join(map(str, size))} | {plain} | {lot['graph_ms']:.1f} | {lot['memory_gib']:.1f} |")
    lines += ["", "![Training step and evaluation](speed.png)", ""]
    path.with_suffix(".md").write_text("\n".join(lines))
    _plot(training, evaluation, path.with_suffix(".png"), about["gpu"])


def _plot(training: dict, evaluation: dict, path: Path, gpu: str) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
    kinds = ("plain", "lot", "soc", "bcop", "literal")
    for axis, depths, value, title in (
        (
            left,
            (5, 20),
            lambda kind, depth: training.get((kind, depth, True), {}).get("graph_ms"),
            "training step, TF32",
        ),
        (
            right,
            (5, 20, 40),
            lambda kind, depth: evaluation.get((kind, depth), {}).get("graph_ms"),
            "evaluation, float32",
        ),
    ):
        shown = [kind for kind in kinds if value(kind, depths[0])]
        for n, kind in enumerate(shown):
            positions = [d + (n - len(shown) / 2) / (len(shown) + 1) for d in range(len(depths))]
            heights = [value(kind, depth) for depth in depths]
            bars = axis.bar(positions, heights, width=0.9 / (len(shown) + 1), label=kind)
            axis.bar_label(bars, fmt="%.3g", fontsize=7)
        axis.set_xticks(range(len(depths)), [f"LipConvnet-{depth}" for depth in depths])
        axis.set_yscale("log")
        axis.set_ylabel("milliseconds, batch 256")
        axis.set_title(f"{title} ({gpu})", fontsize=10)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
