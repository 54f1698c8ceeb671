"""Training, in one function.

Invariants:

* everything that a run computes follows from its configuration: on a CPU, bit for bit;
* a checkpoint holds all that the rest of the run depends on, so stopping and resuming changes no bit either;
* checkpoints are copied where training stands and written while it goes on; it ends when they are on the disk;
* the model is chosen by certified accuracy on validation images; test images are never seen here;
* batches are global: the number of processes changes nothing but the order of summation.
"""

import contextlib
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from lightning_fabric import Fabric
from rich.console import Console
from torch import Tensor, nn

from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.config import RunConfig
from lotnet.data import Batches, Dataset, Shard, Split, validation_split
from lotnet.errors import InputError
from lotnet.files import exclusive_lock
from lotnet.models import parameter_count
from lotnet.orthogonalize.grouping import GroupedOrthogonalization
from lotnet.orthogonalize.sharing import SharedOrthogonalization
from lotnet.runs.checkpoint import Best, Position, named, optimizer_tensors, part, restore_optimizer, snapshot
from lotnet.runs.data import image_spec
from lotnet.runs.directory import Run
from lotnet.training.background import Background
from lotnet.training.display import Display
from lotnet.training.evaluate import RADII, evaluate, over_processes
from lotnet.training.graph import RecordedGradients
from lotnet.training.launch import on_rank_zero
from lotnet.training.optim import learning_rate, make_optimizer
from lotnet.training.precision import arithmetic
from lotnet.training.signals import Interrupted, StopRequest

_GPU_WATCH = 50  # steps between looks at the loss on a GPU, where looking means waiting for all work queued


@dataclass
class _State:
    """Where the run stands: `step` steps of epoch `epoch` are done."""

    loss: Tensor
    """Sum over the steps of this epoch."""
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    """Spent on this epoch by earlier sessions."""
    metrics_bytes: int = 0
    best: Best | None = None


def train(run: Run, dataset: Dataset, fabric: Fabric, console: Console, held_out: Split | None = None) -> Best:
    """Train from the run's last checkpoint, or from the start, to the end. Returns what the best epoch scored.

    Validation images are 5 % of the training ones, or, where they are given, those `held_out`. The run is claimed: two
    trainings would write over one another's checkpoints.
    """
    with contextlib.ExitStack() as held:
        on_rank_zero(fabric, lambda: held.enter_context(exclusive_lock(run.path)))
        return _train(run, dataset, fabric, console, held_out)


