"""Damaged and hand-made files for every reader, with limits on time and memory that the harness enforces.

    python tests/faults/hostile.py 10000

A worker process reads one input after another: it may use 4 GB more memory than at its start, and 30 seconds for an
input. Each input ends in a value or an `InputError` of one line. Exit code 1 if one ends in anything else.
"""

import io
import os
import pickle
import random
import resource
import signal
import sys
import tarfile
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import lotnet
from lotnet.config import RunConfig
from lotnet.data import archive, cache, decode
from lotnet.data import load as load_data
from lotnet.data.unpickle import load_arrays
from lotnet.errors import InputError
from lotnet.paper.results import load_all
from lotnet.runs.attacks import read_attacks
from lotnet.runs.certificates import read_certification
from lotnet.runs.checkpoint import read as read_checkpoint
from lotnet.runs.directory import Run

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN, FROZEN = FIXTURES / "run-format1", FIXTURES / "frozen-format2"
SECONDS, BYTES = 30, 4 * 2**30

WORDS = (b"Infinity", b"NaN", b"null", b"-1", b"1e999", b"99999999999999999999", b'"x"', b"[]", b"{}", b"[" * 5000)
WORDS = (*WORDS, b"\xff\xfe", b"\x00", b"*a", b"&a [*a, *a]", b"\n" * 50, b"true", b"0", b"\x1b[2J")


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with a few bytes changed, words put in, or parts repeated or cut."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place, length = rng.randrange(len(made) + 1), rng.choice((0, 1, 4, 30, 500))
        kind = rng.randrange(4)
        if kind == 0 and place < len(made):
            made[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[place : place + length] = rng.choice(WORDS)
        elif kind == 2:
            made[place:place] = made[place : place + length] * rng.choice((1, 3, 100))
        else:
            del made[place : place + rng.choice((1, 100, len(made)))]
    return bytes(made)


def _image(kind: str) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (24, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def _tar(mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as target:  # type: ignore[call-overload]
        for name in ("other", "wanted"):
            info = tarfile.TarInfo(name)
            info.size = 3000
            target.addfile(info, io.BytesIO(os.urandom(3000)))
    return buffer.getvalue()


def _pickle(protocol: int) -> bytes:
    return pickle.dumps({"data": np.zeros((3, 5), np.uint8), b"labels": [1, 2, 3], "more": (1.5, "x")}, protocol)


def _cached(folder: Path) -> bytes:
    cache.write(load_data("digits"), folder / "digits.safetensors", "made up")
    return (folder / "digits.safetensors").read_bytes()


Target = tuple[bytes, str, Callable[[Path], Any]]


def targets(folder: Path) -> list[Target]:
    """Content to start from, the name of its file, and the reader. The file lies in a folder with all that it needs."""
    checkpoint = sorted((RUN / "checkpoints").glob("0*.safetensors"))[0]
    found: list[Target] = [
        ((FROZEN / "config.json").read_bytes(), "frozen/config.json", lambda p: lotnet.load(p.parent)),
        ((FROZEN / "model.safetensors").read_bytes(), "frozen/model.safetensors", lambda p: lotnet.load(p.parent)),
        ((RUN / "config.yaml").read_bytes(), "x.yaml", lambda p: RunConfig.from_yaml(p.read_text(), "x.yaml")),
        ((RUN / "environment.json").read_bytes(), "run/environment.json", lambda p: Run.open(p.parent).environment()),
        ((RUN / "metrics.jsonl").read_bytes(), "run/metrics.jsonl", lambda p: Run.open(p.parent).metrics()),
        ((RUN / "certificates.json").read_bytes(), "certificates.json", lambda p: read_certification(p, "again")),
        ((RUN / "certificates.json").read_bytes(), "results/x.json", lambda p: load_all(p.parent)),
        (b'{"format": 1, "images": 3}', "attacks.json", lambda p: read_attacks(p, "again")),
        (checkpoint.read_bytes(), "checkpoint.safetensors", read_checkpoint),
        (_cached(folder), "cached.safetensors", cache.read),
    ]
    kinds = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "EPS", "PCX")
    found += [(_image(kind), f"{kind}.png", lambda p: decode(p, (3, 8, 8))) for kind in kinds]
    found += [(_tar(mode), f"{mode[2:]}.tar", lambda p: archive.files(p, {"wanted"})) for mode in ("w:", "w:gz")]
    found += [(_pickle(n), f"{n}.pickle", lambda p: load_arrays(io.BytesIO(p.read_bytes()), p)) for n in (0, 2, 4)]
    return found


def one(target: Target, folder: Path, rng: random.Random) -> str:
    """Read one mutated input. Returns `read` or `refused`; any other end is an exception."""
    content, name, read = target
    path = folder / name
    path.write_bytes(mutated(content, rng))
    try:
        read(path)
    except InputError as error:
        assert "\n" not in str(error), f"not one line: {error}"
        return "refused"
    except UnicodeDecodeError:
        if name.endswith(".yaml"):  # the harness decodes this one itself
            return "refused"
        raise
    return "read"


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def limit_memory() -> None:
    """Allow this process 4 GB more than it has mapped now."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


def fuzz(seeds: range) -> tuple[Counter[str], list[str]]:
    """Read the inputs of these seeds. Returns how they ended, and one line for each that went wrong."""
    ends: Counter[str] = Counter()
    wrong = []
    before = signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, source in (("frozen", FROZEN), ("run", RUN)):
            (folder / part).mkdir()
            for file in source.glob("*.*"):
                (folder / part / file.name).write_bytes(file.read_bytes())
        (folder / "results").mkdir()
        known = targets(folder)
        for seed in seeds:
            target = known[seed % len(known)]
            signal.alarm(SECONDS)
            try:
                ends[one(target, folder, random.Random(seed))] += 1
            except Exception as error:
                wrong.append(f"seed {seed}, {target[1]}: {type(error).__name__}: {str(error)[:200]!r}")
            finally:
                signal.alarm(0)
            if target[1].startswith(("frozen", "run")):
                (folder / target[1]).write_bytes(target[0])
    signal.signal(signal.SIGALRM, before)
    return ends, wrong


def main() -> int:
    count, start = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, time.perf_counter()
    warnings.simplefilter("ignore")  # Pillow's, about damaged pictures
    limit_memory()
    ends, wrong = fuzz(range(count))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{count} inputs: {dict(ends)}, {len(wrong)} wrong; peak {peak / 2**20:.0f} MB, ", end="")
    print(f"{time.perf_counter() - start:.0f} s")
    print(*wrong[:40], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
