"""The attack report: clean, attacked and certified accuracy, and a check of every certificate."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lotnet.attacks.accuracy import count_robust
from lotnet.attacks.autoattack import auto_attack_l2, require_auto_attack
from lotnet.attacks.check import Budget, Counterexample, check_certificates
from lotnet.attacks.nearest import Nearest, nearest_examples
from lotnet.attacks.pgd import LINF_RADIUS, PGD_L2, PGD_LINF, Model, pgd_l2, pgd_linf
from lotnet.attacks.rounding_search import is_within, onto_sphere
from lotnet.certification import Certificates, certify
from lotnet.certification.batches import Images, usual_batch
from lotnet.frozen.model import FrozenModel

Attack = Callable[[Tensor, Tensor], Tensor]  # images b c h w, labels b -> perturbed images


@dataclass(frozen=True)
class AttackSettings:
    """Settings of `attack_report`."""

    radius: float = 36 / 255
    """Radius of the l2 attacks, and of the certified accuracy."""
    linf_radius: float = LINF_RADIUS
    """Radius of the l-infinity attack."""
    steps: int = 50
    """Steps of each projected gradient attack."""
    restarts: int = 1
    """Random starts of each projected gradient attack."""
    auto_attack: bool = False
    """Run AutoAttack in l2 as well."""
    budget: Budget = field(default_factory=Budget)
    """How hard the check of the certificates tries."""
    batch_size: int | None = None
    """Images per batch; by default 250, fewer if they are large."""
    seed: int = 0


@dataclass(frozen=True)
class AttackReport:
    """The results of all attacks on a model. Accuracies in [0, 1] are those of the float64 program.

    Invariant: certified <= attacked <= clean for every l2 attack. The attacked points are within the radius exactly, so
    a violation would be a counterexample to claim B.
    """

    images: int
    radius: float
    """Radius of the l2 attacks, and of `certified`."""
    linf_radius: float
    clean: float
    attacked: dict[str, float]
    """pgd_l2, pgd_linf and, if asked for, autoattack_l2."""
    certified: float
    """Certified accuracy, by claim B."""
    checked: int
    """Number of images with a radius, each attacked at its radius."""
    counterexamples: list[Counterexample]
    nearest: list[Nearest]
    """The nearest adversarial examples of the least and the most robust images."""
    checksum: str
    """Checksum of the model."""

    def to_dict(self) -> dict[str, Any]:
        """The content of `attacks.json`."""
        lists = {name: [item.to_dict() for item in getattr(self, name)] for name in ("counterexamples", "nearest")}
        return vars(self) | lists

    def without_pixels(self) -> dict[str, Any]:
        """The content without the images, for a screen."""
        whole = self.to_dict()
        for name in ("counterexamples", "nearest"):
            kept = [{key: item[key] for key in item if key not in ("image", "perturbed")} for item in whole[name]]
            whole[name] = kept
        return whole


def attack_report(
    model: FrozenModel,
    images: Images,
    labels: Tensor,
    settings: AttackSettings | None = None,
    *,
    certificates: Certificates | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> AttackReport:
    """Attack a frozen model. `progress` is called with the name of each stage before it starts.

    `images` may be `lotnet.data.UnitImages`, which reads a batch at a time.
    """
    settings = settings or AttackSettings()
    if settings.auto_attack:
        require_auto_attack()
    progress("certificates")
    if certificates is None:
        certificates = certify(model, images, labels, batch_size=settings.batch_size)
    size = usual_batch(model.input_shape, settings.batch_size)
    device = next(iter(model.buffers())).device
    program = model.astype(torch.float64).to(device)
    generator = torch.Generator().manual_seed(settings.seed)
    # An image that is not finite is never classified correctly.
    clean = certificates.finite & (certificates.predictions == labels)
    attacked = {}
    for name, attack in _attacks(program, settings, generator).items():
        progress(name)
        robust = count_robust(program, attack, images, labels, clean, device, size)
        attacked[name] = robust / len(images)
    progress("certified radii")
    broken = check_certificates(model, images, certificates, settings.budget, batch_size=size, generator=generator)
    progress("nearest examples")
    nearest = nearest_examples(lambda x: program(x.to(device)).cpu(), images, labels, certificates, generator=generator)
    return AttackReport(
        images=len(images),
        radius=settings.radius,
        linf_radius=settings.linf_radius,
        clean=float(clean.double().mean()),
        attacked=attacked,
        certified=float((clean & (certificates.radii["float"] > settings.radius)).double().mean()),
        checked=int((certificates.radii["float"] > 0).sum()),
        counterexamples=broken,
        nearest=nearest,
        checksum=model.spec.checksum,
    )


def _attacks(model: Model, settings: AttackSettings, generator: torch.Generator) -> dict[str, Attack]:
    """The attacks by their names in the report. Points of l2 attacks lie within the radius exactly."""
    radius = settings.radius
    l2, linf = (replace(pgd, steps=settings.steps, restarts=settings.restarts) for pgd in (PGD_L2, PGD_LINF))
    attacks: dict[str, Attack] = {
        "pgd_l2": lambda x, y: _pull_inside(x, pgd_l2(model, x, y, radius, l2, generator=generator), radius),
        "pgd_linf": lambda x, y: pgd_linf(model, x, y, settings.linf_radius, linf, generator=generator),
    }
    if settings.auto_attack:
        attacks["autoattack_l2"] = lambda x, y: _pull_inside(
            x, auto_attack_l2(model, x, y, radius, seed=settings.seed), radius
        )
    return attacks


def _pull_inside(images: Tensor, points: Tensor, radius: float) -> Tensor:
    """Move the points that rounding put outside of the radius back inside."""
    points = points.to(images).clone()
    far = [n for n in range(len(points)) if not is_within(points[n], images[n], radius)]
    if far:
        limit = torch.full((len(far),), radius, dtype=torch.float64)
        points[far] = onto_sphere(images[far], points[far] - images[far], limit)
    return points
