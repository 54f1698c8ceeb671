"""Importing, training, certifying and predicting use no network, start no program and write nowhere else.

"Elsewhere" is outside of the run, the prepared data and the temporary folder, which PyTorch uses. An audit hook sees
what Python does. `strace` sees the rest, such as libraries written in C.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

PROGRAM = """
import os, sys
home = os.path.realpath(sys.argv[1])
writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
quiet = ("/dev/null", "/dev/tty", "pipe:", "socket:")

def inside(path):
    if isinstance(path, int):
        path = os.readlink(f"/proc/self/fd/{path}")
    path = os.path.realpath(os.fsdecode(path))
    return path.startswith(home) or path.startswith(quiet)

def hook(event, arguments):
    part = event.split(".")[0]
    if part in ("socket", "subprocess", "ftplib", "smtplib", "urllib", "http", "imaplib", "poplib"):
        print("FOUND", event, arguments, file=sys.__stderr__)
    elif event in ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile"):
        print("FOUND", event, arguments, file=sys.__stderr__)
    elif event == "open" and arguments[2] & writing and not inside(arguments[0]):
        print("FOUND", event, arguments, file=sys.__stderr__)
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate"):
        if not inside(arguments[0]):
            print("FOUND", event, arguments, file=sys.__stderr__)

sys.addaudithook(hook)
import lotnet
from lotnet.cli.main import main
for line in sys.argv[2:]:
    assert main(line.split()) == 0, line
"""
"""Runs lines of the command line, and prints what they do outside of a folder."""

TRAIN = "train --model.channels=2 --limit=60 --trainer.epochs=1 --trainer.batch_size=30 --trainer.threads=1 --out run"


@pytest.fixture
def work(tmp_path: Path) -> tuple[Path, list[str], dict[str, str]]:
    """A folder with an image, lines that use it, and an environment in which all caches are in the folder.

    `lotnet train` asks git for the commit of a checkout, unless LOTNET_COMMIT names it; an installed wheel never does.
    """
    Image.new("L", (8, 8), 200).save(tmp_path / "image.png")
    (tmp_path / "temporary").mkdir()
    lines = [TRAIN, "certify run --limit 10", "predict run image.png"]
    # PyTorch names its cache in the environment as soon as it is imported, so that of the tests is inherited.
    inside = {"HOME": ".", "TMPDIR": "temporary", "LOTNET_DATA": "data", "TORCHINDUCTOR_CACHE_DIR": "temporary"}
    environment = os.environ | {name: str(tmp_path / folder) for name, folder in inside.items()}
    return (
        tmp_path,
        lines,
        environment | {"LOTNET_COMMIT": "0" * 40, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_an_audit_hook_finds_nothing(work: tuple[Path, list[str], dict[str, str]]) -> None:
    folder, lines, environment = work
    command = [sys.executable, "-c", PROGRAM, str(folder), *lines]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "FOUND" not in done.stderr, done.stderr
    assert (folder / "run" / "certificates-test-10.json").exists()


@pytest.mark.parametrize("line", ["import socket; socket.socket().close()", "import os; os.system('true')"])
def test_the_hook_would_find_it(tmp_path: Path, line: str) -> None:
    program = PROGRAM.split("import lotnet")[0] + line
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert "FOUND" in done.stderr


# Calls that change files or their names, and calls that start a program. "?": not every processor has each of them.
CHANGES = ["open", "openat", "creat", "truncate", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat"]
CHANGES += ["rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"]
STARTS = ["execve", "execveat", "fork", "vfork", "clone", "clone3"]
TRACE = "trace=socket," + ",".join(f"?{name}" for name in (*CHANGES, *STARTS))


def traced(folder: Path, program: list[str], environment: dict[str, str]) -> list[str]:
    """Run a program of Python under `strace`, and return its calls that leave the folder."""
    trace = folder / "trace"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", TRACE, sys.executable, "-c", *program]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if "ptrace" in done.stderr and done.returncode:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    calls = [line.split(None, 1)[1] for line in trace.read_text().splitlines()]
    assert calls.pop(0).startswith("execve")  # Python itself
    return [call for call in calls if _leaves(call, folder)]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_strace_finds_nothing(work: tuple[Path, list[str], dict[str, str]]) -> None:
    folder, lines, environment = work
    assert traced(folder, [PROGRAM, str(folder), *lines], environment) == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize(
    ("program", "call"),
    [
        ("import socket; socket.socket().close()", "socket"),
        ("import os; os.system('true')", "execve"),
        ("import os; os.fork() or os._exit(0)", "clone"),
        ("import os; os.rename('a', '../a')", "rename"),
        ("open('../a', 'w')", "openat"),
    ],
)
def test_strace_would_find_it(work: tuple[Path, list[str], dict[str, str]], program: str, call: str) -> None:
    folder, _, environment = work
    (folder / "a").touch()
    found = traced(folder, [program], environment)
    assert any(line.startswith(call) for line in found)


def _leaves(call: str, folder: Path) -> bool:
    """Whether a system call starts a program, reaches the network, or changes a file outside of the folder."""
    name, _, rest = call.partition("(")
    if name == "socket":
        return "AF_UNIX" not in rest
    if name in STARTS:
        return "CLONE_THREAD" not in rest
    if name not in CHANGES or (name.startswith("open") and not re.search("O_WRONLY|O_RDWR|O_CREAT", rest)):
        return False
    paths = [os.path.normpath(folder / path) for path in re.findall('"([^"]*)"', rest)]
    return not all(path.startswith((str(folder), "/dev/null", "/dev/tty")) for path in paths)
