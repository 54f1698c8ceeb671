"""The gallery: an image of each class, mistakes, the most and the least robust images, and adversarial examples."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lotnet.data import Split
from lotnet.data.pictures import levels, png_url
from lotnet.errors import InputError
from lotnet.report.collect import RunData
from lotnet.runs.data import split_subset_indices

KINDS = {
    "classes": ("One image of each class", "For each class, the correctly classified image with the median radius."),
    "mistakes": (
        "Mistakes",
        "Misclassified, largest certified radius first: a certificate does not say that a prediction is correct.",
    ),
    "most": ("Most robust", "Classified correctly, with the largest certified radii."),
    "least": ("Least robust", "Classified correctly, with the smallest certified radii."),
    "attacked": (
        "Attacked",
        "Beside each image, the nearest adversarial example that projected gradient descent (PGD) found.",
    ),
}
"""Kind: (title, description). The first two are shown first."""
OVERVIEW = ("classes", "mistakes")

_TOP = 10
"""Images per kind that are shown for all classes together."""
_PER_CLASS = 6
_BUDGET = 700_000
"""Bytes of pixels on one page. PNG compresses photographs little, and base64 adds a third."""
_SIDE = 64
"""Larger images are scaled down to this size."""


@dataclass(frozen=True)
class Neighbour:
    """An adversarial example."""

    picture: str
    label: str
    distance: float


@dataclass(frozen=True)
class Card:
    """One image of the gallery. Pictures are data URIs."""

    index: int
    """Index in the split."""
    picture: str
    label: int
    true: str
    predicted: str
    margin: float
    radius: float
    top: bool
    """Whether it is shown when all classes are selected."""
    neighbour: Neighbour | None


def split_indices(run: RunData, split: Split) -> np.ndarray:
    """The index in the split of each certified image, after a check that they are the same images."""
    if len(run) > len(split):
        raise InputError(f"{run.name} has {len(run)} certificates, its data only {len(split)} images: certify it again")
    places = split_subset_indices(run.certification.split, len(split), len(run)).numpy()
    if not np.array_equal(split.labels.numpy()[places], run.labels):
        raise InputError(f"the certificates of {run.name} are about other images than its data: certify it again")
    return places


def gallery(run: RunData, split: Split, runs: int) -> dict[str, list[Card]]:
    """The cards of each kind, most extreme first. `runs` is the number of runs on the page."""
    places = split_indices(run, split)
    neighbours = _neighbours(run, split, places)
    found: dict[str, list[Card]] = {}
    for kind, (order, top) in _chosen(run, list(neighbours), *_room(run, split, runs)).items():
        found[kind] = [
            Card(
                index=int(places[n]),
                picture=picture_url(split.image(int(places[n]))),
                label=int(run.labels[n]),
                true=run.classes[run.labels[n]],
                predicted=run.classes[run.predictions[n]],
                margin=float(run.margins[n]),
                radius=float(run.radii[n]),
                top=n in top,
                neighbour=neighbours.get(n) if kind == "attacked" else None,
            )
            for n in order
        ]
    return found


def _room(run: RunData, split: Split, runs: int) -> tuple[int, int, int]:
    """How many images fit on the page: of different classes; of each other kind for all classes, and per class."""
    c, h, w = split.shape
    room = _BUDGET // (c * min(h, _SIDE) * min(w, _SIDE) * runs)
    classes = min(len(run.classes), room // 4)
    left = (room - classes) // 3
    top = min(_TOP, left)
    return classes, top, min(_PER_CLASS, (left - top) // len(run.classes))


def _chosen(
    run: RunData, attacked: list[int], classes: int, together: int, of_each: int
) -> dict[str, tuple[list[int], set[int]]]:
    """For each kind: the images in order, and the subset shown for all classes."""
    order = np.argsort(run.radii, kind="stable")
    right = run.correct[order]
    typical = [n for label in range(len(run.classes)) if (n := _typical(run, order, label)) is not None][:classes]
    found = {"classes": (typical, set(typical))}
    kinds = {"mistakes": order[~right][::-1], "most": order[right][::-1], "least": order[right]}
    for kind, members in kinds.items():
        top = set(members[:together].tolist())
        some = [n for label in range(len(run.classes)) for n in members[run.labels[members] == label][:of_each]]
        kept = top.union(some)
        found[kind] = ([n for n in members.tolist() if n in kept], top)
    found["attacked"] = (sorted(attacked, key=lambda n: run.radii[n]), set(attacked))
    return found


def _typical(run: RunData, order: np.ndarray, label: int) -> int | None:
    """The correctly classified image of a class with the median radius. `order` sorts images by radius."""
    members = order[(run.labels[order] == label) & run.correct[order]]
    return int(members[len(members) // 2]) if len(members) else None


def _neighbours(run: RunData, split: Split, places: np.ndarray) -> dict[int, Neighbour]:
    """Adversarial examples of `lotnet attack`, by index in the certificates. It may have used fewer images, or more."""
    if run.attacks is None or run.attacks.images > len(split):
        return {}
    order = {int(place): n for n, place in enumerate(places)}
    attacked_places = split_subset_indices(run.certification.split, len(split), run.attacks.images)
    found = {}
    for example in run.attacks.nearest:
        place = int(attacked_places[example.index])
        pixels, image = example.pixels().astype(np.float64), split.image(place).numpy()
        # An attack on the other split had other images at these indices, so the stored distances do not match.
        same = pixels.size == image.size and np.isclose(
            np.linalg.norm(pixels - image.flatten() / 255), example.distance, rtol=1e-6
        )
        if same and place in order:
            picture = picture_url(levels(torch.from_numpy(pixels)).view(image.shape))
            found[order[place]] = Neighbour(picture, run.classes[example.after], example.distance)
    return found


def picture_url(image: Tensor) -> str:  # c h w, uint8
    """A picture as a data URL, at most `_SIDE` pixels large."""
    return png_url(image, _SIDE)
