"""Clean, attacked and certified accuracy side by side, and every certificate checked."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lotnet.attacks.accuracy import count_robust
from lotnet.attacks.autoattack import auto_attack_l2, require_auto_attack
from lotnet.attacks.check import Budget, Counterexample, check_certificates
from lotnet.attacks.nearest import Nearest, nearest_examples
from lotnet.attacks.pgd import pgd_l2, pgd_linf
from lotnet.attacks.rounding_search import is_within, onto_sphere
from lotnet.certification import Certificates, certify
from lotnet.frozen.model import FrozenModel


@dataclass(frozen=True)
class AttackReport:
    """Accuracies in [0, 1] of the float64 program.

    Invariant: certified <= attacked <= clean for every l2 attack. The attacked points are within the radius exactly, so
    a violation would be a counterexample to claim B.
    """

    images: int
    radius: float
    """Of the l2 attacks and of `certified`."""
    linf_radius: float
    clean: float
    attacked: dict[str, float]
    """pgd_l2, pgd_linf and, if asked for, autoattack_l2."""
    certified: float
    """By claim B."""
    checked: int
    """Images with a radius, attacked at it."""
    counterexamples: list[Counterexample]
    nearest: list[Nearest]
    """For the least and the most robust images, the nearest one that is classified otherwise."""
    checksum: str
    """Of the model."""

    def to_dict(self) -> dict[str, Any]:
        """For `attacks.json`."""
        lists = {name: [item.to_dict() for item in getattr(self, name)] for name in ("counterexamples", "nearest")}
        return vars(self) | lists

    def without_pixels(self) -> dict[str, Any]:
        """The same, for a screen: `attacks.json` has the images that were found."""
        whole = self.to_dict()
        for name in ("counterexamples", "nearest"):
            kept = [{key: item[key] for key in item if key not in ("image", "perturbed")} for item in whole[name]]
            whole[name] = kept
        return whole


def attack_report(
    model: FrozenModel,
    images: Tensor,
    labels: Tensor,
    *,
    radius: float = 36 / 255,
    linf_radius: float = 8 / 255,
    steps: int = 50,
    restarts: int = 1,
    auto_attack: bool = False,
    budget: Budget | None = None,
    certificates: Certificates | None = None,
    batch_size: int = 250,
    seed: int = 0,
    progress: Callable[[str], None] = lambda stage: None,
) -> AttackReport:
    """Attack a frozen model. `progress` hears the name of each stage before it starts."""
    if auto_attack:
        require_auto_attack()
    progress("certificates")
    if certificates is None:
        certificates = certify(model, images, labels, batch_size=batch_size)
    device = next(iter(model.buffers())).device
    graph = model.astype(torch.float64).to(device)
    generator = torch.Generator().manual_seed(seed)

    def l2(x: Tensor, y: Tensor) -> Tensor:
        found = pgd_l2(graph, x, y, radius, steps=steps, restarts=restarts, generator=generator)
        return _pulled_in(x, found, radius)

    def linf(x: Tensor, y: Tensor) -> Tensor:
        return pgd_linf(graph, x, y, linf_radius, steps=steps, restarts=restarts, generator=generator)

    def auto(x: Tensor, y: Tensor) -> Tensor:
        return _pulled_in(x, auto_attack_l2(graph, x, y, radius, seed=seed), radius)

    attacks = {"pgd_l2": l2, "pgd_linf": linf} | ({"autoattack_l2": auto} if auto_attack else {})
    finite = images.isfinite().flatten(1).all(dim=1)  # others are never classified rightly
    clean = finite & (certificates.predictions == labels)
    attacked = {}
    for name, attack in attacks.items():
        progress(name)
        attacked[name] = count_robust(graph, attack, images, labels, clean, device, batch_size) / len(images)
    progress("certified radii")
    broken = check_certificates(model, images, certificates, budget, batch_size=batch_size, generator=generator)
    progress("nearest examples")
    nearest = nearest_examples(
        lambda x: graph(x.to(device)).cpu(), images.double(), labels, certificates, generator=generator
    )
    return AttackReport(
        images=len(images),
        radius=radius,
        linf_radius=linf_radius,
        clean=float(clean.double().mean()),
        attacked=attacked,
        certified=float((clean & (certificates.radii["float"] > radius)).double().mean()),
        checked=int((certificates.radii["float"] > 0).sum()),
        counterexamples=broken,
        nearest=nearest,
        checksum=model.settings["checksum"],
    )


def _pulled_in(images: Tensor, points: Tensor, radius: float) -> Tensor:
    """The points, those a rounding too far away moved back within the radius."""
    points = points.to(images).clone()
    far = [n for n in range(len(points)) if not is_within(points[n], images[n], radius)]
    if far:
        limit = torch.full((len(far),), radius, dtype=torch.float64)
        points[far] = onto_sphere(images[far], points[far] - images[far], limit)
    return points
