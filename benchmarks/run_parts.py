"""Divide a run into files of limited size, and put it together again elsewhere.

    python benchmarks/run_parts.py split runs/queue/NAME parts --first 0 --count 8
    python benchmarks/run_parts.py join parts runs/queue/NAME

`split` packs everything that `--resume` needs: of the numbered checkpoints only the newest. It writes `count` parts of
at most `--size` bytes, from part `first` on, and `parts.json` with the checksum of each, so that a run can be fetched
in several turns. `join` needs all parts, and refuses damaged ones. A run must be stopped while it is divided.
"""

import argparse
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

SIZE = 15_000_000
LIST = "parts.json"


def pack(run: Path) -> bytes:
    """The files of a run as one archive, the same bytes for the same files."""
    if not run.is_dir():
        raise SystemExit(f"{run} is no folder")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in sorted(run.rglob("*")):
            if file.is_file() and not _is_old_checkpoint(file):
                entry = tarfile.TarInfo(str(file.relative_to(run)))
                entry.size = file.stat().st_size
                archive.addfile(entry, io.BytesIO(file.read_bytes()))
    return buffer.getvalue()


def _is_old_checkpoint(file: Path) -> bool:
    if file.parent.name != "checkpoints" or not file.stem.isdecimal():
        return False
    return file.stem != max(other.stem for other in file.parent.glob("*.safetensors") if other.stem.isdecimal())


def split(run: Path, to: Path, first: int = 0, count: int | None = None, size: int = SIZE) -> list[Path]:
    """Write parts into a folder. Returns their paths."""
    content = pack(run)
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    to.mkdir(parents=True, exist_ok=True)
    (to / LIST).write_text(json.dumps([hashlib.sha256(part).hexdigest() for part in parts], indent=1) + "\n")
    chosen = range(len(parts))[first : None if count is None else first + count]
    for number in chosen:
        _path(to, number).write_bytes(parts[number])
    return [_path(to, number) for number in chosen]


def join(parts: Path, run: Path) -> None:
    """Unpack all parts into a new folder."""
    if run.exists():
        raise SystemExit(f"{run} exists: choose another folder")
    content = b""
    for number, checksum in enumerate(json.loads((parts / LIST).read_text())):
        path = _path(parts, number)
        part = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(part).hexdigest() != checksum:
            raise SystemExit(f"{path} is missing or damaged: fetch it again")
        content += part
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(run, filter="data")


def _path(folder: Path, number: int) -> Path:
    return folder / f"part-{number:03d}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    divide = verbs.add_parser("split", help="write the parts of a run")
    divide.add_argument("run", type=Path)
    divide.add_argument("to", type=Path)
    divide.add_argument("--first", type=int, default=0, help="number of the first part to write")
    divide.add_argument("--count", type=int, help="how many parts to write; by default all")
    divide.add_argument("--size", type=int, default=SIZE, help="bytes of a part")
    unite = verbs.add_parser("join", help="make the run again from all its parts")
    unite.add_argument("parts", type=Path)
    unite.add_argument("run", type=Path)
    options = parser.parse_args()
    if options.verb == "join":
        join(options.parts, options.run)
        print(f"{options.run} is complete")
        return 0
    written = split(options.run, options.to, options.first, options.count, options.size)
    total = len(json.loads((options.to / LIST).read_text()))
    print(f"{len(written)} of {total} parts are in {options.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
