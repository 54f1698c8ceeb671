"""How does the gradient of LOT change when its equation is solved only for the larger singular values?

    python benchmarks/gradient.py                  # the model that comes with lotnet, on training images of CIFAR-10
    python benchmarks/gradient.py FOLDER           # a model that `lotnet pack` wrote

A GPU solves `H S + S H = K` (docs/how-lot-works.md) by Chebyshev iteration, for singular values down to a fraction of
the largest. A smaller fraction needs more steps. This benchmark runs the same iteration on a CPU and compares it with
the solution by eigenvectors. For each kernel of a trained network it prints the condition numbers and the cosine of the
angle between the two gradients.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from lotnet import data, pretrained
from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.layers.trace import trace_geometries
from lotnet.linalg import polar, sylvester
from lotnet.losses import OffsetCrossEntropy
from lotnet.parametrizations.lot import matrices
from lotnet.pretrained import packed

CONDITIONS = (1000.0, 256.0, 128.0, 64.0, 32.0, 16.0, 8.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=pretrained.FOLDER / "lipconvnet5-cifar10")
    parser.add_argument("--root", help="folder of prepared data sets")
    parser.add_argument("--images", type=int, default=128)
    options = parser.parse_args()
    model = packed.read(options.folder)
    network = model.model.build(model.images).train()
    network.load_state_dict({name: tensor.float() for name, tensor in model.tensors.items()})
    split = data.load(model.data, options.root).train
    images, labels = split.images[: options.images].float() / 255, split.labels[: options.images]

    console, name = Console(), options.folder.name
    exact = gradients(network, images, labels)
    cosines = {}
    for condition in CONDITIONS:
        with patch.object(polar, "pullback", as_a_gpu_does), patch.object(polar, "GRADIENT_CONDITION", condition):
            pairs = zip(gradients(network, images, labels), exact, strict=True)
            cosines[condition] = [F.cosine_similarity(a, b, dim=0).item() for a, b in pairs]

    table = Table("kernel", "at", "median condition", "largest", "cosine", title=name)
    for row, cosine in zip(conditions(network, images[:1]), cosines[polar.GRADIENT_CONDITION], strict=True):
        table.add_row(*row, f"{cosine:.4f}")
    console.print(table)
    table = Table("down to 1 in", "steps for 64 rows", "least cosine", "second", "median", title=name)
    for condition, values in cosines.items():
        steps = sylvester.steps(polar.sigma_min(64, condition), polar.GRADIENT_TOLERANCE)
        shown = (*sorted(values)[:2], statistics.median(values))
        table.add_row(f"{condition:g}", str(steps), *(f"{value:.4f}" for value in shown))
    console.print(table)


@torch.no_grad()
def conditions(network: nn.Sequential, image: Tensor) -> Iterator[tuple[str, str, str, str]]:
    """For each kernel: its shape, its image size, and the median and largest condition number over frequencies."""
    for layer, geometry in trace_geometries(network, image).items():
        values = [torch.linalg.svdvals(v) for v in matrices(layer.weight.double(), geometry)]
        ratios = torch.cat([(s[:, 0] / s[:, -1]) for s in values])
        shape = " x ".join(map(str, layer.weight.shape))
        yield shape, f"{geometry.height} x {geometry.width}", f"{ratios.median():.0f}", f"{ratios.max():.0f}"


def gradients(network: nn.Sequential, images: Tensor, labels: Tensor) -> list[Tensor]:
    network.zero_grad()
    logits = network(images)
    pairwise = pairwise_constants(network[-1], logits.shape[1], logits)
    OffsetCrossEntropy()(logits, labels, pixel_lipschitz(network), pairwise, 0.5).backward()
    return [p.grad.double().flatten() for p in network.parameters() if p.ndim == 4 and p.grad is not None]


_pullback = polar.pullback


def as_a_gpu_does(v: Tensor, w: Tensor, scale: Tensor, _: Tensor | None, g: Tensor, lower: float, __: bool) -> Tensor:
    """A GPU keeps `H^(-1)` from the forward pass if it is needed. For kernels of full rank, that is this inverse."""
    inverse = torch.linalg.inv((v / scale) @ w.mH) if v.shape[-2] < v.shape[-1] else None
    return _pullback(v, w, scale, inverse, g, lower, use_products=True)


if __name__ == "__main__":
    main()
