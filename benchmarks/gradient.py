"""How far may the gradient's equation be left unsolved before the gradient turns?

    python benchmarks/gradient.py                  # the model that comes with lotnet, on training images of CIFAR-10
    python benchmarks/gradient.py FOLDER           # one that `lotnet pack` wrote

A GPU solves `H S + S H = K` (docs/how-lot-works.md) by Chebyshev's iteration for singular values down to a part of the
largest, the smaller the part the more steps. Here the same runs on a CPU, beside the solution by
eigenvectors: the cosine of the angle between both gradients, for each kernel of a trained network.
"""

import argparse
import statistics
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from lotnet import data, pretrained
from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.linalg import polar, sylvester
from lotnet.losses import OffsetCrossEntropy
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

    exact = gradients(network, images, labels)
    table = Table(
        "down to 1 in", "steps for 64 rows", *("least cosine", "second", "median"), title=str(options.folder.name)
    )
    for condition in CONDITIONS:
        with patch.object(polar, "pullback", as_a_gpu_does), patch.object(polar, "GRADIENT_CONDITION", condition):
            found = gradients(network, images, labels)
        cosines = sorted(F.cosine_similarity(a, b, dim=0).item() for a, b in zip(found, exact, strict=True))
        steps = sylvester.steps(polar.lower_end(64, condition), polar.GRADIENT_TOLERANCE)
        table.add_row(f"{condition:g}", str(steps), *(f"{c:.4f}" for c in (*cosines[:2], statistics.median(cosines))))
    Console().print(table)


def gradients(network: nn.Sequential, images: Tensor, labels: Tensor) -> list[Tensor]:
    network.zero_grad()
    logits = network(images)
    pairwise = pairwise_constants(network[-1], logits.shape[1], logits)
    OffsetCrossEntropy()(logits, labels, pixel_lipschitz(network), pairwise, 0.5).backward()
    return [p.grad.flatten() for p in network.parameters() if p.ndim == 4 and p.grad is not None]


_pullback = polar.pullback


def as_a_gpu_does(v: Tensor, w: Tensor, scale: Tensor, _: Tensor | None, g: Tensor, lower: float, __: bool) -> Tensor:
    """A GPU has `H^(-1)` from the forward pass, where it is needed; for kernels of full rank it is this one."""
    inverse = torch.linalg.inv((v / scale) @ w.mH) if v.shape[-2] < v.shape[-1] else None
    return _pullback(v, w, scale, inverse, g, lower, by_products=True)


if __name__ == "__main__":
    main()
