"""Names of runs, files and classes are data: they print as they are, escaped, with every verb."""

import io
import os
from pathlib import Path

import pytest
from PIL import Image

from lotnet.cli.main import main
from lotnet.errors import LONGEST, InputError, printable
from lotnet.prediction import find_files
from lotnet.terminal import Console

TINY = ["--model.channels=4", "--limit=64", "--trainer.epochs=1", "--trainer.batch_size=32"]


def test_a_run_called_like_markup_works_with_every_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "a[/b]"  # a folder `a[` with a folder `b]` in it, and a closing tag that nothing opened
    picture = Path("[red]x[/].png")
    picture.parent.mkdir()
    Image.new("L", (8, 8)).save(picture)
    assert main(["train", *TINY, "--out", name]) == 0
    for line in (
        ["certify", name, "--limit", "4"],
        ["attack", name, "--limit", "2", "--steps", "1"],
        ["predict", name, str(picture)],
        ["report", name],
        ["pack", name, "--out", "packed[/c]", "--limit", "2"],
        ["analyze", "newton", name],
        ["analyze", "tightness", name, "--limit", "2"],
        ["export", name, "--to", "torch"],
        ["train", "--resume", name],
    ):
        assert main(line) == 0, line
    said = capsys.readouterr()
    assert "lotnet certify a[/b]" in said.out + said.err and "[red]x[/].png: " in said.out
    assert main(["certify", "no[/run]"]) == 2
    assert "no[/run] is neither a run nor a model" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "a\u202eb", os.fsdecode(b"a\xffb"), "a" * 300, "[bold]:smile:"])
def test_names_are_shown_and_do_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=1000).print(f"{printable(name)} and {name}")
    assert main(["certify", name]) == 2
    assert main(["predict", "lipconvnet5-cifar10", name]) == 2
    said = capsys.readouterr()
    assert printable(name) in said.out
    assert said.err.count("\n") == 2 and "Traceback" not in said.err
    for text in (said.out, said.err):
        assert all(character.isprintable() or character == "\n" for character in text)


def test_an_error_escapes_what_it_quotes() -> None:
    assert str(InputError("there is no \x1b[2J\r\n: look")) == r"there is no \x1b[2J\r\n: look"
    long = str(InputError(f"there is no {'a' * 10**6}: look"))
    assert long.startswith("there is no aaa") and long.endswith("aaa: look") and len(long) <= LONGEST


@pytest.mark.parametrize("line", ["a" * 300, "a\0b", os.fsdecode(b"a\xff"), "missing/" * 600])
def test_a_list_of_names_may_hold_anything(line: str) -> None:
    with pytest.raises(InputError, match="check the path"):
        find_files(["-"], io.StringIO(f"{line}\n"))
