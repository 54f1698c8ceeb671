"""How close does an independent package come to the certificates? Seven attacks of foolbox on a certified model.

    pip install foolbox
    python benchmarks/foolbox_attacks.py lipconvnet5-cifar10 --images 500 --device cuda

Each attack looks for the nearest image that the float64 program predicts differently. What it finds is judged here:
the prediction by the program, and the distance in exact arithmetic. The table has the smallest distance divided by the
certified radius (claim B), which must stay above 1. Exit code 1 if a certificate is broken.
"""

import argparse
import math
import sys
import time
from fractions import Fraction
from importlib.metadata import version

import foolbox
import torch
from foolbox import attacks
from torch import Tensor, nn

import lotnet
from lotnet.attacks import squared_distance
from lotnet.certification import certify
from lotnet.data import load, to_unit
from lotnet.frozen import FrozenModel

ATTACKS: dict[str, tuple[attacks.Attack, list[float] | None]] = {
    "DeepFool": (attacks.L2DeepFoolAttack(steps=50), None),
    "NewtonFool": (attacks.NewtonFoolAttack(steps=100), None),
    "Carlini-Wagner": (attacks.L2CarliniWagnerAttack(binary_search_steps=6, steps=100), None),
    "DDN": (attacks.DDNAttack(steps=100), None),
    "FMN": (attacks.L2FMNAttack(steps=100), None),
    "PGD": (attacks.L2ProjectedGradientDescentAttack(steps=50), [n * 18 / 255 for n in range(2, 16)]),
    "boundary attack": (attacks.BoundaryAttack(steps=1000), None),
}
"""Attacks for the smallest distance, or for a list of distances."""


class Program(nn.Module):
    """The float64 program, as foolbox calls it: float32 inputs are widened."""

    def __init__(self, graph: FrozenModel) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Tensor) -> Tensor:
        return self.graph(x.double()).to(x.dtype)


def ratios(graph: FrozenModel, images: Tensor, labels: Tensor, radii: Tensor, found: Tensor) -> dict[int, float]:
    """Distance divided by radius, for each image whose prediction did change; at most 1 means a broken certificate."""
    with torch.no_grad():
        changed = graph(found.double()).argmax(dim=1) != labels
    result = {}
    for n in changed.nonzero().flatten().tolist():
        square, radius = squared_distance(images[n].cpu(), found[n].double().cpu()), Fraction(float(radii[n]))
        # A root may round down to 1 what is larger in exact arithmetic.
        result[n] = (
            min(math.sqrt(square / radius**2), 1.0)
            if square <= radius**2
            else max(math.sqrt(square / radius**2), math.nextafter(1.0, 2.0))
        )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("model", help="a shipped model, a run or a model folder")
    parser.add_argument("--images", type=int, default=500, help="first test images (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="default: %(default)s")
    settings = parser.parse_args()
    model = lotnet.load(settings.model)
    test = load(model.spec.data).test
    pixels = to_unit(test.images[: settings.images], torch.float64)
    certificates = certify(model, pixels)
    chosen = certificates.radii["float"] > 0
    radii, device = certificates.radii["float"][chosen], torch.device(settings.device)
    images, labels = pixels[chosen].to(device), certificates.predictions[chosen].to(device)
    graph = model.astype(torch.float64).to(device)
    print(
        f"lotnet {lotnet.__version__}, torch {torch.__version__}, foolbox {version('foolbox')}, {time.strftime('%F')}"
    )
    print(f"{settings.model}, {len(images)} of {len(pixels)} images with a radius, median radius {radii.median():.4f}")
    print(f"{'attack':<16} {'changed':>7} {'smallest':>9} {'median':>9}  distance / radius")
    program = foolbox.PyTorchModel(Program(graph).eval(), bounds=(0, 1), device=device)
    smallest = math.inf
    for name, (attack, distances) in ATTACKS.items():
        torch.manual_seed(0)
        start = time.perf_counter()
        _, clipped, _ = attack(program, images, labels, epsilons=distances)
        best: dict[int, float] = {}
        for found in clipped if isinstance(clipped, list) else [clipped]:
            for n, ratio in ratios(graph, images, labels, radii, found).items():
                best[n] = min(ratio, best.get(n, math.inf))
        reached = torch.tensor([*best.values(), math.inf])
        smallest = min(smallest, float(reached.min()))
        row = f"{name:<16} {len(best):>7} {float(reached.min()):>9.4f} {float(reached[:-1].median()):>9.4f}"
        print(f"{row}  {time.perf_counter() - start:.0f} s", flush=True)
    return int(smallest <= 1)


if __name__ == "__main__":
    sys.exit(main())
