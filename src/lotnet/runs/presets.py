"""Presets: network, batch size and epochs for the images of a folder, by their size and number and by the device.

The rule is deterministic, so that the same folder gives the same settings everywhere with the same kind of device:

* `auto` is `small` on a CPU and `large` on a GPU;
* each preset has a depth and an amount of work. The first stage has as many channels as that work allows: a power of
  two from `FEWEST_CHANNELS` to `MOST_CHANNELS`. The work is what orthogonalising costs, the sum over the five stages
  of pixels times channels cubed, because that dominates the time of a step;
* the batch is the preset's, but at most an eighth of the images that are trained on (validation images are not),
  rounded down to a power of two;
* epochs are such that the preset's number of images is seen in all, at least `FEWEST_EPOCHS` and at most
  `MOST_EPOCHS`. An image of more than 32 x 32 pixels counts as often as it is larger;
* a run that starts from another model (`init`) has that model's network and a twentieth of the epochs, at least
  `FEWEST_EPOCHS`: its features are there already, and a step of a large network takes seconds on a CPU.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lotnet.config import Settings
from lotnet.config.groups import DataConfig
from lotnet.data import choose_shape, is_folder
from lotnet.errors import InputError
from lotnet.models import halvings
from lotnet.runs.data import held_out, subset_indices

FEWEST_CHANNELS, MOST_CHANNELS = 4, 32
FEWEST_EPOCHS, MOST_EPOCHS = 10, 200
_USUAL_PIXELS = 32 * 32
_FINE_TUNING = 20


@dataclass(frozen=True)
class Preset:
    """Size of a network and length of its training."""

    depth: int
    work: int
    """Largest value of `stage_work`."""
    batch_size: int
    images_seen: int
    """Training images of 32 x 32 pixels that all epochs together see."""

    def settings(self, height: int, width: int, images: int, trained: int | None = None) -> dict[str, Any]:
        """Settings by dotted name for this many training images of height x width pixels.

        `trained` is how many of them are trained on, without those that choose the best epoch; by default all.
        """
        channels = MOST_CHANNELS
        while channels > FEWEST_CHANNELS and stage_work(height, width, channels) > self.work:
            channels //= 2
        eighth = (images if trained is None else trained) // 8
        batch = min(self.batch_size, 1 << max(0, eighth.bit_length() - 1))
        seen = self.images_seen / max(1, height * width / _USUAL_PIXELS)
        return {
            "model.depth": self.depth,
            "model.channels": channels,
            "trainer.batch_size": batch,
            "trainer.epochs": min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(seen / images))),
        }


PRESETS = {
    "small": Preset(depth=5, work=60_000_000, batch_size=64, images_seen=240_000),
    "medium": Preset(depth=10, work=400_000_000, batch_size=128, images_seen=1_000_000),
    "large": Preset(depth=20, work=10_000_000_000, batch_size=256, images_seen=3_000_000),
}


def stage_work(height: int, width: int, channels: int) -> int:
    """The work of the five stages of a LipConvnet with this many channels in the first."""
    halved = [min(stage, halvings(height, width)) for stage in range(1, 6)]
    return sum((height * width >> 2 * n) * (channels << n) ** 3 for n in halved)


def with_preset(settings: Settings, given: Collection[str], accelerator: str) -> Settings:
    """Fill in what the preset of these settings decides, for a new run on a "cpu" or another device.

    `given` are the names that the user set. A preset among them replaces what a recipe says, otherwise it only fills in
    what the recipe leaves open. The images of a folder that cannot be read leave the settings as they are.
    """
    chosen = settings.values.get("preset")
    if chosen is None:
        return settings
    data = settings.make(DataConfig, "data")
    if not is_folder(data.name):
        raise InputError(f"{settings.source}: presets are for images of a folder, not for {data.name}: leave it out")
    if not Path(data.name.partition(":")[2]).expanduser().is_dir():
        return settings  # the data are refused with a better sentence where they are loaded
    if chosen == "auto":
        chosen = "small" if accelerator == "cpu" else "large"
    choice = choose_shape(data.name, data.root, data.size, data.channels)
    labels, limit = choice.labels, settings.values.get("limit")
    if limit is not None:
        labels = labels[subset_indices(len(labels), limit)]
    trained = len(labels) - int(held_out(labels, data.validation).sum())
    filled = PRESETS[chosen].settings(*choice.shape[1:], len(labels), trained)
    if settings.values.get("init") is not None:
        filled["trainer.epochs"] = max(FEWEST_EPOCHS, filled["trainer.epochs"] // _FINE_TUNING)
    known = settings.known()
    values = {
        name: value
        for name, value in filled.items()
        if name in known and name not in given and ("preset" in given or name not in settings.values)
    }
    return settings.override({**values, "preset": chosen}, settings.source)
