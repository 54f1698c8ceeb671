"""What a training run is about to do and how long it will take, in words, before its first step."""

import copy
import datetime
import gc
import time
from dataclasses import dataclass
from itertools import chain, count

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import nn

from lotnet.config import RunConfig
from lotnet.data import Batches, Dataset, findings, folder_findings
from lotnet.data.augment import describe
from lotnet.errors import printable
from lotnet.models import convolution_count, parameter_count
from lotnet.progress import duration
from lotnet.runs.data import about_shape, augmentation_of
from lotnet.spelling import counted
from lotnet.training.precision import evaluating
from lotnet.training.rng import random_states, set_random_states
from lotnet.training.step import TrainingStep

FEW_TO_CHOOSE = 50
"""With fewer validation images than this, the choice of the best epoch is reported as chance."""
_MOST_STEPS = 5
_LONG_ENOUGH = 2.0  # seconds after which no further step is measured


@dataclass(frozen=True)
class Pace:
    """Measured seconds of a training step and of a pass over the validation images."""

    step: float
    validation: float

    def remaining(self, steps: int, epochs: float) -> float:
        """Seconds for this many steps and passes over the validation images."""
        return steps * self.step + epochs * self.validation


@dataclass(frozen=True, eq=False)
class Outlook:
    """What is known about a run before its first step."""

    config: RunConfig
    dataset: Dataset
    model: nn.Sequential
    batches: Batches
    validation: Batches | None
    splits_training: bool = True
    """Whether validation images are the share `data.validation` of the training images."""

    def announce(self, console: Console, fabric: Fabric, done: int) -> None:
        """Print what is about to happen. `done` steps were taken by earlier sessions.

        Invariant: the state of the random generators and the model stay as they are.
        """
        if not fabric.is_global_zero or console.quiet:
            return

        def say(title: str, text: str) -> None:
            console.print(f"{title:<13} {text}", soft_wrap=True, highlight=False, markup=False)

        for note in folder_findings(self.config.data.name) + findings(self.dataset) + self.doubts():
            say("note", note)
        for title, text in self.lines(str(fabric.device)):
            say(title, text)
        # Measuring one process while the others wait would say nothing about all of them together.
        say("time", self.duration(self.measure(fabric) if fabric.world_size == 1 else None, done))

    def doubts(self) -> list[str]:
        """What is doubtful about this run, whatever its data."""
        if self.validation is None or self.validation.images >= FEW_TO_CHOOSE:
            return []
        count = self.validation.images
        said = f"only {counted(count, 'image')} choose{'s' if count == 1 else ''} the best epoch, so the choice is "
        said += "mostly chance"
        if self.splits_training:
            said += ": --data.validation 0 trains on all images and keeps the last epoch"
        return [said]

    def lines(self, device: str) -> list[tuple[str, str]]:
        """(title, text) of each line that is known without measuring."""
        config, trainer, data = self.config, self.config.trainer, self.dataset
        steps = len(self.batches)
        choosing = "the last epoch is kept"
        if self.validation is not None:
            choosing = f"{self.validation.images:,} to choose the best epoch"
        counts = f"{self.batches.images:,} to train on, {choosing}"
        layers = f"{convolution_count(self.model)} {config.model.parametrization} layers"
        plan = f"{counted(trainer.epochs, 'epoch')} of {counted(steps, 'step')} with "
        plan += f"{counted(trainer.batch_size, 'image')}, on {device}"
        if device == "cpu":
            plan += f" with {counted(trainer.threads or torch.get_num_threads(), 'thread')}"
        network = f"{type(config.model).__name__}, {layers}, {parameter_count(self.model):,} parameters"
        network += f", from {printable(config.init)} with a new last layer" if config.init else ""
        return [
            ("images", f"{counts}, {len(data.test):,} to test; {len(data.classes)} classes"),
            ("pixels", about_shape(config, data)),
            ("augmentation", describe(augmentation_of(config, data))),
            ("network", network),
            ("training", plan),
        ]

    def duration(self, pace: Pace | None, done: int = 0) -> str:
        """The time of the rest of the run in words, if it was measured."""
        if pace is None:
            return "the progress line estimates it after the first steps"
        steps = self.config.trainer.epochs * len(self.batches) - done
        seconds = pace.remaining(steps, steps / len(self.batches))
        now = datetime.datetime.now().astimezone()
        end = now + datetime.timedelta(seconds=seconds)
        when = f"{end:%H:%M}" if end.date() == now.date() else f"{end:%d %B, %H:%M}"
        return f"{pace.step:.2g} s per step as measured now, about {duration(seconds)} in all, until {when}"

    def measure(self, fabric: Fabric) -> Pace:
        """Measure some steps with a copy of the model, each with its batch, and a pass over validation images."""
        states = random_states(fabric.device)
        model = copy.deepcopy(self.model)
        batches = chain.from_iterable(map(self.batches.epoch, count()))
        images, labels = next(batches)
        step = TrainingStep(self.config, model, images[:1], fabric)
        step.begin_epoch(resumed=False)
        step(images, labels, 0.0)  # the first step allocates memory and may compile kernels
        seconds: list[float] = []
        while len(seconds) < _MOST_STEPS and sum(seconds) < _LONG_ENOUGH:
            start = time.perf_counter()
            float(step(*next(batches), 0.0))  # reading the loss waits for the device
            seconds.append(time.perf_counter() - start)
        found = Pace(sorted(seconds)[len(seconds) // 2], self._validation_seconds(model))
        del step
        gc.collect()  # its recorded graph holds GPU memory, and refers to the step that refers to it
        set_random_states(states, fabric.device)
        return found

    def _validation_seconds(self, model: nn.Sequential) -> float:
        """The first batch orthogonalises the layers, the others do not."""
        if self.validation is None:
            return 0.0
        images, _ = next(self.validation.epoch(0))
        model.eval()
        seconds = []
        with evaluating():
            for _ in range(2):
                start = time.perf_counter()
                float(model(images).sum())
                seconds.append(time.perf_counter() - start)
        first, later = seconds
        return first + later * (len(self.validation) - 1)
