"""`benchmarks/gpu.py` measures every row of results/speed.md, and goes on where it stopped. Tried in tiny sizes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpu
from gpu import resumed
from sections import write_section
from speed_rows import GOALS, WIDE, Bench, Group, Row, groups

GPU = Path(__file__).parents[1] / "benchmarks" / "gpu.py"


def trial(out: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, str(GPU), "--trial", "--commit", "abc", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {"said": done.stdout, **json.loads(out.read_text())}


def test_every_row_is_measured_once_and_stands_in_the_report(tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    first = trial(out, "--tables", "own", "evaluation")
    assert first["said"].endswith("Everything is measured.\n") and "wide" not in first
    cut = json.loads(out.read_text())
    lost = cut["own"].pop(1)  # as if it had been stopped within a group
    out.write_text(json.dumps(cut))

    found = trial(out)
    assert found["said"].endswith("Everything is measured.\n")
    assert found["evaluation"] == first["evaluation"] and first["own"][2:] == found["own"][: len(first["own"]) - 2]
    again = [row for row in found["own"] if row not in first["own"]]
    assert [row["loop"] for row in again] == ["lotnet train", "own loop"]
    assert {row["network"] for row in again} == {lost["network"]}
    assert {row["kind"] for row in found["wide"]} == {"plain", "lot", "lot, ill-conditioned"}

    report = out.with_suffix(".md").read_text()
    networks = {row["network"] for row in found["wide"]}
    assert set(GOALS) < networks
    lines = [line for line in report.splitlines() if line.startswith("| ")]
    assert all(sum(name in line for line in lines) >= 3 for name in networks)
    for title in ("plain convolutions", "A loop of your own", "one orthogonalisation", "Other layers", "Evaluation"):
        assert title in report
    assert "Not measured" not in report and found["profiles"]
    assert all(text in report for text in found["profiles"].values())

    assert resumed(out, found["about"]) == json.loads(out.read_text())
    assert "wide" not in resumed(out, {**found["about"], "commit": "def"})


def test_a_page_keeps_its_other_sections(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    write_section(page, "First", "one")
    write_section(page, "Second", "two")
    write_section(page, "First", "three\n\n### part\n")
    assert page.read_text() == "# Page\n\n## First\n\nthree\n\n### part\n\n## Second\n\ntwo\n"


def test_a_group_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(bench: Bench) -> Row:
        raise RuntimeError("CUDA out of memory\nmore")

    def measured(bench: Bench) -> Row:
        return {"ms": 1.0}

    table = [
        Group("own", WIDE[0], [({"kind": "a"}, out_of_memory)]),
        Group("own", WIDE[1], [({"kind": "b"}, measured)]),
    ]
    out = tmp_path / "speed.json"
    monkeypatch.setattr(gpu, "groups", lambda: iter(table))
    monkeypatch.setattr(gpu.speed_report, "main", lambda path: None)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--trial", "--commit", "abc", "--tables", "own", "--out", str(out)])
    monkeypatch.setattr(gpu.dispatch, "products_are_cheap", gpu.dispatch.products_are_cheap)  # a trial replaces it
    gpu.main()
    found = json.loads(out.read_text())
    assert [row["kind"] for row in found["own"]] == ["b"]
    assert found["failed"] == {"own, LipConvnet-5, 32 channels, a": "CUDA out of memory"}
    assert [group.title for group in gpu.missing(found, ["own"])] == list(found["failed"]), "to be tried again"
    table.append(Group("own", WIDE[2], [({"kind": "c"}, measured)]))
    assert [group.rows[0][0]["kind"] for group in gpu.missing(found, ["own"])] == ["c", "a"], "after the others"


def test_groups_have_different_titles() -> None:
    titles = [group.title for group in groups()]
    assert len(set(titles)) == len(titles)
