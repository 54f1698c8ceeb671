"""What a set of certificates says in a table, and the file it is kept in."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from lotnet.certification.audit import AuditRow
from lotnet.certification.certificate import Certificates, Claim
from lotnet.files import atomic_write

FORMAT = 1
CLAIMS: tuple[Claim, ...] = ("plain", "real", "float")
_CURVE_POINTS = 101


@dataclass(frozen=True)
class Summary:
    """Accuracies in [0, 1]; radii in l2 of pixels in [0, 1], largest first-class citizen: claim B."""

    images: int
    clean: float
    radii: list[float]
    certified: dict[Claim, list[float]]
    """At each of `radii`, for each claim."""
    mean_radius: dict[Claim, float]
    """Over all images; zero for those classified wrongly."""
    linf_mean_radius: float
    """Implied by claim B: an l-infinity ball of radius r / sqrt(d) lies in the l2 ball of radius r."""
    l1_mean_radius: float
    """Implied by claim B: so does the l1 ball of radius r."""
    curve: dict[str, list[float]]
    """`radius`, and claim B's certified accuracy at it."""
    classes: list[dict[str, Any]]
    """For each class: name, images, clean, and claim B's certified accuracy at each of `radii`."""
    lipschitz_bound: float
    precision: str
    not_finite: int


def summarize(certificates: Certificates, radii: list[float], class_names: tuple[str, ...], dimensions: int) -> Summary:
    """`dimensions` is the number of pixels times channels."""
    right = certificates.correct()
    held = {claim: torch.where(right, certificates.radii[claim], 0.0) for claim in CLAIMS}
    mean = {claim: float(held[claim].mean()) for claim in CLAIMS}
    grid = torch.linspace(0, float(held["float"].max()) or 1.0, _CURVE_POINTS, dtype=torch.float64)
    curve = [float((right & (certificates.radii["float"] > r)).double().mean()) for r in grid]
    assert certificates.labels is not None
    classes = []
    for n, name in enumerate(class_names):
        mine = certificates.labels == n
        count = max(1, int(mine.sum()))
        at = [int((mine & right & (certificates.radii["float"] > r)).sum()) / count for r in radii]
        classes.append(
            {"name": name, "images": int(mine.sum()), "clean": int((mine & right).sum()) / count, "certified": at}
        )
    return Summary(
        images=len(certificates),
        clean=certificates.accuracy(),
        radii=radii,
        certified={claim: [certificates.accuracy(r, claim) for r in radii] for claim in CLAIMS},
        mean_radius=mean,
        linf_mean_radius=mean["float"] / math.sqrt(dimensions),
        l1_mean_radius=mean["float"],
        curve={"radius": grid.tolist(), "certified": curve},
        classes=classes,
        lipschitz_bound=certificates.lipschitz_bound,
        precision=certificates.precision,
        not_finite=certificates.not_finite,
    )


def write_certificates(
    path: Path, summary: Summary, certificates: Certificates, audit: list[AuditRow], about: dict[str, Any]
) -> None:
    """`certificates.json`: a summary, the audit, and one object for each image, each image on a line of its own."""
    head = {"format": FORMAT, **about, "summary": asdict(summary), "audit": [asdict(row) for row in audit]}
    images = ",\n  ".join(json.dumps({"index": n, **asdict(c)}) for n, c in enumerate(certificates))
    text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "images": [\n  {images}\n ]\n}}\n'
    atomic_write(path, text.encode())
