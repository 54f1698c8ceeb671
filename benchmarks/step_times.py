"""How many epochs of each run of a list fit into a time, and how much memory its steps take.

    python benchmarks/step_times.py benchmarks/beyond_rows.yaml --seconds 120 --device cuda --write fitted.yaml

A few steps of each run are measured, with their batches and a pass over the validation images. `--write` writes the
list again with `--trainer.epochs` set so that every run takes about `--seconds`. Nothing is trained or stored.
"""

import argparse
import gc
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from lotnet.config import RunConfig
from lotnet.errors import InputError
from lotnet.runs.data import image_spec, load_data
from lotnet.training.launch import make_fabric
from lotnet.training.loop import make_batches
from lotnet.training.outlook import Outlook
from run_queue import Entry, read_entries

BATCHES = 20
"""Batches whose time is measured."""


@dataclass(frozen=True)
class Cost:
    """What a run costs on this machine, in seconds and bytes."""

    step: float
    """A step on a batch that is ready."""
    batch: float
    """Making a batch, augmentation included. On a GPU this work is added to the step's."""
    validation: float
    steps: int
    """Of an epoch."""
    parameters: int
    peak_bytes: int

    def epochs(self, seconds: float) -> int:
        return max(1, int(seconds / (self.steps * (self.step + self.batch) + self.validation)))


def cost(config: RunConfig, device: str) -> Cost:
    fabric = make_fabric(config.trainer, device)
    dataset = load_data(config)
    torch.manual_seed(config.seed)
    model = config.model.build(image_spec(dataset))
    batches, validation = make_batches(config, dataset, fabric, None)
    on_gpu = fabric.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    pace = Outlook(config, dataset, model, batches, validation).measure(fabric)
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    made = iter(batches.epoch(1))
    float(next(made)[0].sum())  # waits for the device
    start, count, total = time.perf_counter(), min(BATCHES, len(batches) - 1), torch.zeros((), device=fabric.device)
    for _ in range(count):
        total = total + next(made)[0].sum()
    float(total)
    batch = (time.perf_counter() - start) / max(count, 1)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(pace.step, batch, pace.validation, len(batches), parameters, peak)


def with_epochs(item: dict[str, Any], epochs: int) -> dict[str, Any]:
    """The item of a list with another number of epochs in its command."""
    words = shlex.split(item["command"])
    if "--trainer.epochs" in words:
        words[words.index("--trainer.epochs") + 1] = str(epochs)
    else:
        words += ["--trainer.epochs", str(epochs)]
    return item | {"command": shlex.join(words)}


def measure(entry: Entry, device: str, seconds: float) -> int | None:
    """Print one line; the number of epochs that fit, or None if a step fails, for example for lack of memory."""
    settings = entry.settings
    config = RunConfig.from_recipe(settings.pop("config"), settings)
    try:
        found = cost(config, device)
    except (RuntimeError, InputError) as error:  # a step that cannot be recorded raises the second
        print(f"{entry.name:44} failed: {str(error).splitlines()[0]}", flush=True)
        return None
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    epochs = found.epochs(seconds)
    print(
        f"{entry.name:44} {1e3 * found.step:7.2f} ms a step, {1e3 * found.batch:5.2f} ms a batch, "
        f"{found.validation:5.2f} s to validate, {found.peak_bytes / 2**30:6.2f} GiB, "
        f"{found.parameters / 1e6:6.1f} million parameters: {epochs} epochs",
        flush=True,
    )
    return epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--only", nargs="*", help="names of the runs to measure; by default all")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--write", type=Path, help="write the list with the epochs that fit")
    options = parser.parse_args()
    items = yaml.safe_load(options.list.read_text())
    for place, entry in enumerate(read_entries(options.list)):
        if options.only is not None and entry.name not in options.only:
            continue
        epochs = measure(entry, options.device, options.seconds)
        items[place] = items[place] if epochs is None else with_epochs(items[place], epochs)
        if options.write:
            options.write.write_text(yaml.safe_dump(items, sort_keys=False, width=1000))


if __name__ == "__main__":
    main()
