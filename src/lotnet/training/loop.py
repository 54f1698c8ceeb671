"""The training loop.

Invariants:

* the result of a run depends only on its configuration. On a CPU, it is the same bit for bit;
* a checkpoint holds everything that the rest of the run depends on, so stopping and resuming changes no bit;
* the tensors of a checkpoint are copied at once, and written while training continues. `train` returns when they are
  on the disk;
* the best epoch has the highest certified accuracy on validation images or, without these, is the last. Test images
  are not used here;
* the batch size is global, so the number of processes changes only the order of summation.
"""

import time
from collections.abc import Sequence

import torch
from lightning_fabric import Fabric
from rich.console import Console

from lotnet.certification.plain import RADII
from lotnet.config import RunConfig
from lotnet.data import Batches, Dataset, Shard, Split
from lotnet.models import parameter_count
from lotnet.runs.checkpoint import Best
from lotnet.runs.data import augmentation_of, image_spec, split_training
from lotnet.runs.directory import Run
from lotnet.runs.environment import Session
from lotnet.runs.metrics import EpochMetrics
from lotnet.training.background import Background
from lotnet.training.display import Display
from lotnet.training.evaluate import evaluate, reduce_over_processes
from lotnet.training.initial import initialize
from lotnet.training.last_layer import fit_last_layer
from lotnet.training.launch import barrier_on_exit, cpu_threads, lock_on_rank_zero
from lotnet.training.optim import learning_rate
from lotnet.training.outlook import Outlook
from lotnet.training.poll import poll_stop_and_loss, steps_between_polls
from lotnet.training.signals import Interrupted, StopRequest
from lotnet.training.state import StateSaver, resume
from lotnet.training.step import TrainingStep


def train(
    run: Run,
    dataset: Dataset,
    fabric: Fabric,
    console: Console,
    held_out: Split | None = None,
    command: Sequence[str] = (),
) -> Best:
    """Train from the run's last checkpoint, or from the start, to the end. Returns the score of the best epoch.

    Validation images are `held_out`, or the share `data.validation` of the training images. The run directory is
    locked, so that no second process overwrites its checkpoints.
    """
    with lock_on_rank_zero(fabric, run.path), cpu_threads(run.config.trainer.threads):
        return _train(run, dataset, fabric, console, held_out, command)


def _train(
    run: Run, dataset: Dataset, fabric: Fabric, console: Console, held_out: Split | None, command: Sequence[str]
) -> Best:
    config, trainer = run.config, run.config.trainer
    torch.manual_seed(config.seed)
    model = config.model.build(image_spec(dataset))
    initial = initialize(model, run)
    if initial is not None:
        if fabric.is_global_zero:
            console.print("fitting the new last layer to the features of the training images", highlight=False)
        fit_last_layer(model, config.loss, split_training(config, dataset.train, held_out)[0], fabric.device)
    batches, validation = make_batches(config, dataset, fabric, held_out)
    outlook = Outlook(config, dataset, model, batches, validation, splits_training=held_out is None)
    step = TrainingStep(config, model, next((validation or batches).epoch(0))[0][:1], fabric)
    state = resume(run, step, fabric, console)
    if fabric.is_global_zero:
        finished = state.epoch == trainer.epochs
        session = Session.here(str(fabric.device), fabric.world_size, command)
        run.record_session(dataset, parameter_count(model), session, finished, initial)
    steps, poll_every = len(batches), steps_between_polls(fabric)
    total_steps = trainer.epochs * steps
    if state.epoch < trainer.epochs:
        outlook.announce(console, fabric, state.epoch * steps + state.step)
        state.started = time.perf_counter()
    radii = tuple(sorted({*RADII, trainer.radius}))

    with (
        StopRequest() as stop,
        barrier_on_exit(fabric),
        Background() as background,
        Display(console, run.path, trainer.epochs, steps, state.epoch, state.step, fabric) as display,
    ):
        saver = StateSaver(run, step, steps, fabric, background)
        for epoch in range(state.epoch, trainer.epochs):
            step.begin_epoch(resumed=state.step > 0)
            for images, labels in batches.epoch(epoch, state.step):
                state.loss = state.loss + step(images, labels, (epoch * steps + state.step) / total_steps)
                state.step += 1
                if state.step % poll_every and state.step < steps:
                    continue
                signal = poll_stop_and_loss(stop, state, config.optimizer.lr, fabric)
                display.step(epoch, state.step, float(state.loss) / state.step)
                due = trainer.checkpoint_every and state.step % trainer.checkpoint_every < poll_every
                if signal or (due and state.step < steps):
                    saver.save(state)
                if signal:
                    raise Interrupted(signal)

            largest = step.largest_singular_value()
            accuracy = evaluate(step.evaluated, validation, radii, fabric) if validation else None
            record = EpochMetrics(
                epoch=epoch + 1,
                step=(epoch + 1) * steps,
                loss=float(reduce_over_processes(fabric, state.loss, "mean")) / steps,
                lr=learning_rate(config.optimizer, ((epoch + 1) * steps - 1) / total_steps),
                clean=accuracy.clean if accuracy else None,
                certified=accuracy.by_name() if accuracy else {},
                largest_singular_value=largest,
                seconds=round(state.elapsed(), 3),
            )
            better = state.finish_epoch(accuracy.certified[trainer.radius] if accuracy else None)
            if fabric.is_global_zero:
                if better:
                    saver.save_best(state)
                state.metrics_bytes = run.metrics_file.append(record)
            saver.save(state)
            display.epoch(record, trainer.radius)
    assert state.best is not None
    return state.best


def make_batches(
    config: RunConfig, dataset: Dataset, fabric: Fabric, held_out: Split | None
) -> tuple[Batches, Batches | None]:
    """Make training and validation batches, as `split_training` divides the images."""
    training, validation = split_training(config, dataset.train, held_out)
    device, shard = fabric.device, Shard(fabric.global_rank, fabric.world_size)
    dtype = torch.float64 if config.trainer.precision == "double" else torch.float32
    size = config.trainer.batch_size
    return (
        Batches(
            training,
            size,
            seed=config.seed,
            augmentation=augmentation_of(config, dataset),
            device=device,
            dtype=dtype,
            shard=shard,
            drop_last=True,
        ),
        None if validation is None else Batches(validation, size, device=device, dtype=dtype, shard=shard),
    )
