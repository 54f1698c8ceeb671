"""The experiment: certify the images of random tight networks, attack them exactly at the radius, count what breaks."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from fractions import Fraction

import torch
from exact import real_function, smallest_margin
from torch import Tensor
from zoo import Case, network

from lotnet.attacks import Budget, nearest_boundary, onto_sphere, squared_distance
from lotnet.attacks.check import attack_points, real_margins
from lotnet.certification import Certificates, certify
from lotnet.certification.plain import plain_radii
from lotnet.certification.rounding import Bounds, bounds
from lotnet.errors import InputError
from lotnet.frozen import FrozenModel

BUDGET = Budget(steps=8, restarts=1, tries=4)
UNDECIDED = 40  # at most this many points per network are evaluated in sixty digits
Mutant = Callable[[], AbstractContextManager[object]]


@dataclass
class Tally:
    """Counts of the experiment. `broken` and `wrong` must stay empty, `plain_broken` must not stay zero."""

    networks: int = 0
    images: int = 0
    certified: int = 0
    """Images with radius > 0 by claim B, each attacked at both radii."""
    broken: list[str] = field(default_factory=list)
    """Certificates refuted, and changed models accepted."""
    sixty_digits: int = 0
    """Points of claim A that float64 and its proved error left open, evaluated by the oracle ..."""
    left_open: int = 0
    """... and those beyond the network's quota."""
    beyond: int = 0
    """Certified images that an attack at 1.001 times the radius breaks: how tight the networks are."""
    known: int = 0
    """Images of linear networks whose radius was compared with the known distance."""
    wrong: list[str] = field(default_factory=list)
    """Known images with a radius outside [0.999 d, d]."""
    plain: int = 0
    """Standard certificates in float32, margin / (|w_c - w_j| L), attacked on the float32 program."""
    plain_broken: int = 0
    plain_networks: int = 0
    """Networks with a broken standard certificate."""

    def add(self, other: "Tally") -> None:
        """Add the counts of other networks."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


def falsify(
    networks: int,
    certificates: int,
    *,
    first_seed: int = 0,
    mutant: Mutant = nullcontext,
    compare: bool = True,
    stop: bool = False,
) -> Tally:
    """Run until both budgets are spent, or, if `stop`, until the first certificate breaks.

    The mutant is active while a network is frozen and certified, never while its certificates are checked. `compare`
    adds the comparisons with the standard certificate and with known distances.
    """
    tally = Tally()
    seed = first_seed
    while (tally.networks < networks or tally.certified < certificates) and not (stop and tally.broken):
        with mutant():
            case = network(seed)
            certified = certify(case.model, case.images)
            if seed % 8 == 0:
                _tamper(case, tally)
        generator = torch.Generator().manual_seed(seed)
        graph = case.model.astype(torch.float64)
        limits = bounds(graph)
        _attack_program(case, graph, certified, tally, generator)
        _attack_real(case, graph, limits, certified, tally, generator)
        if compare:
            _compare_plain(case, tally, generator)
            if case.kind == "known answer":
                _compare_known(case, graph, limits, certified, tally)
        tally.networks += 1
        tally.images += len(case.images)
        tally.certified += int((certified.radii["float"] > 0).sum())
        seed += 1
    return tally


def _attack_program(
    case: Case, graph: FrozenModel, certified: Certificates, tally: Tally, generator: torch.Generator
) -> None:
    """Claim B: the float64 program keeps its prediction."""
    radius = certified.radii["float"]
    chosen = radius > 0
    x, labels, radius = case.images[chosen], certified.predictions[chosen], radius[chosen]
    for attack, points in attack_points(graph, x, labels, radius, BUDGET, generator):
        with torch.no_grad():
            fallen = graph(points).argmax(dim=1) != labels
        for n in fallen.nonzero().flatten().tolist():
            _judge(case, "float", attack, x[n], points[n], float(radius[n]), tally)
    with torch.no_grad():
        outside = onto_sphere(x, nearest_boundary(graph, x, labels), radius * 1.001)
        tally.beyond += int((graph(outside).argmax(dim=1) != labels).sum())


def _attack_real(
    case: Case,
    graph: FrozenModel,
    limits: Bounds,
    certified: Certificates,
    tally: Tally,
    generator: torch.Generator,
) -> None:
    """Claim A: the real margin stays positive. The float64 margin with its proved error decides, or sixty digits do."""
    radius = certified.radii["real"]
    chosen = radius > 0
    x, labels, radius = case.images[chosen], certified.predictions[chosen], radius[chosen]
    undecided: dict[int, tuple[float, str, Tensor]] = {}  # for each image, the point of smallest margin
    for attack, points in attack_points(graph, x, labels, radius, Budget(steps=2, restarts=1, tries=0), generator):
        with torch.no_grad():
            lower, upper = real_margins(limits, graph(points), labels)
        for n in (upper <= 0).nonzero().flatten().tolist():
            _judge(case, "real", attack, x[n], points[n], float(radius[n]), tally)
        for n in ((lower <= 0) & (upper > 0)).nonzero().flatten().tolist():
            margin = float((lower + upper)[n]) / 2
            if n not in undecided or margin < undecided[n][0]:
                undecided[n] = (margin, attack, points[n])
    asked = sorted(undecided.items(), key=lambda item: item[1][0])[:UNDECIDED]
    tally.left_open += len(undecided) - len(asked)
    tally.sixty_digits += len(asked)
    if asked:
        logits = real_function(graph, graph.input_shape)(torch.stack([point for _, (_, _, point) in asked]))
        for (n, (_, attack, point)), row in zip(asked, logits, strict=True):
            if not smallest_margin(row, int(labels[n])) > 0:
                _judge(case, "real", attack, x[n], point, float(radius[n]), tally)


def _judge(case: Case, claim: str, attack: str, image: Tensor, point: Tensor, radius: float, tally: Tally) -> None:
    """Record a broken certificate if the point is within the radius, in exact rationals."""
    if squared_distance(image, point) <= Fraction(radius) ** 2:
        tally.broken.append(f"seed {case.seed} ({case.kind}): claim {claim}, radius {radius!r}, by {attack}")


def _tamper(case: Case, tally: Tally) -> None:
    """A model changed after freezing must be refused, however small the change."""
    changed = copy.deepcopy(case.model)  # `astype` to the same precision shares its tensors
    tensor = next(t for t in changed.buffers() if t.abs().max() > 0)
    tensor.data.mul_(1 + 2 * torch.finfo(tensor.dtype).eps)
    try:
        certify(changed, case.images[:1])
    except InputError:
        return
    tally.broken.append(f"seed {case.seed} ({case.kind}): changed after freezing, and still certified")


def _compare_plain(case: Case, tally: Tally, generator: torch.Generator) -> None:
    """Attack the standard certificate, computed entirely in float32, on the float32 program."""
    if case.model.precision != torch.float32:
        return
    program, images = case.model, case.images.float()
    head = list(program)[-1]
    with torch.no_grad():
        logits = program(images)
    labels = logits.argmax(dim=1)
    lipschitz = float(next(iter(program)).lipschitz_bound())
    pairs = torch.cdist(head.weight, head.weight, compute_mode="donot_use_mm_for_euclid_dist")
    radius = plain_radii(logits, labels, pairs, lipschitz)
    chosen = (radius > 0) & radius.isfinite()
    if not chosen.any():
        return
    x, labels, radius = images[chosen], labels[chosen], radius[chosen]
    broken = torch.zeros(len(x), dtype=torch.bool)
    for _, points in attack_points(program, x, labels, radius, Budget(steps=0, restarts=0, tries=4), generator):
        with torch.no_grad():
            broken |= program(points).argmax(dim=1) != labels
    tally.plain += len(x)
    tally.plain_broken += int(broken.sum())
    tally.plain_networks += bool(broken.any())


def _compare_known(case: Case, graph: FrozenModel, limits: Bounds, certified: Certificates, tally: Tally) -> None:
    """In a linear network, the distance d to the boundary is the smallest margin / |gradient| over the classes.

    Where the proved error of the computed margin is under 1e-5 of it, radii must lie in [0.999 d, d], up to that error.
    """
    images = case.images.clone().requires_grad_()
    logits = graph(images)
    labels = certified.predictions
    lower, upper = real_margins(limits, logits.detach(), labels)
    error = (upper - lower) / lower
    clear = (lower > 0) & (error <= 1e-5)
    own = logits.gather(1, labels[:, None]).squeeze(1)
    distance = torch.full_like(own, torch.inf).detach()
    for other in range(logits.shape[1]):
        gap = own - logits[:, other]
        (slope,) = torch.autograd.grad(gap.sum(), images, retain_graph=True)
        reach = gap.detach() / slope.flatten(1).norm(dim=1)
        distance = torch.where(labels != other, torch.minimum(distance, reach), distance)
    tally.known += int(clear.sum())
    for claim in ("real", "float"):
        part = certified.radii[claim] / distance
        off = clear & ~((part >= 0.999) & (part <= 1 + error + 1e-12))
        for n in off.nonzero().flatten().tolist():
            tally.wrong.append(f"seed {case.seed}, image {n}: claim {claim}, radius / distance = {float(part[n])!r}")
