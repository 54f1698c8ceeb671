"""How close does an independent package come to the certificates? Seven attacks of foolbox on a certified model.

    pip install foolbox
    python benchmarks/foolbox_attacks.py lipconvnet5-cifar10 --images 500

Each attack looks for the nearest image that a float32 copy of the model predicts differently, at half of the cost of
float64. What it finds is judged here: the prediction by the float64 program, and the distance in exact arithmetic. The
table has the smallest distance divided by the certified radius (claim B), which must stay above 1. Exit code 1 if a
certificate is broken.
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
from torch import Tensor

import lotnet
from lotnet.attacks import squared_distance
from lotnet.certification import certify
from lotnet.data import load, to_unit
from lotnet.frozen import FrozenModel

DISTANCES = [18 / 255 * 1.6**n for n in range(6)]
"""For projected gradient descent (PGD), which looks for an image at a given distance."""

ATTACKS: dict[str, tuple[str, attacks.Attack]] = {
    "DeepFool": ("50 steps", attacks.L2DeepFoolAttack(steps=50)),
    "NewtonFool": ("50 steps", attacks.NewtonFoolAttack(steps=50)),
    "Carlini-Wagner": ("4 x 50 steps", attacks.L2CarliniWagnerAttack(binary_search_steps=4, steps=50, stepsize=0.02)),
    "DDN": ("100 steps", attacks.DDNAttack(steps=100)),
    "FMN": ("100 steps", attacks.L2FMNAttack(steps=100)),
    "PGD": ("6 x 20 steps", attacks.L2ProjectedGradientDescentAttack(steps=20, rel_stepsize=0.1)),
    "boundary attack": ("300 steps", attacks.BoundaryAttack(steps=300)),
}
"""The boundary attack starts at the nearest image that the attacks before it found."""

BATCH = 50
"""Images that are attacked at once. DeepFool ends when the predictions of all of them have changed."""


def ratios(graph: FrozenModel, images: Tensor, labels: Tensor, radii: Tensor, found: Tensor) -> Tensor:
    """Distance divided by radius, infinite where the prediction did not change. At most 1: a broken certificate."""
    with torch.no_grad():
        changed = graph(found.double()).argmax(dim=1) != labels
    result = torch.full((len(images),), math.inf, dtype=torch.float64)
    for n in changed.nonzero().flatten().tolist():
        square, radius = squared_distance(images[n].cpu(), found[n].double().cpu()), Fraction(float(radii[n]))
        # A root may round down to 1 what is larger in exact arithmetic.
        result[n] = (
            min(math.sqrt(square / radius**2), 1.0)
            if square <= radius**2
            else max(math.sqrt(square / radius**2), math.nextafter(1.0, 2.0))
        )
    return result


def other_images(images: Tensor, labels: Tensor) -> Tensor:
    """For each image, the nearest of the others with another label."""
    distance = torch.cdist(images.flatten(1), images.flatten(1))
    return images[distance.masked_fill(labels[:, None] == labels, math.inf).argmin(dim=1)]


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
    print(
        f"lotnet {lotnet.__version__}, torch {torch.__version__}, foolbox {version('foolbox')}, {time.strftime('%F')}"
    )
    print(f"{settings.model}, {len(images)} of {len(pixels)} images with a radius, median radius {radii.median():.4f}")
    smallest = attack_all(model, images, labels, radii)
    print(f"all attacks: smallest distance / radius {float(smallest.min()):.4f}, median {float(smallest.median()):.4f}")
    return int(float(smallest.min()) <= 1)


def attack_all(model: FrozenModel, images: Tensor, labels: Tensor, radii: Tensor) -> Tensor:
    """Print one line for each attack. Returns each image's smallest distance divided by its radius."""
    graph, copy = model.astype(torch.float64).to(images.device), model.astype(torch.float32).to(images.device)
    target = foolbox.PyTorchModel(copy.eval(), bounds=(0, 1), device=images.device)
    others = other_images(images, labels).float()
    nearest, smallest = others.clone(), torch.full((len(images),), math.inf, dtype=torch.float64)
    print(f"{'attack':<16} {'settings':<13} {'changed':>7} {'smallest':>9} {'median':>9}  distance / radius")
    for name, (described, attack) in ATTACKS.items():
        torch.manual_seed(0)
        start = time.perf_counter()
        best = torch.full_like(smallest, math.inf)
        for first in range(0, len(images), BATCH):
            part = slice(first, first + BATCH)
            given: dict[str, object] = {"epsilons": DISTANCES if name == "PGD" else None}
            if name == "boundary attack":
                with torch.no_grad():
                    kept = copy(nearest[part]).argmax(dim=1) == labels[part]
                given["starting_points"] = torch.where(kept[:, None, None, None], others[part], nearest[part])
            _, clipped, _ = attack(target, images[part].float(), labels[part], **given)
            for found in clipped if isinstance(clipped, list) else [clipped]:
                ratio = ratios(graph, images[part], labels[part], radii[part], found)
                closer = ratio < smallest[part]
                nearest[part][closer.to(found.device)] = found[closer.to(found.device)]
                smallest[part] = torch.minimum(smallest[part], ratio)
                best[part] = torch.minimum(best[part], ratio)
        changed = best[best.isfinite()]
        row = f"{name:<16} {described:<13} {len(changed):>7} {float(best.min()):>9.4f} {float(changed.median()):>9.4f}"
        print(f"{row}  {time.perf_counter() - start:.0f} s", flush=True)
    return smallest


if __name__ == "__main__":
    sys.exit(main())
