"""The queue of benchmarks/run_queue.py goes on where it was stopped, and nothing is done twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from PIL import Image

from lotnet import train
from lotnet.cli.verbs import selftrain
from lotnet.cli.verbs import train as train_verb
from lotnet.config import RunConfig
from lotnet.config.selftraining import SelfTrainingConfig
from lotnet.load_model import load_model
from lotnet.runs.environment import Session
from run_queue import Entry, Places, Queue, chosen, for_trial, read_entries

ROOT = Path(__file__).parent.parent
TINY = "train --model.channels 4 --limit 200 --trainer.batch_size 32 --trainer.epochs 6 --trainer.checkpoint_every 1"


ENTRIES = [{"name": "first", "command": TINY, "attack": True}, {"name": "second", "command": f"{TINY} --seed 1"}]


def start(folder: Path, entries: list[dict] = ENTRIES) -> subprocess.Popen[str]:
    (folder / "list.yaml").write_text(yaml.safe_dump(entries))
    command = [sys.executable, str(ROOT / "benchmarks" / "run_queue.py"), str(folder / "list.yaml"), "--device", "cpu"]
    command += ["--runs", str(folder / "runs"), "--results", str(folder / "results"), "--commit", "0123abc"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)
    assert path.exists(), process.communicate()[0]


@pytest.mark.parametrize("hard", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_a_queue_that_is_stopped_goes_on_where_it_was(tmp_path: Path, hard: bool) -> None:
    queue = start(tmp_path)
    wait_for(tmp_path / "runs" / "first" / "metrics.jsonl", queue)
    if hard:
        os.killpg(queue.pid, signal.SIGKILL)  # its runs too
    else:
        queue.send_signal(signal.SIGTERM)
    said, _ = queue.communicate(timeout=60)
    assert queue.returncode == (-signal.SIGKILL if hard else 1)
    assert hard or "first: stopped\nsecond: stopped\n" in said
    assert not (tmp_path / "results").exists() and not (tmp_path / "runs" / "second").exists()

    again = start(tmp_path)
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0 and "first: recorded\nsecond: recorded\n" in said
    first, second = (json.loads((tmp_path / "results" / f"{name}.json").read_text()) for name in ("first", "second"))
    assert len(first["sessions"]) == 2 and len(second["sessions"]) == 1, "the first was resumed"
    assert first["linf"]["attacked"] <= first["summary"]["clean"] and second["linf"] is None
    assert {session["commit"] for session in first["sessions"]} == {"0123abc"}
    assert first["command"] == f"lotnet {TINY}" and second["command"] == f"lotnet {TINY} --seed 1"

    third = start(tmp_path)
    said, _ = third.communicate(timeout=60)
    assert third.returncode == 0 and "ended with" not in said, "what is recorded is not done again"


@pytest.mark.parametrize("name", ["paper_rows", "beyond_rows"])
def test_a_list_can_be_run(name: str) -> None:
    entries = read_entries(ROOT / "benchmarks" / f"{name}.yaml")
    assert len({settings_of(entry) for entry in entries}) == len(entries)


def test_a_student_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    settings = {"model.channels": 4, "limit": 200, "trainer.batch_size": 32, "trainer.epochs": 1}
    teacher = train(out=str(tmp_path / "teacher"), quiet=True, **settings)
    (tmp_path / "pictures").mkdir()
    for number in range(20):
        Image.effect_noise((8, 8), 90).save(tmp_path / "pictures" / f"{number}.png")
    words = f"selftrain --config digits/default {TINY.removeprefix('train ')} --unlabeled {tmp_path / 'pictures'}"
    entry = {"name": "student", "command": f"{words} --unlabeled_share 0.5 --teacher {teacher.path}"}
    queue = start(tmp_path, [entry])
    wait_for(tmp_path / "runs" / "student" / "student" / "metrics.jsonl", queue)
    os.killpg(queue.pid, signal.SIGKILL)
    queue.communicate(timeout=60)
    assert not (tmp_path / "results" / "student.json").exists()

    again = start(tmp_path, [entry])
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0 and "student: recorded\n" in said
    result = json.loads((tmp_path / "results" / "student.json").read_text())
    assert result["command"] == f"lotnet {entry['command']}", "not that of the session that went on"
    assert len(result["sessions"]) == 2 and result["summary"]["images"] == 359
    assert result["selftraining"]["images"]["near-duplicates"] == 0
    assert result["selftraining"]["teacher"]["checksum"] == load_model(str(teacher.path)).model.spec.checksum


def test_an_entry_waits_for_the_one_that_it_is_after(tmp_path: Path) -> None:
    seen = []

    class Told(Places):
        def steps(self, entry: Entry) -> Iterator[list[str]]:
            seen.append(f"{entry.name} starts")
            time.sleep(0.05)
            seen.append(f"{entry.name} ends")
            yield from ()

    entries = [Entry("teacher", ("train",)), Entry("student", ("selftrain",), after="teacher")]
    outcomes = Queue(entries, Told(tmp_path, tmp_path, "cpu"), at_once=2).work()
    assert outcomes == {"teacher": "recorded", "student": "recorded"}
    assert seen == ["teacher starts", "teacher ends", "student starts", "student ends"]


@pytest.mark.parametrize("name", ["paper_rows", "beyond_rows"])
def test_a_trial_of_every_entry_is_small(name: str, tmp_path: Path) -> None:
    for entry in read_entries(ROOT / "benchmarks" / f"{name}.yaml"):
        config, plan = read(for_trial(entry, tmp_path))
        assert (config.limit, config.trainer.epochs, config.model.channels) == (500, 1, 4)
        assert config.data == read(entry)[0].data, "the real images"
        if plan is not None:
            assert plan.teacher is None or Path(plan.teacher).parent == tmp_path
            assert plan.teacher_epochs in (None, 1)


def read(entry: Entry) -> tuple[RunConfig, SelfTrainingConfig | None]:
    words = list(entry.command[1:])
    if entry.trains == "train":
        return train_verb.read_arguments(words)[1], None
    plan = selftrain.read_arguments(words)[1]
    return plan.training, plan.selftraining


def settings_of(entry: Entry) -> str:
    config, plan = read(entry)
    return f"{config.fingerprint()} {plan}"


def test_candidates_name_the_run_they_are_compared_with() -> None:
    items = yaml.safe_load((ROOT / "benchmarks" / "beyond_rows.yaml").read_text())
    names = {item["name"] for item in items}
    assert all(item.get("against", item["name"]) in names and item["ingredient"] for item in items)
    assert not any(entry.certify for entry in read_entries(ROOT / "benchmarks" / "beyond_rows.yaml"))


def test_a_candidate_is_only_trained(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").touch()
    steps = list(Places(tmp_path, tmp_path / "results", "cpu").steps(Entry("a", ("train",), certify=False)))
    assert [step[:2] for step in steps] == [["train", "--resume"]]


def test_the_commit_that_is_named_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOTNET_COMMIT", "0123abc")
    assert Session.here("cpu", 1).commit == "0123abc"
    monkeypatch.delenv("LOTNET_COMMIT")
    monkeypatch.setenv("PATH", "")  # no git
    assert Session.here("cpu", 1).commit is None


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text(yaml.safe_dump([{"name": "a", "command": "train"}] * 2))
    with pytest.raises(SystemExit, match="a name twice"):
        read_entries(tmp_path / "list.yaml")


def test_entries_are_chosen_by_name_and_in_that_order() -> None:
    entries = [Entry(name, ("train",)) for name in "abc"]
    assert [entry.name for entry in chosen(entries, ["c", "a"])] == ["c", "a"]
    assert chosen(entries, None) == entries
    with pytest.raises(SystemExit, match="no entry d: choose from a, b, c"):
        chosen(entries, ["d"])


def test_an_entry_after_one_that_comes_later_is_refused(tmp_path: Path) -> None:
    entries = [{"name": "student", "command": "selftrain", "after": "teacher"}, {"name": "teacher", "command": "train"}]
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(entries))
    with pytest.raises(SystemExit, match="student is after teacher, which does not come before it"):
        read_entries(tmp_path / "list.yaml")


def test_a_trained_run_is_only_certified_and_recorded(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "results", "cpu")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").touch()
    steps = places.steps(Entry("a", ("train",)))
    assert next(steps)[:2] == ["train", "--resume"]
    (tmp_path / "a" / "certificates.json").write_text('{"complete": true}')
    assert next(steps)[0] == "record"
