"""Damaged and hand-made files, archives and requests for every reader, with limits on time and memory.

    python tests/faults/hostile.py 10000

A process reads one input after another: it may use 4 GB more memory than at its start, and 30 seconds for an input.
Each input ends in a value or an `InputError` of one line; a request, in an answer or a closed connection, with nothing
on the server's terminal. Exit code 1 if one ends in anything else.
"""

import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from readers import Target, targets

from lotnet.errors import LONGEST, InputError
from workers import arguments, limited_memory, limited_time, peak_memory, spread, versions

WORDS = (b"Infinity", b"NaN", b"null", b"-1", b"1e999", b"99999999999999999999", b'"x"', b"[]", b"{}", b"[" * 5000)
WORDS = (*WORDS, b"\xff\xfe", b"\x00", b"*a", b"&a [*a, *a]", b"\n" * 50, b"true", b"0", b"\x1b[2J")
WORDS = (*WORDS, b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 9\r\n", b"[", b"%00", b"../" * 9)
WORDS = (*WORDS, *(b"[" * n + b"]" * n for n in range(900, 1000, 7)))  # the deepest that Python reads


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


def one(target: Target, folder: Path, rng: random.Random) -> str:
    """Read one mutated input. Returns `read` or `refused`; any other end is an exception."""
    path = folder / target.name
    path.write_bytes(mutated(target.content, rng))
    try:
        with limited_time():
            target.read(path)
    except InputError as error:
        assert str(error).isprintable() and len(str(error)) <= LONGEST, f"not one sentence: {error}"
        return "refused"
    finally:
        path.write_bytes(target.content)
    assert not target.harmful, "it was read"
    return "read"


def fuzz(seeds: range, part: str = "") -> tuple[Counter[str], list[str]]:
    """Read the inputs of these seeds, of the targets with `part` in their name.

    Returns how they ended, and one line for each that went wrong.
    """
    ends: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as name, limited_memory(), targets(Path(name)) as every:
        known = [target for target in every if part in target.name]
        for seed in seeds:
            target = known[seed % len(known)]
            try:
                ends[one(target, Path(name), random.Random(seed))] += 1
            except Exception as error:
                wrong.append(f"seed {seed}, {target.name}: {type(error).__name__}: {str(error)[:200]!r}")
    return ends, wrong


def _chunk(seeds: range) -> tuple[Counter[str], list[str], int]:
    warnings.simplefilter("ignore")  # Pillow's, about damaged pictures
    return *fuzz(seeds), peak_memory()


def main() -> int:
    settings = arguments(__doc__.splitlines()[0], 10_000, "inputs").parse_args()
    torch.set_num_threads(1)
    start, ends, wrong, peak = time.perf_counter(), Counter[str](), list[str](), 0
    chunks = [range(n, min(n + 500, settings.count)) for n in range(0, settings.count, 500)]
    for found, lines, memory in spread(_chunk, chunks, settings.workers):
        ends += found
        wrong += lines
        peak = max(peak, memory)
    print(f"{versions('pillow')}; {settings.workers} processes of one thread")
    print(f"{ends.total() + len(wrong)} inputs: {dict(ends)}, {len(wrong)} wrong; ", end="")
    print(f"peak {peak / 2**20:.0f} MB, {time.perf_counter() - start:.0f} s")
    print(*wrong[:40], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
