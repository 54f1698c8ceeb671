"""The best networks of run directories, each with a name for tables and plots."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from lotnet.errors import InputError
from lotnet.models import LipConvnet
from lotnet.runs.directory import Run


@dataclass(frozen=True, eq=False)
class Network:
    """The best network of a run."""

    name: str
    """Its parametrization and structure; with the path of the run where several networks share these."""
    run: Run
    model: nn.Sequential
    """In `eval()` mode."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        images = self.run.images()
        return images.channels, images.height, images.width


def load_networks(paths: list[Path], device: torch.device) -> list[Network]:
    """Load the best checkpoint of each run. No two networks have the same name."""
    runs = [Run.open(path) for path in paths]
    models = [run.best_model().to(device) for run in runs]
    return [Network(*parts) for parts in zip(_names(runs), runs, models, strict=True)]


def _names(runs: list[Run]) -> list[str]:
    kinds = []
    for run in runs:
        model = run.config.model
        residual = isinstance(model, LipConvnet) and model.residual and model.depth > 10
        kinds.append(f"{model.parametrization.upper()}{', residual' if residual else ''}")
    names = [kind if kinds.count(kind) == 1 else f"{run.path}: {kind}" for run, kind in zip(runs, kinds, strict=True)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name.split(':')[0]} is named twice: name each run once")
    return names
