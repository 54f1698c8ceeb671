"""Trained networks with their free kernels, each with a name for tables and plots."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from lotnet.data import Dataset
from lotnet.errors import InputError
from lotnet.losses import LOSSES, Loss
from lotnet.models import ImageSpec, ModelConfig
from lotnet.paper.titles import Words, data_title, distinguished, words
from lotnet.pretrained import resolve
from lotnet.pretrained.packed import Packed
from lotnet.records import convert
from lotnet.runs.data import load_data, load_for_model
from lotnet.runs.directory import Run


@dataclass(frozen=True, eq=False)
class Network:
    """The best network of a run, or that of a packed model."""

    source: str
    """As it was named: a run directory, the folder of a packed model, or the name of one that comes with lotnet."""
    name: str
    """What distinguishes it from the networks beside it; alone, the architecture, layer, loss and data set."""
    common: str
    """What is the same for all networks beside it. Empty for a network alone."""
    folder: Path
    """Of the run or the packed model; for one that comes with lotnet it is runs/NAME, which may not exist."""
    model: nn.Sequential
    """In `eval()` mode."""
    images: ImageSpec
    loss: Loss
    """The loss that it was trained with."""
    dataset: Callable[[], Dataset]
    """Loads the images that it was trained on and those to test it."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        return self.images.channels, self.images.height, self.images.width


@dataclass(frozen=True)
class Description:
    """A model in words."""

    name: str
    """What distinguishes it from the models beside it; alone, its architecture, layer, loss and data set."""
    common: str
    """What is the same for all models beside it. Empty for a model alone."""
    method: str
    """The name of its parametrization, or "" where that is unknown."""


def load_networks(sources: Sequence[str], device: torch.device) -> list[Network]:
    """Load the network of each run or packed model. No two networks have the same name."""
    return [_load(source, about, device) for source, about in describe(sources).items()]


def describe(sources: Sequence[str]) -> dict[str, Description]:
    """The description of each model, by the source that `lotnet.load` knows it by. No two have the same name."""
    for source in sources:
        if sources.count(source) > 1:
            raise InputError(f"{source} is named twice: name each once")
    settings = [_settings(source) for source in sources]
    common, names = distinguished([_words(source, known) for source, known in zip(sources, settings, strict=True)])
    if len(set(names)) < len(names):
        names = [f"{name} ({source})" if name else source for name, source in zip(names, sources, strict=True)]
    methods = [known[0].parametrization if known else "" for known in settings]
    described = [Description(name, common, method) for name, method in zip(names, methods, strict=True)]
    return dict(zip(sources, described, strict=True))


def _settings(source: str) -> tuple[ModelConfig, Loss, str] | None:
    """Model, loss and data set of a run or packed model. None for a frozen model, which has no such settings."""
    found = resolve(source)
    if found is not None and found.kind == "run":
        config = Run.open(found.folder).config
        return config.model, config.loss, config.data.name
    packed = None if found is None else found.read_packed()
    return None if packed is None else (packed.model, _loss(packed, source), packed.data)


def _words(source: str, settings: tuple[ModelConfig, Loss, str] | None) -> Words:
    if settings is None:
        return {"network": source}
    model, loss, data = settings
    return words(model, loss) | {"data": data_title(data)}


def _load(source: str, about: Description, device: torch.device) -> Network:
    found = resolve(source)
    packed = None if found is None else found.read_packed()
    if found is None or packed is None:
        run = Run.open(Path(source))  # which refuses what is no run
        model, dataset = run.best_model().to(device), partial(load_data, run.config)
        return Network(source, about.name, about.common, run.path, model, run.images(), run.config.loss, dataset)
    images = packed.images
    return Network(
        source,
        about.name,
        about.common,
        found.place,
        packed.network().to(device),
        images,
        _loss(packed, source),
        partial(load_for_model, packed.data, images.shape, packed.classes, source),
    )


def _loss(packed: Packed, source: str) -> Loss:
    """The loss of the training, which the file of a packed model keeps."""
    try:
        settings = dict(packed.trained.loss or {}) if packed.trained is not None else {}
        loss: Loss = convert(LOSSES[settings.pop("kind")], settings, "loss")
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{source} does not say with which loss it was trained: pack it again with `lotnet pack`"
        ) from None
    return loss
