"""Accuracy under the l-infinity attack of several models, and the paper's row of each."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch

from lotnet.attacks import LINF_RADIUS, PGD_LINF, PGDSettings, linf_accuracy
from lotnet.data import UnitImages
from lotnet.load_model import LoadedModel
from lotnet.paper import results
from lotnet.paper.tables import Row
from lotnet.runs.attacks import LInfRecord


@dataclass(frozen=True)
class LInfAttack:
    """An l-infinity attack, and the images that are attacked."""

    radius: float = LINF_RADIUS
    settings: PGDSettings = PGD_LINF
    split: str = "test"
    limit: int | None = None
    batch_size: int | None = None
    seed: int = 0


def count_images(models: list[LoadedModel], attack: LInfAttack) -> int:
    """Count the images of all models together, for a progress bar."""
    return sum(len(model.split(attack.split, attack.limit)) for model in models)


def attack_models(
    models: list[LoadedModel], attack: LInfAttack, device: torch.device, progress: Callable[[int], None]
) -> Iterator[LInfRecord]:
    """Attack one model after another. Nothing is certified. `progress` gets counts of images done."""
    settings = attack.settings
    for loaded in models:
        split = loaded.split(attack.split, attack.limit)
        accuracy = linf_accuracy(
            loaded.model.to(device),
            UnitImages(split.pixels),
            split.labels,
            attack.radius,
            settings,
            batch_size=attack.batch_size,
            seed=attack.seed,
            progress=progress,
        )
        yield LInfRecord(
            **asdict(accuracy),
            radius=attack.radius,
            steps=settings.steps,
            restarts=settings.restarts,
            seed=attack.seed,
            split=attack.split,
            checksum=loaded.model.spec.checksum,
            step_size=settings.step_size,
            loss=settings.loss,
        )


def paper_row(loaded: LoadedModel, attack: LInfAttack) -> Row | None:
    """The model's row in the paper's table of this attack; None for a model without its run, or another attack."""
    if loaded.run is None or (attack.radius, attack.split) != (LINF_RADIUS, "test"):
        return None
    command = results.command_of(loaded.run.environment().sessions[0].command)
    return results.row_of_run(loaded.run.config, command, "pgd-linf")
