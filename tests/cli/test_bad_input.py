"""Wrong folders and wrong command lines give one sentence with the remedy, and exit code 2, in a real process."""

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from lotnet.cli.verbs import train

LINES = {
    "train --data.name folder:good --data.side 0": "data.side must be at least 1, not 0",
    "train --data.name folder:deep": "put the images directly into the folders of the classes, or pass the folder",
    "train --data.name folder:one": "at least two folders, one per class, or pass folder:one/inner if the classes are",
    "train --data.name folder:unreadable": "good.png does not decode as an 8- or 16-bit image: remove or replace it",
    "train --data.name folder:huge": "good.png claims more than 64000000 pixels: scale it down first",
    "train --data.name folder:letters": "letters has the classes 'Cat' and 'cat', which differ only in case",
    "train --data.name folder:": "folder: does not name a folder: write folder:PATH, or folder:. for the current",
    "train folder:good": "does not know folder:good: for the images in that folder, write --data.name folder:good",
    "train good": "does not know good: for the images in that folder, write --data.name folder:good",
    "certify nonsense": "nonsense is neither a run nor a model: choose one of runs/mine, lipconvnet5-cifar10, or train",
    "certify runs/min": "runs/min is neither a run nor a model: did you mean runs/mine?",
    "certify lipconvnet5-cifr10": "lipconvnet5-cifr10 is neither a run nor a model: did you mean lipconvnet5-cifar10?",
    "certify letters": "letters holds neither a run nor a model: choose one of runs/mine, lipconvnet5-cifar10",
    "train --data folder:good": "lotnet train does not know --data: did you mean --data.name?",
    "train --loss emma": "did you mean --loss.kind?",
    "train --data.name good": "there is no data set 'good': for the images in that folder, write folder:good",
    "train --config": "expected one argument: see `lotnet train --help`",
    "train --model.depth": "expected one argument: see `lotnet train --help`",
    "predict": "lotnet predict: model, images must be given: see `lotnet predict --help`",
}


def write_folders(root: Path) -> None:
    for path in (
        "good/a",
        "good/b",
        "deep/x/a",
        "deep/y/a",
        "one/inner/a",
        "one/inner/b",
        "letters/cat",
        "letters/Cat",
    ):
        image_in(root / path)
    for name in ("unreadable", "huge"):
        image_in(root / name / "a")
        image_in(root / name / "b")
    (root / "unreadable" / "b" / "good.png").write_bytes(b"no image")
    (root / "runs" / "mine").mkdir(parents=True)
    (root / "runs" / "mine" / "config.yaml").touch()
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b""))]
    png = b"".join(struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    (root / "huge" / "b" / "good.png").write_bytes(b"\x89PNG\r\n\x1a\n" + png)


def image_in(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in ("good.png", "other.png"):
        Image.new("L", (8, 8)).save(folder / name)


def test_every_wrong_line_is_one_sentence(tmp_path: Path) -> None:
    write_folders(tmp_path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LOTNET_DATA": str(tmp_path / "cache")}
    program = (
        "import sys\n"
        "from lotnet.cli.main import main\n"
        "for line in sys.argv[1:]:\n"
        "    print('>', line, file=sys.stderr)\n"
        "    print(main(line.split()), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *LINES],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=120,
        check=True,
    )
    said = done.stderr.splitlines()
    assert done.stdout == ""
    assert len(said) == 3 * len(LINES), done.stderr
    for (line, sentence), (asked, answer, code) in zip(LINES.items(), zip(*[iter(said)] * 3, strict=True), strict=True):
        assert asked == f"> {line}"
        assert sentence in answer
        assert code == "2"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_every_wrong_line_as_a_command(line: str, tmp_path: Path) -> None:
    write_folders(tmp_path)
    done = lotnet(tmp_path, *line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and LINES[line] in done.stderr


@pytest.mark.slow
def test_a_radius_may_be_a_fraction_everywhere(tmp_path: Path) -> None:
    done = lotnet(tmp_path, "train", "--trainer.radius", "36/255", "--print-model")
    assert (done.returncode, done.stderr) == (0, "")


def lotnet(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "lotnet", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "LOTNET_DATA": str(folder / "cache")},
        timeout=120,
        check=False,
    )


def test_a_radius_of_the_trainer_may_be_a_fraction() -> None:
    assert train.read_arguments(["--trainer.radius", "36/255"])[1].trainer.radius == 36 / 255
