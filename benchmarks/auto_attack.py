"""AutoAttack on certificates at exactly their radius, in parts that each take minutes on a GPU.

    python benchmarks/auto_attack.py runs/best --start 0 --count 250 --device cuda --out results/auto_attack.json
    python benchmarks/auto_attack.py runs/best --start 250 --count 250 --device cuda --out results/auto_attack.json

Each call certifies a range of the test images, attacks every certificate, and adds what it found to the file. The
prediction of the float64 program must not change within a radius, and distances are compared in exact arithmetic. The
exit code is 1 if a certificate falls.
"""

import argparse
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from lotnet.attacks import Budget, check_certificates, require_auto_attack
from lotnet.certification import certify
from lotnet.data import UnitImages
from lotnet.device import choose_device
from lotnet.load_model import load_model
from lotnet.records import read_record, write_record


@dataclass(frozen=True)
class Part:
    """A range of test images."""

    start: int
    count: int
    attacked: int
    """Images with a radius."""
    fallen: list[int]
    """Images whose certificate was broken."""
    seconds: float
    device: str


@dataclass(frozen=True)
class Attacked:
    """The content of the file."""

    model: str
    checksum: str
    parts: list[Part]


def attack(model_name: str, start: int, count: int, device_name: str) -> Attacked:
    require_auto_attack()
    device = choose_device(device_name)
    loaded = load_model(model_name)
    split = loaded.split("test", start + count)
    images, labels = UnitImages(split.pixels)[start:], split.labels[start:]
    model = loaded.model.to(device)
    began = time.perf_counter()
    certificates = certify(model, images, labels)
    broken = check_certificates(model, images, certificates, Budget(auto_attack=True), batch_size=count)
    part = Part(
        start,
        len(images),
        int((certificates.radii["float"] > 0).sum()),
        sorted({start + example.index for example in broken}),
        round(time.perf_counter() - began, 1),
        str(device),
    )
    return Attacked(model_name, model.spec.checksum, [part])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a run, a model folder, or the name of a model that comes with lotnet")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=250)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = attack(options.model, options.start, options.count, options.device)
    if options.out.exists():
        before = read_record(Attacked, options.out, "delete it")
        if before.checksum != found.checksum:
            sys.exit(f"{options.out} is about another model: choose another file")
        kept = [part for part in before.parts if part.start != options.start]
        found = Attacked(found.model, found.checksum, sorted([*kept, *found.parts], key=lambda part: part.start))
    write_record(options.out, found)
    fallen = [n for part in found.parts for n in part.fallen]
    print(asdict(found.parts[-1]))
    print(f"{sum(part.attacked for part in found.parts)} certificates attacked so far, {len(fallen)} fell")
    return 1 if fallen else 0


if __name__ == "__main__":
    sys.exit(main())
