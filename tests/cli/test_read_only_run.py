"""A read-only run: every verb that only reads works on it, says where it writes its output, and changes nothing.

Root may write everywhere, so permissions would not help. Instead, an audit hook in a separate process refuses to open,
create, rename or remove files inside the run, as a read-only file system does.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from PIL import Image

STORED = Path(__file__).parent.parent / "fixtures" / "run-format1"

PROGRAM = """
import contextlib, errno, io, json, os, sys
protected = os.path.realpath(sys.argv[1])
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def refuse(event, arguments):
    if event == "open":
        path, _, flags = arguments
        paths = [path] if flags & writing else []
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.utime", "os.truncate"):
        paths = arguments[:1]
    elif event in ("os.rename", "os.link", "os.symlink"):
        paths = arguments[:2]
    else:
        return
    for path in paths:
        if isinstance(path, (str, bytes, os.PathLike)):
            real = os.path.realpath(os.fsdecode(path))
            if real == protected or real.startswith(protected + os.sep):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), real)

sys.addaudithook(refuse)
from lotnet.cli.main import main
answers = {}
for name, words in json.loads(sys.argv[2]).items():
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        answers[name] = [main(words)]
    answers[name].append(said.getvalue())
print(json.dumps(answers))
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(STORED, tmp_path / "elsewhere" / "run")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    Image.new("L", (8, 8), 128).save(folder / "grey.png")
    return folder


def contents(run: Path) -> dict[str, tuple[int, str]]:
    """Modification time and content of every path inside the run."""
    found = {}
    for path in [run, *sorted(run.rglob("*"))]:
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(run))] = (path.stat().st_mtime_ns, digest)
    return found


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


def command(run: Path, commands: dict[str, list[str]]) -> list[str]:
    commands = {name: [str(run) if word == "RUN" else word for word in words] for name, words in commands.items()}
    return [sys.executable, "-c", PROGRAM, str(run), json.dumps(commands)]


def answers(run: Path, here: Path, commands: dict[str, list[str]]) -> dict[str, tuple[int, str]]:
    """Exit code and output of each command, with every write inside the run refused."""
    done = subprocess.run(command(run, commands), cwd=here, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: tuple(answer) for name, answer in json.loads(done.stdout).items()}


FREEZING: dict[str, tuple[list[str], list[str]]] = {
    "predict": (["predict", "RUN", "grey.png"], []),
    "attack": (["attack", "RUN", "--limit", "10", "--steps", "2"], ["run-attacks.json"]),
    "export": (["export", "RUN", "--to", "torch"], ["run-model.pt2"]),
    "linf": (["attack", "RUN", "--table", "linf", "--limit", "10", "--steps", "2"], ["run-linf.json"]),
    "tightness": (["analyze", "tightness", "RUN", "--limit", "20"], ["run-tightness.json"]),
}
"""Verbs that open a frozen model. Name: (arguments, files that appear in the current folder)."""

OTHERS: dict[str, tuple[list[str], list[str]]] = {
    "report": (["report", "RUN"], ["run-report.html"]),
    "newton": (["analyze", "newton", "RUN"], ["run-newton.json"]),
    "features": (["analyze", "features", "RUN", "--steps", "2", "--count", "2"], ["run-features.json"]),
    "landscape": (["analyze", "landscape", "RUN", "--points", "3", "--limit", "20"], ["run-landscape.json"]),
}


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "not frozen yet"])
def test_reading_verbs_work_and_leave_the_run_as_it_was(frozen: bool, run: Path, here: Path) -> None:
    if not frozen:
        shutil.rmtree(run / "model")
    before = contents(run)
    verbs = FREEZING | OTHERS
    for name, (code, said) in answers(run, here, {name: words for name, (words, _) in verbs.items()}).items():
        assert code == 0, said
        for file in verbs[name][1]:
            assert (here / file).is_file() and file in said
        assert ("Froze the best checkpoint in memory" in said) == (name in FREEZING and not frozen)
    assert contents(run) == before


def test_the_demo_works_and_leaves_the_run_as_it_was(run: Path, here: Path) -> None:
    before = contents(run)
    words = {"demo": ["demo", "RUN", "--port", "0"]}
    program = command(run, words)
    program[2] = program[2].replace("contextlib.redirect_stdout(io.StringIO()) as said", "io.StringIO() as said")
    process = subprocess.Popen(program, cwd=here, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "Open http" in line)
        about = urllib.request.urlopen(f"{line.split()[1].rstrip('/')}/about", timeout=60).read()
        assert json.loads(about)["data"] == "digits"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert contents(run) == before


def test_certify_says_at_once_that_it_cannot_write_and_writes_elsewhere(run: Path, here: Path) -> None:
    before = contents(run)
    words = ["certify", "RUN", "--limit", "5"]
    found = answers(run, here, {"here": words, "elsewhere": [*words, "--out", "proofs"]})
    assert found["here"][0] == 2 and found["here"][1].count("\n") == 1
    assert "choose another folder with --out" in found["here"][1]
    assert found["elsewhere"][0] == 0
    assert {path.name for path in (here / "proofs").iterdir()} == {"certificates-test-5.json", "model"}
    assert contents(run) == before


def test_a_writable_run_gets_its_output_beside_it(run: Path, here: Path) -> None:
    """Without this, the tests above would pass if output always went to the current folder."""
    words = [sys.executable, "-m", "lotnet", "report", str(run)]
    subprocess.run(words, cwd=here, env=ENVIRONMENT, check=True, capture_output=True)
    assert (run / "report.html").is_file() and not list(here.glob("*.html"))
