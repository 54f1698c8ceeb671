"""`make falsify`: certificates attacked at their radius, and the mutants that the same budget must catch.

    python tests/falsification/run.py --networks 2000 --certificates 300000

Exit code 1 if a certificate breaks, a mutant survives, or no standard float32 certificate breaks (then the attacks are
too weak to be a test).
"""

import argparse
import sys
import time
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Tally, falsify
from mutants import MUTANTS, SURVIVORS

from workers import spread, versions, with_workers

CHUNK = 10
"""Networks that a process takes at once."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--networks", type=int, default=2000, help="at least this many (default: %(default)s)")
    parser.add_argument("--certificates", type=int, default=300_000, help="with radius > 0 (default: %(default)s)")
    parser.add_argument(
        "--survivors", type=int, default=100, help="networks for mutants too small to detect (%(default)s)"
    )
    settings = with_workers(parser).parse_args()
    torch.set_num_threads(1)
    print(f"{versions('python-flint')}; {settings.workers} processes of one thread")
    start = time.perf_counter()
    tally = _all(settings.networks, settings.certificates, settings.workers)
    print("", end="\r", file=sys.stderr)
    describe(tally, time.perf_counter() - start)
    survived = _mutants(settings)
    failed = bool(tally.broken or tally.wrong or survived or not tally.plain_broken)
    print("FAILED" if failed else "passed")
    return int(failed)


def _all(networks: int, certificates: int, workers: int) -> Tally:
    """Take the seeds in order until both budgets are spent."""
    total = Tally()
    with closing(spread(_chunk, count(0, CHUNK), workers)) as chunks:
        while total.networks < networks or total.certified < certificates:
            total.add(next(chunks))
            line = f"{total.networks} networks, {total.certified} certificates, {len(total.broken)} broken"
            print(line, end="\r", file=sys.stderr, flush=True)
    return total


def _chunk(first_seed: int) -> Tally:
    return falsify(CHUNK, 0, first_seed=first_seed)


def describe(tally: Tally, seconds: float) -> None:
    print(f"networks                                  {tally.networks}")
    print(f"images                                    {tally.images}")
    print(f"certified, radius > 0                     {tally.certified} ({tally.certified / tally.images:.1%})")
    print(f"broken                                    {len(tally.broken)}")
    print(f"fall at 1.001 times the radius            {tally.beyond} ({tally.beyond / tally.certified:.1%})")
    print(f"points decided by sixty digits            {tally.sixty_digits} (left open: {tally.left_open})")
    print(f"known distance d                          {tally.known}, outside [0.999 d, d]: {len(tally.wrong)}")
    share = tally.plain_broken / max(tally.plain, 1)
    print(f"plain float32 certificates                {tally.plain}, broken: {tally.plain_broken} ({share:.1%}),")
    print(f"                                          in {tally.plain_networks} networks")
    print(f"time                                      {seconds:.0f} s")
    for line in tally.broken[:10] + tally.wrong[:10]:
        print(f"  {line}")


def _mutants(settings: argparse.Namespace) -> list[str]:
    survived = []
    print(f"\n{'mutant':<44}  killed after (networks, certificates)")
    attack = partial(_mutant, networks=settings.networks, certificates=settings.certificates)
    for name, tally in zip(MUTANTS, spread(attack, MUTANTS, settings.workers), strict=True):
        if not tally.broken:
            survived.append(name)
        print(f"{name:<44}  {_death(tally)}", flush=True)
    print("\nnot expected to be caught: the proof is that loose")
    attack = partial(_mutant, networks=settings.survivors, certificates=0)
    for name, tally in zip(SURVIVORS, spread(attack, SURVIVORS, settings.workers), strict=True):
        print(f"{name:<44}  {_death(tally)}", flush=True)
    return survived


def _mutant(name: str, networks: int, certificates: int) -> Tally:
    return falsify(networks, certificates, mutant=(MUTANTS | SURVIVORS)[name], compare=False, stop=True)


def _death(tally: Tally) -> str:
    count = f"{tally.networks:>5} {tally.certified:>7}"
    return f"{count}   {tally.broken[0]}" if tally.broken else f"SURVIVED {count}"


if __name__ == "__main__":
    sys.exit(main())
