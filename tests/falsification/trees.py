"""Trees of frozen modules that nobody would build: any module in any container, on images of odd sizes."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass
class Stage:
    """A module of a model folder, with its own tensors and its children."""

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    children: list["Stage"] = field(default_factory=list)

    def describe(self, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """What config.json says about it. Its tensors are added to `tensors`, under their names in the file."""
        tensors |= {f"{name}.{own}": tensor.clone() for own, tensor in self.tensors.items()}
        names = ("shortcut", "block") if self.kind == "residual" else [f"stages.{n}" for n in range(len(self.children))]
        children = [part.describe(f"{name}.{own}", tensors) for own, part in zip(names, self.children, strict=False)]
        own = sorted(self.tensors)
        return {"kind": self.kind, "settings": self.settings, "tensors": own, "children": children}


def tree(rng: random.Random, shape: Shape, depth: int) -> Stage:
    """A container of trees for the shapes that it passes on, or a leaf."""
    if depth == 0 or rng.random() < 0.3:
        return _leaf(rng, shape)
    kind = rng.choice(("sequential", "grouped", "grouped", "dilated", "dilated", "residual", "concatenation"))
    if kind == "grouped":
        groups = rng.choice((1, 2))
        part = (max(1, shape[0] // groups), *shape[1:])
        return Stage(kind, children=[tree(rng, part, depth - 1) for _ in range(groups)])
    if kind == "dilated":
        return _dilated(rng, shape, depth)
    children = [tree(rng, shape, depth - 1) for _ in range(rng.choice((1, 2, 2)))]
    if kind == "residual":
        return Stage(kind, {}, {"weights": torch.rand(2)}, children)
    if kind == "concatenation":
        return Stage(kind, {}, {"scale": torch.tensor(rng.choice((0.5, 1.0)))}, children)
    return Stage(kind, children=children)


def _dilated(rng: random.Random, shape: Shape, depth: int) -> Stage:
    c, *sides = shape
    dilation, shift = ([rng.choice(values) for _ in sides] for values in ((1, 2), (0, 0, 1, 2, 3)))
    circular = rng.random() < 0.5
    part = [
        max(1, side // d) if circular else -(-(side + s) // d)
        for side, d, s in zip(sides, dilation, shift, strict=True)
    ]
    settings = {"height": sides[0], "width": sides[1], "dilation": dilation, "shift": shift, "circular": circular}
    return Stage("dilated", settings, children=[tree(rng, (c, *part), depth - 1)])


def _leaf(rng: random.Random, shape: Shape) -> Stage:
    c, h, w = shape
    size, stride = {"height": h, "width": w}, rng.choice((1, 2, [1, 2], [2, 2]))
    padding = rng.choice(("zeros", "circular"))
    convolution = {**size, "padding_mode": padding, "dilation": [1, 1], "extra": [0, 0]}
    bias = torch.randn(2)
    return rng.choice(
        (
            Stage("max_min"),
            Stage("flatten"),
            Stage("to_column"),
            Stage("from_column"),
            Stage("average_pool", {"size": 2}),
            Stage("max_pool", {"size": 2}),
            Stage("downsampling", {"stride": stride}),
            Stage("upsampling", {"stride": stride}),
            Stage("group_sort", {"size": rng.choice((1, 2))}),
            Stage("norm_pool", {"height": rng.choice((1, 2)), "width": 2}),
            Stage("global_average_pool", size, {"scale": torch.tensor(rng.choice((0.1, 1.0, 2.0)))}),
            Stage("hardtanh", {}, {"low": torch.tensor(-1.0), "high": torch.tensor(2.0)}),
            Stage("leaky_relu", {}, {"slope": torch.randn(c)}),
            Stage("channel_shift", {"size": rng.choice((1, 3)), "padding_mode": padding}),
            Stage("normalize", size, {"mean": torch.randn(c), "std": torch.rand(c) + 0.1}),
            Stage("shift", {"pixels": rng.choice((1, 4, h * w))}, {"shift": torch.randn(c)}),
            Stage("layer_centering", size, {"bias": torch.randn(c)}),
            Stage("linear", {}, {"weight": torch.randn(2, c), "bias": bias}),
            Stage("householder", {}, {"normals": torch.randn(1, 2, max(1, c // 2))}),
            Stage("dense", size, {"matrix": torch.randn(2 * h * w, math.prod(shape)), "bias": bias}),
            *[Stage("kernel", convolution, {"kernel": torch.randn(2, c, 3, 3), "bias": bias})] * 3,
        )
    )
