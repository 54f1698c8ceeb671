"""Two processes give the weights of one, in float64 to 1e-9, whether or not they divide the orthogonalisation."""

import contextlib
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lotnet.cli.main import main
from lotnet.errors import InputError
from lotnet.orthogonalize.sharing import assign_owners
from lotnet.training.launch import barrier_on_exit
from lotnet.training.signals import Interrupted
from runs import TINY, final_state, finish, start

# Twenty steps of a network with Centering, whose means go over all processes, strided and 1 x 1 convolutions.
RESNET = [
    "train",
    "--config=cifar10/resnet18",
    "--data.name=digits",
    "--model.channels=4",
    "--model.activation=hh1",
    "--optimizer.lr=0.01",
    "--trainer.precision=double",
    "--trainer.batch_size=16",
    "--trainer.epochs=10",
    "--limit=40",
]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "lotnet")


SHARING = """
import sys
from lotnet.cli.main import main
from lotnet.orthogonalize import sharing
sharing.pays = lambda *_: SHARE
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main([*RESNET, "--out", str(run)]) == 0
    return final_state(run)


def assert_close(together: dict[str, torch.Tensor], alone: dict[str, torch.Tensor]) -> None:
    assert any(name.endswith("running_mean") for name in together)
    moved = 0.0
    for name, expected in alone.items():
        if expected.is_floating_point():
            torch.testing.assert_close(together[name], expected, rtol=0, atol=1e-9)
            moved = max(moved, float(expected.abs().max()))
    assert moved > 0


@pytest.mark.parametrize("share", [True, False])
def test_two_processes_equal_one(alone: dict[str, torch.Tensor], tmp_path: Path, share: bool) -> None:
    run, script = tmp_path / "run", tmp_path / "share.py"
    script.write_text(SHARING.replace("SHARE", str(share)))
    output = finish(start(*RESNET, "--out", str(run), launcher=(*TORCHRUN[:-2], str(script))))
    assert output.count("certified at") > 0
    assert_close(final_state(run), alone)


STOPPED = """
import os, signal, sys
from lotnet.cli.main import main
from lotnet.training.step import TrainingStep
step, calls = TrainingStep.__call__, []
def counted(*arguments):
    calls.append(1)
    if len(calls) == 9:
        os.kill(os.getpid(), signal.SIGTERM)
    return step(*arguments)
TrainingStep.__call__ = counted
sys.exit(main(sys.argv[1:]))
"""


def test_a_run_of_one_process_is_resumed_by_two(alone: dict[str, torch.Tensor], tmp_path: Path) -> None:
    """Here the rule decides which layers are shared."""
    run, script = tmp_path / "run", tmp_path / "stopped.py"
    script.write_text(STOPPED)
    finish(start(*RESNET, "--out", str(run), launcher=(str(script),)), expected=128 + signal.SIGTERM)
    with pytest.raises(AssertionError):
        assert_close(final_state(run), alone)
    output = finish(start("train", "--resume", str(run), launcher=TORCHRUN))
    assert "continuing" in output
    assert_close(final_state(run), alone)


SLOW_DISK = """
import sys, time
from lotnet.cli.main import main
from lotnet.runs.checkpoint import Checkpoints
write = Checkpoints.save_best
Checkpoints.save_best = lambda *arguments: (time.sleep(1), write(*arguments))
sys.exit(main(sys.argv[1:]))
"""


def test_both_processes_measure_the_best_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first process writes it in the background. Here training ends before the write does."""
    run, script = tmp_path / "run", tmp_path / "slow_disk.py"
    script.write_text(SLOW_DISK)
    launcher = (*TORCHRUN[:-2], str(script))
    process = start("train", *TINY, "--trainer.epochs=1", "--json", "--out", str(run), launcher=launcher)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert main(["train", "--resume", str(run), "--json"]) == 0
    assert json.loads(out)["test"] == json.loads(capsys.readouterr().out)["test"]


@pytest.mark.parametrize(
    ("error", "barriers"), [(None, 1), (Interrupted(signal.SIGTERM), 1), (InputError("the disk is full"), 0)]
)
def test_processes_wait_for_each_other_on_exit_unless_one_fails(error: Exception | None, barriers: int) -> None:
    met = []
    fabric: Any = SimpleNamespace(barrier=lambda: met.append(1))
    with contextlib.suppress(Interrupted, InputError), barrier_on_exit(fabric):
        if error:
            raise error
    assert len(met) == barriers


def test_layers_are_divided_evenly() -> None:
    owners = assign_owners([5.0, 1.0, 4.0, 2.0], 2)
    assert sum(cost for cost, owner in zip([5, 1, 4, 2], owners, strict=True) if owner == 0) == 6
    assert assign_owners([], 3) == []
