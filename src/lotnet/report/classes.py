"""Results by class: accuracies, and which classes are taken for which, at any radius.

The page counts them again when the radius changes, from the radii that `packed` stores.
"""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from lotnet.report.collect import RunData

SQUARE = 20
"""Most classes whose predictions are shown as a square."""


@dataclass(frozen=True)
class Cell:
    """Images of one class that got one prediction."""

    key: str
    """For the page: true and predicted class."""
    images: int
    certified: int
    """Those with a radius above the chosen one."""
    part: float
    """Share of the images of the class that are certified so, which tints the cell."""
    right: bool


@dataclass(frozen=True)
class ConfusionRow:
    true: str
    images: int
    cells: list[Cell]
    rest: int
    """Images whose radius is not above the chosen one."""


@dataclass(frozen=True)
class ConfusedPair:
    """A class that is taken for another."""

    true: str
    predicted: str
    cell: Cell
    of: int
    """Images of the class."""


def by_class(run: RunData, label: int, radius: float) -> dict[str, Any]:
    """Accuracies of a class, which are None if none of its images were certified."""
    mine = run.labels == label
    count = int(mine.sum())
    right = mine & run.correct
    certified = int((right & (run.radii > radius)).sum())
    return {
        "images": count,
        "clean": int(right.sum()) / count if count else None,
        "certified": certified / count if count else None,
    }


def confusion(run: RunData, radius: float) -> list[ConfusionRow]:
    """The confusion matrix of the predictions certified at a radius; empty if there are more than `SQUARE` classes."""
    if len(run.classes) > SQUARE:
        return []
    counts, held = _counts(run), _counts(run, radius)
    return [
        ConfusionRow(
            true=name,
            images=int(counts[n].sum()),
            cells=[_cell(counts, held, n, m) for m in range(len(run.classes))],
            rest=int(counts[n].sum() - held[n].sum()),
        )
        for n, name in enumerate(run.classes)
    ]


def confused_pairs(run: RunData, radius: float) -> list[ConfusedPair]:
    """The classes that are confused most often, for data with too many classes for a square."""
    if len(run.classes) <= SQUARE:
        return []
    counts, held = _counts(run), _counts(run, radius)
    np.fill_diagonal(wrong := counts.copy(), 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:SQUARE]
    places = [divmod(int(place), len(run.classes)) for place in order]
    return [
        ConfusedPair(
            run.classes[true], run.classes[predicted], _cell(counts, held, true, predicted), int(counts[true].sum())
        )
        for true, predicted in places
        if wrong[true, predicted]
    ]


def packed(run: RunData) -> dict[str, Any]:
    """Data of the slider: the exact radii, sorted within each pair of true class and prediction.

    `cells` has true class, prediction and number of images of each pair that occurs, in the order of `radii`.
    """
    order = np.lexsort((run.radii, run.predictions, run.labels))
    pairs = np.stack([run.labels, run.predictions])[:, order]
    found, counts = np.unique(pairs, axis=1, return_counts=True)
    return {
        "name": run.name,
        "images": len(run),
        "classes": np.bincount(run.labels, minlength=len(run.classes)).tolist(),
        "cells": np.vstack([found, counts]).T.tolist(),
        "radii": base64.b64encode(run.radii[order].astype("<f8").tobytes()).decode(),
    }


def _counts(run: RunData, radius: float | None = None) -> np.ndarray:
    """Number of images by true class and prediction; those with a radius above `radius`, if one is given."""
    kept = np.ones(len(run), dtype=bool) if radius is None else run.radii > radius
    counts = np.zeros((len(run.classes), len(run.classes)), dtype=np.int64)
    np.add.at(counts, (run.labels[kept], run.predictions[kept]), 1)
    return counts


def _cell(counts: np.ndarray, held: np.ndarray, true: int, predicted: int) -> Cell:
    images, certified = int(counts[true, predicted]), int(held[true, predicted])
    return Cell(
        f"{true}-{predicted}", images, certified, certified / max(1, int(counts[true].sum())), true == predicted
    )