def _train(run: Run, dataset: Dataset, fabric: Fabric, console: Console, held_out: Split | None) -> Best:
    config, trainer = run.config, run.config.trainer
    if trainer.threads is not None:
        torch.set_num_threads(trainer.threads)
    torch.manual_seed(config.seed)
    model = config.model.build(image_spec(dataset))
    optimizer = make_optimizer(config.optimizer, model)
    parallel, stepper = fabric.setup(model, optimizer)
    average = copy.deepcopy(model) if trainer.ema else None
    kept = model if average is None else average  # what is evaluated, and what the best checkpoint holds
    lipschitz = pixel_lipschitz(model)

    batches, validation = _batches(config, dataset, fabric, held_out)
    steps = len(batches)
    total_steps = trainer.epochs * steps
    radii = tuple(sorted({*RADII, trainer.radius}))
    watch = 1 if fabric.device.type == "cpu" else _GPU_WATCH
    sharing = None
    if trainer.share_polar and fabric.world_size > 1:
        sharing = SharedOrthogonalization(model, next(validation.epoch(0))[0][:1])
    grouping = _grouped(model, next(validation.epoch(0))[0][:1], fabric)

    state = _resume(run, model, average, optimizer, grouping, fabric, console)
    if fabric.is_global_zero:
        finished = state.epoch == trainer.epochs
        run.note_session(dataset, parameter_count(model), str(fabric.device), fabric.world_size, finished)

    def gradients(images: Tensor, labels: Tensor, progress: float | Tensor) -> Tensor:
        """Loss and gradients: all that the device does before the parameters change, as a CUDA graph records it."""
        if sharing:
            sharing.distribute()
        if grouping:
            grouping.prepare()
        logits = parallel(images)
        pairwise = pairwise_constants(model[-1], logits.shape[1], logits)
        loss = config.loss(logits, labels, lipschitz, pairwise, progress)
        fabric.backward(loss)
        if grouping:
            grouping.release()
        return loss.detach().double()

    recorded = RecordedGradients(gradients, model) if _on_one_gpu(fabric) and trainer.cuda_graph else None

    def step(images: Tensor, labels: Tensor, progress: float) -> Tensor:
        if recorded:
            loss = recorded(images, labels, progress)
        else:
            stepper.zero_grad()
            loss = gradients(images, labels, progress)
        if config.optimizer.clip:
            fabric.clip_gradients(parallel, stepper, max_norm=config.optimizer.clip, error_if_nonfinite=False)
        stepper.step()
        if average is not None:
            _move_average(average, model, trainer.ema)
        return loss

    def save(started: float) -> None:
        """All processes call it: the first writes, with the loss averaged over all."""
        state.loss = over_processes(fabric, state.loss, "mean")
        if fabric.is_global_zero:
            seconds = torch.tensor(state.seconds + time.perf_counter() - started, dtype=torch.float64)
            tensors = {
                **named("weights", model.state_dict()),
                **named("average", {} if average is None else average.state_dict()),
                **optimizer_tensors(optimizer, model),
                **named("rng", _random_states(fabric.device)),
                **named("progress", {"loss": state.loss, "seconds": seconds}),
                **named("schedules", {"lengths": grouping.lengths} if grouping else {}),
            }
            background(partial(run.checkpoints.save, _position(state, steps, config), snapshot(tensors)))
        fabric.barrier()

    with (
        StopRequest() as stop,
        _together(fabric),
        Background() as background,
        Display(console, run.path, trainer.epochs, steps, state.epoch, state.step, fabric) as display,
    ):
        for epoch in range(state.epoch, trainer.epochs):
            started = time.perf_counter()
            parallel.train()
            within = state.step > 0  # where a resumed epoch goes on with the schedules it had
            if grouping and not (within and grouping.lengths.all()) and grouping.refresh() and recorded:
                recorded.forget()
            for images, labels in batches.epoch(epoch, state.step):
                progress = (epoch * steps + state.step) / total_steps
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(config.optimizer, progress)
                with arithmetic(tf32=trainer.precision == "tf32"):
                    state.loss = state.loss + step(images, labels, progress)
                state.step += 1
                if state.step % watch and state.step < steps:
                    continue
                signal = _poll_stop_and_loss(stop, state, config, fabric)
                display.step(epoch, state.step, float(state.loss) / state.step)
                due = trainer.checkpoint_every and state.step % trainer.checkpoint_every < watch
                if signal or (due and state.step < steps):
                    save(started)
                if signal:
                    raise Interrupted(signal)

            if grouping:
                with arithmetic(tf32=trainer.precision == "tf32"):
                    largest = {"largest_singular_value": grouping.largest_singular_value()}
            else:
                largest = {}
            accuracy = evaluate(kept, validation, radii, fabric)
            record = {
                "epoch": epoch + 1,
                "step": (epoch + 1) * steps,
                "loss": float(over_processes(fabric, state.loss, "mean")) / steps,
                "lr": learning_rate(config.optimizer, ((epoch + 1) * steps - 1) / total_steps),
                **accuracy.to_dict(),
                **largest,
                "seconds": round(state.seconds + time.perf_counter() - started, 3),
            }
            score = accuracy.certified[trainer.radius]
            better = state.best is None or score >= state.best.score  # of equals the one that has learnt longest
            state = _State(torch.zeros_like(state.loss), epoch + 1, 0, 0.0, state.metrics_bytes, state.best)
            if better:
                state.best = Best(epoch + 1, score)
            if fabric.is_global_zero:
                if better:
                    weights = snapshot(named("weights", kept.state_dict()))
                    background(partial(run.checkpoints.save_best, _position(state, steps, config), weights))
                state.metrics_bytes = run.add_metrics(record)
            save(time.perf_counter())
            display.epoch(record, accuracy, trainer.radius)
    assert state.best is not None
    return state.best


@contextlib.contextmanager
def _together(fabric: Fabric) -> Iterator[None]:
    """All processes leave at once, after a request to stop, too: what the first has written the others read next, and
    torchrun ends whoever still writes when another has ended."""
    try:
        yield
    except Interrupted:
        fabric.barrier()
        raise
    fabric.barrier()


