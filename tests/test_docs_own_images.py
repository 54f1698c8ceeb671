"""Every command of docs/own-images.md, in its order, on the images that the page writes."""

from pathlib import Path

import pytest

from lotnet.cli.main import main
from pages import ROOT, blocks, commands

PAGE = ROOT / "docs" / "own-images.md"
BUDGET = {"train": ["--trainer.epochs=1", "--device=cpu"], "certify": ["--device=cpu"]}
"""So that every command takes seconds."""


def test_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOTNET_DATA", str(tmp_path / "cache"))
    for _, code in blocks(PAGE, "python"):
        exec(compile(code, str(PAGE), "exec"), {})
    typed = {line for _, block in blocks(PAGE, "text") for line in block.splitlines()}
    ran = []
    for command in commands(PAGE):
        if str(command) in typed:
            verb, *words = command.words[1:]
            words = ["runs/mine" if word == "lipconvnet5-cifar10" else word for word in words]  # that one is slow
            assert main([verb, *words, *BUDGET.get(verb, [])]) == 0, f"{command}\n{capsys.readouterr().err}"
            ran.append(verb)
    assert ran == ["train", "train", "certify", "certify", "report", "predict", "predict", "export"]
    written = ("answers.csv", "runs/mine/report.html", "runs/mine/model/README.md", "runs/mine/model.pt2")
    assert [name for name in written if not Path(name).is_file()] == []
    assert "16 x 16 pixels, grey: as in the files" in capsys.readouterr().out
