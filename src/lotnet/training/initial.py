"""Start training from another model: its network and weights, with a new last layer for other classes.

The model is a run, a packed model, or one that comes with lotnet. A frozen model has no weights to train.
"""

import dataclasses
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lotnet.config import Settings
from lotnet.config.settings import kind_of
from lotnet.data import Dataset, is_folder
from lotnet.errors import InputError
from lotnet.models import ImageSpec, ModelConfig
from lotnet.pretrained import resolve, shipped_names
from lotnet.runs.data import shape_settings
from lotnet.runs.directory import Run

LEARNING_RATE = 2e-3
"""Largest learning rate where nothing else is asked for: a large one loses what the model has learned."""
LOSS_RADIUS = 72 / 255
"""Radius of the loss where nothing else is asked for. On the pair of classes on which it was chosen, certified accuracy
gained and clean accuracy did not lose: results/own_images.md."""


@dataclass(frozen=True, eq=False)
class Initial:
    """A trained network to start from."""

    name: str
    model: ModelConfig
    images: ImageSpec
    tensors: Mapping[str, Tensor]
    """The weights by their names in the network."""

    def digest(self) -> str:
        """SHA-256 of the weights."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().float().contiguous().numpy().data)
        return digest.hexdigest()

    def check(self, dataset: Dataset) -> None:
        """Refuse images of another shape than the model reads."""
        shape = self.images.shape
        if dataset.shape != shape:
            mine, theirs = (" x ".join(map(str, size)) for size in (shape, dataset.shape))
            raise InputError(f"{self.name} reads images of {mine}, and {dataset.name} has {theirs}: start from another")


def read_initial(name: str) -> Initial:
    """Read the network `name`: a run, a packed model, or one that comes with lotnet."""
    found = resolve(str(Path(name).expanduser()) if name.startswith("~") else name)
    if found is not None and found.kind == "run":
        run = Run.open(found.folder)
        return Initial(name, run.config.model, run.images(), run.best_model().state_dict())
    stored = None if found is None else found.read_packed()
    if stored is not None:
        return Initial(name, stored.model, stored.images, stored.tensors)
    known = f"a run, a packed model or one that comes with lotnet ({', '.join(shipped_names())})"
    if found is not None:
        raise InputError(f"{name} is a frozen model, which cannot be trained: start from {known}")
    raise InputError(f"there is no model {name} to start from: name {known}")


def with_initial(settings: Settings, given: Collection[str]) -> Settings:
    """The settings of a new run with the network of `init`, and images of its shape.

    `given` are the names that the user set. Settings of the network are refused.
    """
    initial = read_initial(settings.values["init"])
    for name in given:
        if name.startswith("model."):
            raise InputError(f"{initial.name} brings its own network: leave --{name} out")
    values: dict[str, Any] = {f"model.{name}": value for name, value in dataclasses.asdict(initial.model).items()}
    values["model.kind"] = kind_of(initial.model)
    if "optimizer.lr" not in given:
        values["optimizer.lr"] = LEARNING_RATE
    if "loss.radius" in settings.known() and not {"loss.radius", "loss.kind"} & {*given}:
        values["loss.radius"] = LOSS_RADIUS
    if is_folder(settings.values.get("data.name", "")):
        values |= {name: value for name, value in shape_settings(initial.images.shape).items() if name not in given}
    return settings.override(values, settings.source)


def initialize(model: nn.Module, run: Run) -> str | None:
    """Load the weights of a new run that starts from another model, all but those of the last layer.

    Returns their digest. A run with checkpoints has its own weights: nothing is loaded, and None is returned.
    """
    if run.config.init is None or run.checkpoints.steps():
        return None
    initial = read_initial(run.config.init)
    last = f"{len(list(model.children())) - 1}."
    kept = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(last)}
    shapes = {name: tensor.shape for name, tensor in initial.tensors.items()}
    if any(shapes.get(name) != tensor.shape for name, tensor in kept.items()):
        raise InputError(f"the network of {initial.name} is another than that of {run.path}: leave model settings out")
    with torch.no_grad():
        for name, tensor in kept.items():
            tensor.copy_(initial.tensors[name])
    return initial.digest()