def _on_one_gpu(fabric: Fabric) -> bool:
    return fabric.device.type == "cuda" and fabric.world_size == 1


def _grouped(model: nn.Module, example: Tensor, fabric: Fabric) -> GroupedOrthogonalization | None:
    """On one GPU. On a CPU each layer does its own: the result must not depend on when the kernels were measured."""
    if not _on_one_gpu(fabric):
        return None
    grouping = GroupedOrthogonalization(model, example)
    return grouping if grouping.layers else None


def _batches(config: RunConfig, dataset: Dataset, fabric: Fabric, held_out: Split | None) -> tuple[Batches, Batches]:
    """Training batches, and validation batches: those held out, or 5 % of the training images, always the same."""
    training, validation = validation_split(dataset.train) if held_out is None else (dataset.train, held_out)
    device, shard = fabric.device, Shard(fabric.global_rank, fabric.world_size)
    dtype = torch.float64 if config.trainer.precision == "double" else torch.float32
    size, augmentation = config.trainer.batch_size, replace(dataset.augmentation, distort=config.data.distort)
    return (
        Batches(
            training,
            size,
            seed=config.seed,
            augmentation=augmentation,
            device=device,
            dtype=dtype,
            shard=shard,
            drop_last=True,
        ),
        Batches(validation, size, device=device, dtype=dtype, shard=shard),
    )


def _resume(
    run: Run,
    model: nn.Module,
    average: nn.Module | None,
    optimizer: torch.optim.Optimizer,
    grouping: GroupedOrthogonalization | None,
    fabric: Fabric,
    console: Console,
) -> _State:
    """Put everything as the last whole checkpoint has it."""

    def warn(text: str) -> None:
        if fabric.is_global_zero:
            console.print(f"warning: {text}", soft_wrap=True, highlight=False)

    if fabric.is_global_zero:
        run.checkpoints.sweep()
    found = run.checkpoints.latest(run.config.fingerprint(), warn)
    fabric.barrier()
    state = _State(torch.zeros((), dtype=torch.float64, device=fabric.device))
    if found is not None:
        position, tensors = found
        model.load_state_dict(part(tensors, "weights"))
        if average is not None:
            average.load_state_dict(part(tensors, "average"))
        restore_optimizer(optimizer, model, tensors)
        _set_random_states(part(tensors, "rng"), fabric.device)
        progress = part(tensors, "progress")
        state.loss, state.seconds = progress["loss"].to(fabric.device), float(progress["seconds"])
        if grouping and "schedules.lengths" in tensors:  # a run may move from a CPU to a GPU
            grouping.restore(tensors["schedules.lengths"])
        state.epoch, state.step, state.best = position.epoch, position.step, position.best
        state.metrics_bytes = position.metrics_bytes
    if fabric.is_global_zero:
        run.cut_metrics(state.metrics_bytes)
    return state


def _position(state: _State, steps: int, config: RunConfig) -> Position:
    taken = state.epoch * steps + state.step
    return Position(state.epoch, state.step, taken, state.metrics_bytes, state.best, config.fingerprint())


def _poll_stop_and_loss(stop: StopRequest, state: _State, config: RunConfig, fabric: Fabric) -> int:
    """The signal that any process has received, or 0. A loss that is not finite, anywhere, ends the training."""
    finite = bool(torch.isfinite(state.loss))
    signal = stop.signal
    if fabric.world_size > 1:
        noticed = torch.tensor([signal, not finite], device=fabric.device)
        signal, broken = over_processes(fabric, noticed, "max").tolist()
        finite = not broken
    if not finite:
        raise InputError(
            f"the loss is no longer finite in step {state.step} of epoch {state.epoch + 1}, and the last good "
            f"checkpoint is kept: lower optimizer.lr (it is {config.optimizer.lr:g}) or set optimizer.clip"
        )
    return signal


@torch.no_grad()
def _move_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(parameter, 1 - decay)
    for copied, buffer in zip(average.buffers(), model.buffers(), strict=True):
        copied.copy_(buffer)


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:  # a run may move from a CPU to a GPU
        torch.cuda.set_rng_state(states["cuda"], device)
