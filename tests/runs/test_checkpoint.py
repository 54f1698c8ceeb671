"""Checkpoints as files."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lotnet.config import OptimizerConfig
from lotnet.errors import InputError
from lotnet.runs.checkpoint import (
    Best,
    Checkpoints,
    DamagedError,
    Position,
    optimizer_tensors,
    read,
    restore_optimizer,
    snapshot,
    write,
)
from lotnet.training.optim import learning_rate, make_optimizer

POSITION = Position(1, 2, 12, 345, Best(1, 0.5), "abc")


def test_written_values_are_read_back(tmp_path: Path) -> None:
    tensors = {
        "weights.a": torch.randn(3, 2).T,
        "optimizer.a.step": torch.tensor(3.0),
        "rng.cpu": torch.get_rng_state(),
    }
    write(tmp_path / "x.safetensors", POSITION, snapshot(tensors))
    position, found = read(tmp_path / "x.safetensors", "abc")
    assert position == POSITION
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    with pytest.raises(InputError, match="other settings"):
        read(tmp_path / "x.safetensors", "abd")


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write(path, POSITION, {"weights.a": torch.arange(4.0)})
    content = path.read_bytes()
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= 1
        path.write_bytes(broken)
        try:
            position, tensors = read(path, "abc")
        except InputError:
            continue
        # A file that is still readable has the same content: the flip was in a blank of the header, for example.
        assert position == POSITION
        assert torch.equal(tensors["weights.a"], torch.arange(4.0))


@pytest.mark.parametrize("content", [b"", b"x", b"\x08" + bytes(15), bytes(100)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="damaged"):
        read(path)


def test_an_older_checkpoint_does_not_replace_one_that_cannot_be_read(tmp_path: Path) -> None:
    """A disk that fails for a moment must not undo an epoch of training."""
    checkpoints, warnings = Checkpoints(tmp_path), list[str]()
    for steps in (12, 24):
        checkpoints.save(replace(POSITION, total_steps=steps), {"weights.a": torch.ones(1)})
    last = checkpoints.steps()[-1]
    content = last.read_bytes()
    last.unlink()
    last.mkdir()
    with pytest.raises(
        InputError, match=r"cannot read .*00000024\.safetensors \(.*\): check its permissions"
    ) as caught:
        checkpoints.latest("abc", warnings.append)
    assert not isinstance(caught.value, DamagedError) and warnings == []
    last.rmdir()
    last.write_bytes(content)
    found = checkpoints.latest("abc", warnings.append)
    assert found is not None and found[0].total_steps == 24


@pytest.mark.parametrize("name", ["weights.a", "average.a"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_never_saved(name: str, value: float) -> None:
    with pytest.raises(InputError, match="last good checkpoint is kept"):
        snapshot({name: torch.tensor([1.0, value])})


def test_a_snapshot_does_not_change_with_training() -> None:
    weight = torch.zeros(3, 2, requires_grad=True)
    taken = snapshot({"weights.a": weight.T})["weights.a"]
    with torch.no_grad():
        weight += 1
    assert torch.equal(taken, torch.zeros(2, 3))
    assert taken.is_contiguous()
    assert not taken.requires_grad


def test_half_written_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".00000012.safetensors.abc").write_bytes(b"half")
    write(tmp_path / "00000012.safetensors", POSITION, {"weights.a": torch.ones(1)})
    Checkpoints(tmp_path).remove_partial_files()
    assert [path.name for path in tmp_path.iterdir()] == ["00000012.safetensors"]


@pytest.mark.parametrize("name", ["sgd", "nadam"])
def test_an_optimizer_continues_from_its_tensors(name: str) -> None:
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = make_optimizer(OptimizerConfig(name=name, lr=0.01), model)
    step(model, optimizer)
    twin = torch.nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    other = make_optimizer(OptimizerConfig(name=name, lr=0.01), twin)
    restore_optimizer(other, twin, {k: v.clone() for k, v in optimizer_tensors(optimizer, model).items()})
    for _ in range(3):
        step(model, optimizer)
        step(twin, other)
    assert torch.equal(model.weight, twin.weight)


def test_schedules() -> None:
    steps = OptimizerConfig(lr=1.0)
    assert [learning_rate(steps, p) for p in (0, 0.49, 0.5, 0.74, 0.75, 0.99)] == [1, 1, 0.1, 0.1, 0.01, 0.01]
    cycle = OptimizerConfig(lr=1.0, schedule="onecycle", warmup=0.2)
    assert learning_rate(cycle, 0.1) == pytest.approx(0.5)
    assert learning_rate(cycle, 0.2) == pytest.approx(1)
    assert learning_rate(cycle, 0.6) == pytest.approx(0.5)
    assert learning_rate(cycle, 1.0) == pytest.approx(0)
    assert learning_rate(OptimizerConfig(lr=1.0, schedule="constant"), 0.9) == 1
