"""benchmarks/auto_attack.py attacks certificates part by part, and adds the parts up."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

import auto_attack
from lotnet import train
from lotnet.attacks import auto_attack_l2, check


def test_parts_add_up_and_a_broken_certificate_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyautoattack")
    monkeypatch.setattr(check, "auto_attack_l2", partial(auto_attack_l2, steps=2, queries=5))
    small = {"model.channels": 4, "limit": 100, "trainer.batch_size": 32, "trainer.epochs": 1}
    train("digits/default", tmp_path / "run", device="cpu", quiet=True, **small)

    def run(start: int) -> tuple[int, list[dict]]:
        words = ["auto_attack.py", str(tmp_path / "run"), "--count", "3", "--start", str(start), "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", [*words, "--out", str(tmp_path / "parts.json")])
        code = auto_attack.main()
        return code, json.loads((tmp_path / "parts.json").read_text())["parts"]

    assert run(3)[0] == 0
    code, parts = run(0)
    assert code == 0 and [(part["start"], part["count"], part["fallen"]) for part in parts] == [(0, 3, []), (3, 3, [])]
    attacked = sum(part["attacked"] for part in parts)
    assert f"{attacked} certificates attacked so far, 0 fell" in capsys.readouterr().out
    assert attacked > 0

    honest = auto_attack.certify

    def inflated(*arguments: object):  # a hundred times too large
        certificates = honest(*arguments)
        for radii in certificates.radii.values():
            radii.mul_(100)
        return certificates

    monkeypatch.setattr(auto_attack, "certify", inflated)
    code, parts = run(3)
    assert code == 1 and parts[1]["fallen"] and set(parts[1]["fallen"]) <= {3, 4, 5}
