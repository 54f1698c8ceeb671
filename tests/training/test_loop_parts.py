"""The parts of the training loop, each by itself."""

import math
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from lotnet.cli.main import main
from lotnet.errors import InputError
from lotnet.runs.checkpoint import Best
from lotnet.training.average import WeightAverage
from lotnet.training.launch import cpu_threads
from lotnet.training.poll import poll_stop_and_loss, steps_between_polls
from lotnet.training.rng import random_states, set_random_states
from lotnet.training.signals import StopRequest
from lotnet.training.state import TrainingState
from runs import TINY, assert_same, finish, start

ALONE: Any = SimpleNamespace(device=torch.device("cpu"), world_size=1)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_training_restores_the_number_of_threads(tmp_path: Path, threads: str) -> None:
    with cpu_threads(3):
        run = ["train", *TINY, "--trainer.epochs=1", f"--trainer.threads={threads}", "--out", str(tmp_path / "run")]
        assert main(run) == 0
        assert torch.get_num_threads() == 3


def test_the_number_of_threads_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), cpu_threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_a_signal_is_reported_and_the_handlers_are_restored() -> None:
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    state = TrainingState(torch.tensor(1.0))
    with StopRequest() as stop:
        assert poll_stop_and_loss(stop, state, 0.1, ALONE) == 0
        signal.raise_signal(signal.SIGTERM)
        assert poll_stop_and_loss(stop, state, 0.1, ALONE) == signal.SIGTERM
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run(loss: float) -> None:
    state = TrainingState(torch.tensor(loss), epoch=1, step=3)
    with pytest.raises(InputError, match=r"step 3 of epoch 2.*lower optimizer.lr \(it is 0.1\)"):
        poll_stop_and_loss(StopRequest(), state, 0.1, ALONE)


def test_the_loss_is_read_after_every_step_on_a_cpu_only() -> None:
    gpu: Any = SimpleNamespace(device=torch.device("cuda"))
    assert steps_between_polls(ALONE) == 1 < steps_between_polls(gpu)


def test_ties_go_to_the_later_epoch() -> None:
    state = TrainingState(torch.tensor(5.0), step=7, seconds=3.0)
    assert [state.finish_epoch(score) for score in (0.5, 0.4, 0.5)] == [True, False, True]
    assert state.best == Best(3, 0.5)
    assert (state.epoch, state.step, state.seconds, float(state.loss)) == (3, 0, 0.0, 0.0)


def test_the_weight_average_has_the_bits_of_lerp_and_copies_buffers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5))
    expected = [p.detach().clone() for p in model.parameters()]
    average = WeightAverage(model, 0.9)
    for _ in range(3):
        with torch.no_grad():
            for tensor in [*model.parameters(), model[1].running_mean]:
                tensor.add_(torch.randn_like(tensor))
            for mean, parameter in zip(expected, model.parameters(), strict=True):
                mean.lerp_(parameter, 1 - 0.9)
        average.update(model)
    assert all(torch.equal(a, b) for a, b in zip(average.model.parameters(), expected, strict=True))
    assert torch.equal(average.model[1].running_mean, model[1].running_mean)


def test_random_states_are_restored() -> None:
    states = random_states(ALONE.device)
    drawn = torch.rand(3)
    set_random_states(states, ALONE.device)
    assert torch.equal(torch.rand(3), drawn)


def test_a_run_under_nohup_survives_a_hangup(reference: Path, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; a new process inherits it
    try:
        process = start("train", *TINY, "--out", str(tmp_path / "run"))
    finally:
        signal.signal(signal.SIGHUP, before)
    while not (tmp_path / "run" / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGHUP)
    finish(process)
    assert_same(reference, tmp_path / "run")
