"""What a perturbation of a given norm looks like, on one picture of the data set.

With the frozen model of the run it is an adversarial one: projected gradient descent (PGD) on the float64 program,
which certificates are about. Without the model it is random noise of the same norm. The page says which it is.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lotnet.attacks import PGDSettings, pgd_l2
from lotnet.certification.plain import RADII
from lotnet.data import Split, to_unit
from lotnet.data.pictures import levels
from lotnet.frozen.model import FrozenModel
from lotnet.report.collect import RunData
from lotnet.report.gallery import picture_url, split_indices

_STEPS = 10
"""Gradient steps. The networks are nearly linear at these distances, so more would show the same."""

_STRETCHES = 20


@dataclass(frozen=True)
class Perturbed:
    """The picture after a perturbation. Pictures are data URIs."""

    radius: float
    """The norm that was allowed."""
    norm: float
    """The norm that it has."""
    picture: str
    change: str
    """The perturbation alone: mid-grey is no change."""
    predicted: str | None
    """None if there is no model that could say."""


@dataclass(frozen=True)
class Strip:
    index: int
    """Of the image in the split."""
    picture: str
    true: str
    radius: float
    """Certified."""
    adversarial: bool
    amplified: int
    """By how much the changes are amplified."""
    steps: list[Perturbed]


def strip(run: RunData, split: Split, model: FrozenModel | None) -> Strip | None:
    """Perturb the correctly classified image with the median radius; None if no image is classified correctly."""
    order = np.argsort(run.radii, kind="stable")
    right = order[run.correct[order]]
    if not len(right):
        return None
    chosen = int(right[len(right) // 2])
    index = int(split_indices(run, split)[chosen])
    image = to_unit(split.image(index)[None], torch.float64)
    random = torch.Generator().manual_seed(0)
    radii = torch.tensor(RADII, dtype=torch.float64)
    images = image.expand(len(RADII), *image.shape[1:])
    names: list[str] | None = None
    if model is None:
        noise = torch.randn(image.shape, generator=random, dtype=torch.float64)
        perturbed = image + radii[:, None, None, None] * noise / noise.norm()
    else:
        program = model.astype(torch.float64)
        labels = torch.full((len(RADII),), int(run.labels[chosen]))
        settings = PGDSettings(steps=_STEPS, step_size=0.3, clip=True)  # the page shows pictures
        attacked = pgd_l2(program, images.contiguous(), labels, radii, settings, generator=random)
        perturbed = _stretched(images, attacked, radii)
        with torch.no_grad():
            names = [run.classes[n] for n in program(perturbed).argmax(dim=1).tolist()]
    changes = perturbed - images
    amplified = max(1, int(0.5 / float(changes.abs().max())))
    return Strip(
        index=index,
        picture=picture_url(levels(image[0])),
        true=run.classes[run.labels[chosen]],
        radius=float(run.radii[chosen]),
        adversarial=model is not None,
        amplified=amplified,
        steps=[
            Perturbed(
                radius=radius,
                norm=float(change.norm()),
                picture=picture_url(levels(moved)),
                change=picture_url(levels(0.5 + amplified * change)),
                predicted=None if names is None else names[n],
            )
            for n, (radius, moved, change) in enumerate(zip(RADII, perturbed, changes, strict=True))
        ],
    )


def _stretched(images: Tensor, attacked: Tensor, radii: Tensor) -> Tensor:
    """Lengthen the perturbations to their radii where pixels in [0, 1] allow it: the attack ends a little inside."""
    for _ in range(_STRETCHES):
        changes = attacked - images
        norms = changes.flatten(1).norm(dim=1).clamp_min(torch.finfo(changes.dtype).tiny)
        attacked = (images + (radii / norms)[:, None, None, None] * changes).clamp(0, 1)
    return attacked
