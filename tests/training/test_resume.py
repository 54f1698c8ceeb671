"""A run that is stopped by any means and then resumed ends bit for bit as an uninterrupted one."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lotnet.cli.main import main
from lotnet.kernels import dispatch
from lotnet.runs.checkpoint import Checkpoints, read, write
from runs import TINY, assert_same, finish, lotnet, start


def wait_for(path: Path, process) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.002)


def kill_and_resume(reference: Path, run: Path, moment: float) -> None:
    """Send SIGKILL `moment` seconds after the run directory appeared, resume, and compare with an uninterrupted run."""
    process = start("train", *TINY, "--out", str(run))
    wait_for(run / "config.yaml", process)
    time.sleep(moment)
    process.kill()
    process.communicate()
    lotnet("train", "--resume", str(run))
    assert_same(reference, run)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_a_random_moment(reference: Path, tmp_path: Path, seed: int) -> None:
    kill_and_resume(reference, tmp_path / "run", random.Random(seed).uniform(0, 2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_at_twenty_random_moments(reference: Path, tmp_path: Path, seed: int) -> None:
    kill_and_resume(reference, tmp_path / "run", random.Random(100 + seed).uniform(0, 2.5))


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_resume(reference: Path, tmp_path: Path, signum: signal.Signals) -> None:
    run = tmp_path / "run"
    process = start("train", *TINY, "--out", str(run))
    wait_for(run / "metrics.jsonl", process)
    process.send_signal(signum)
    output = finish(process, expected=128 + signum)
    assert f"lotnet train --resume {run}" in output
    assert "Traceback" not in output
    assert main(["train", "--resume", str(run)]) == 0
    assert_same(reference, run)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orthogonalise layers jointly on the CPU, too, by schedules."""
    monkeypatch.setattr(dispatch, "products_are_cheap", lambda x: True)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_schedules_are_restored_on_resume(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert main(["train", *TINY, "--out", str(whole)]) == 0
    shutil.copytree(whole, cut)
    within, end = Checkpoints(cut / "checkpoints").steps()
    end.unlink()
    position, tensors = read(within)
    assert position.step > 0, "in the middle of an epoch"
    assert main(["train", "--resume", str(cut)]) == 0
    assert_same(whole, cut)

    # Longer schedules than the kernels need show whether they are those of the checkpoint.
    Checkpoints(cut / "checkpoints").steps()[-1].unlink()
    longer = tensors["schedules.lower_ends"] / 8
    write(within, position, tensors | {"schedules.lower_ends": longer})
    assert main(["train", "--resume", str(cut)]) == 0
    _, last = read(Checkpoints(cut / "checkpoints").steps()[-1])
    assert torch.equal(last["schedules.lower_ends"], longer)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    reference: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    last = Checkpoints(run / "checkpoints").steps()[-1]
    content = bytearray(last.read_bytes())
    if damage == "truncated":
        del content[-100:]
    elif damage == "flipped":
        content[-1] ^= 1
    else:
        content.clear()
    last.write_bytes(content)
    assert main(["train", "--resume", str(run)]) == 0
    assert f"{last} is damaged and is not used" in capsys.readouterr().out
    assert_same(reference, run)


def test_no_intact_checkpoint_is_an_error_instead_of_a_restart(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    for path in Checkpoints(run / "checkpoints").steps():
        path.write_bytes(b"")
    assert main(["train", "--resume", str(run)]) == 2
    assert "start the run again" in capsys.readouterr().err


def test_settings_edited_in_the_run_directory_are_refused(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(reference, run)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("epochs: 12", "epochs: 13"))
    assert main(["train", "--resume", str(run)]) == 2
    assert "other settings" in capsys.readouterr().err


def test_a_run_that_another_process_trains_is_refused(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(reference, tmp_path / "run")
    holder = "import sys, time; from pathlib import Path; from lotnet.files import exclusive_lock\n"
    holder += "with exclusive_lock(Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", holder, str(run)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "locked\n"
            for options in (["--resume", str(run)], [*TINY, "--out", str(run), "--overwrite"]):
                assert main(["train", *options]) == 2
                assert f"another process works in {run}: wait" in capsys.readouterr().err
        finally:
            other.kill()
    assert_same(reference, run)
    assert main(["train", "--resume", str(run)]) == 0  # the lock ended with the process


def test_resuming_a_finished_run_changes_nothing(reference: Path, tmp_path: Path) -> None:
    run = shutil.copytree(reference, tmp_path / "run")
    before = (run / "environment.json").read_bytes()
    assert main(["train", "--resume", str(run)]) == 0
    assert_same(reference, run)
    assert (run / "environment.json").read_bytes() == before
    (run / "environment.json").unlink()
    assert main(["train", "--resume", str(run)]) == 0
    again, known = (json.loads(text) for text in ((run / "environment.json").read_bytes(), before))
    assert again["images"] == known["images"] and len(again["sessions"]) == 1  # the lost file is written again


def test_the_two_last_checkpoints_are_kept_and_no_partial_file(reference: Path) -> None:
    names = sorted(path.name for path in (reference / "checkpoints").iterdir())
    assert len(names) == 3
    assert names[-1] == "best.safetensors"
