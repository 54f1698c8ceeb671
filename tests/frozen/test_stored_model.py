"""A frozen folder that an earlier version wrote opens, and its certificates are the same bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "fixtures" / "frozen-format2"

PORTABLE = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Arithmetic that does not depend on the processor. PyTorch reads these at import, so the test starts a process."""

PROGRAM = """
import json, sys, torch, lotnet
from dataclasses import asdict
images = torch.randint(0, 256, (8, 3, 16, 16), generator=torch.Generator().manual_seed(5)).double() / 255
found = lotnet.certify(lotnet.load(sys.argv[1]), images)
print(json.dumps([{k: v.hex() if isinstance(v, float) else v for k, v in asdict(c).items()} for c in found]))
"""


def test_certificates_of_a_stored_model_have_not_changed_by_a_bit() -> None:
    command = [sys.executable, "-c", PROGRAM, str(FOLDER)]
    done = subprocess.run(command, env=os.environ | PORTABLE, capture_output=True, text=True, check=True)
    stored = json.loads((FOLDER / "certificates.json").read_text())
    assert json.loads(done.stdout) == stored
    assert all(float.fromhex(certificate["radius_float"]) > 0 for certificate in stored)


def test_the_stored_model_has_every_kind_of_layer() -> None:
    """A kind that is added later has no older files, and need not be in this model."""
    kinds = set()

    def walk(stages: list[dict]) -> None:
        for stage in stages:
            kinds.add(stage["kind"])
            walk(stage["children"])

    walk(json.loads((FOLDER / "config.json").read_text())["stages"])
    assert kinds >= {
        "spectrum",
        "dense",
        "kernel",
        "series",
        "residual",
        "householder",
        "max_min",
        "linear",
        "normalize",
    }
