"""A run that cannot be written: every verb that only reads works on it, says where its output is, and changes nothing.

Root may write everywhere, so the fault is injected where Python opens, makes, renames and removes files: an audit hook
in a process of its own refuses all of that below the run, as a read-only file system does.
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
import errno, os, sys
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
sys.exit(main(sys.argv[2:]))
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
    """Every name below the run: when it was changed, and what it holds."""
    found = {}
    for path in [run, *sorted(run.rglob("*"))]:
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(run))] = (path.stat().st_mtime_ns, digest)
    return found


def command(run: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, str(run), *arguments]


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}

VERBS: dict[str, tuple[list[str], list[str]]] = {
    "predict": (["predict", "RUN", "grey.png"], []),
    "attack": (["attack", "RUN", "--limit", "10", "--steps", "2"], ["run-attacks.json"]),
    "export": (["export", "RUN", "--to", "torch"], ["run-model.pt2"]),
    "report": (["report", "RUN"], ["run-report.html"]),
    "newton": (["analyze", "newton", "RUN"], ["newton.json"]),
    "features": (["analyze", "features", "RUN", "--steps", "2", "--count", "2"], ["features.json"]),
    "landscape": (["analyze", "landscape", "RUN", "--points", "3", "--limit", "20"], ["landscape.json"]),
    "tightness": (["analyze", "tightness", "RUN", "--limit", "20"], ["tightness.json"]),
}
"""Name: (arguments, files that appear in the current folder)."""


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "not frozen yet"])
def test_reading_verbs_work_and_leave_the_run_as_it_was(name: str, frozen: bool, run: Path, here: Path) -> None:
    if not frozen:
        shutil.rmtree(run / "model")
    before = contents(run)
    words, files = VERBS[name]
    words = [str(run) if word == "RUN" else word for word in words]
    done = subprocess.run(command(run, *words), cwd=here, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(run) == before
    said = done.stdout + done.stderr
    for file in files:
        assert (here / file).is_file() and file in said
    if not frozen and name in ("predict", "attack", "export", "tightness"):
        assert "in memory" in said


def test_the_demo_works_and_leaves_the_run_as_it_was(run: Path, here: Path) -> None:
    before = contents(run)
    process = subprocess.Popen(
        command(run, "demo", str(run), "--port", "0"), cwd=here, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
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
    words = ["certify", str(run), "--limit", "5"]
    done = subprocess.run(command(run, *words), cwd=here, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 2 and "choose another folder with --out" in done.stderr
    assert done.stderr.count("\n") == 1
    words += ["--out", "proofs"]
    done = subprocess.run(command(run, *words), cwd=here, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (here / "proofs").iterdir()} == {"certificates.json", "model"}
    assert contents(run) == before


def test_what_can_be_written_is_written_beside_the_run(run: Path, here: Path) -> None:
    """Otherwise the tests above would pass where output always goes to the current folder."""
    words = [sys.executable, "-m", "lotnet", "report", str(run)]
    subprocess.run(words, cwd=here, env=ENVIRONMENT, check=True, capture_output=True)
    assert (run / "report.html").is_file() and not list(here.glob("*.html"))
