"""`make falsify`: certificates attacked at their radius, and the mutants that the same budget must catch.

    python tests/falsification/run.py --networks 1000 --certificates 100000

Exit code 1 if a certificate breaks, a mutant survives, or no standard float32 certificate breaks (then the attacks are
too weak to be a test).
"""

import argparse
import platform
import sys
import time
from importlib.metadata import version

import torch
from harness import Tally, falsify
from mutants import MUTANTS, SURVIVORS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--networks", type=int, default=1000, help="at least this many (default: %(default)s)")
    parser.add_argument("--certificates", type=int, default=100_000, help="with radius > 0 (default: %(default)s)")
    parser.add_argument(
        "--survivors", type=int, default=100, help="networks for mutants too small to detect (%(default)s)"
    )
    settings = parser.parse_args()
    torch.set_num_threads(1)
    print(f"lotnet {version('lotnet')}, torch {torch.__version__}, python-flint {version('python-flint')}, ", end="")
    print(f"Python {platform.python_version()}, {platform.machine()}, one thread, {time.strftime('%Y-%m-%d')}")
    start = time.perf_counter()
    tally = falsify(settings.networks, settings.certificates, progress=_show)
    print("", end="\r", file=sys.stderr)
    describe(tally, time.perf_counter() - start)
    survived = _mutants(settings.networks, settings.certificates, settings.survivors)
    failed = bool(tally.broken or tally.wrong or survived or not tally.plain_broken)
    print("FAILED" if failed else "passed")
    return int(failed)


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


def _mutants(networks: int, certificates: int, quota: int) -> list[str]:
    survived = []
    print(f"\n{'mutant':<40}  killed after (networks, certificates)")
    for name, mutant in MUTANTS.items():
        tally = falsify(networks, certificates, mutant=mutant, compare=False, stop=True)
        if not tally.broken:
            survived.append(name)
        print(f"{name:<40}  {_death(tally)}", flush=True)
    print("\nnot expected to be caught: the proof is that loose")
    for name, mutant in SURVIVORS.items():
        print(f"{name:<40}  {_death(falsify(quota, 0, mutant=mutant, compare=False, stop=True))}", flush=True)
    return survived


def _death(tally: Tally) -> str:
    count = f"{tally.networks:>5} {tally.certified:>7}"
    return f"{count}   {tally.broken[0]}" if tally.broken else f"SURVIVED {count}"


def _show(tally: Tally) -> None:
    if tally.networks % 20 == 0:
        line = f"{tally.networks} networks, {tally.certified} certificates, {len(tally.broken)} broken"
        print(line, end="\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
