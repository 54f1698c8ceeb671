"""`lotnet VERB --help`: examples first, then options as people write them, in a terminal of 80 to 100 columns."""

import re

import pytest

from lotnet.cli.help_text import placeholder
from lotnet.cli.main import GROUPS, VERBS, main
from lotnet.cli.verbs.analyze import ANALYSES
from lotnet.losses import LOSSES
from lotnet.models import MODELS
from lotnet.paper.ablations import ABLATIONS
from lotnet.parametrizations import PARAMETRIZATIONS

VARIANTS = [
    *([verb] for verb in VERBS),
    *(["analyze", name] for name in ANALYSES),
    *(["ablate", name] for name in ABLATIONS),
    ["data", "prepare"],
    *(["train", "--loss.kind", kind] for kind in LOSSES),
    *(["train", "--model.kind", kind] for kind in MODELS),
    *(["train", "--model.parametrization", name] for name in PARAMETRIZATIONS),
]


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("words", VARIANTS, ids=" ".join)
def test_help_starts_with_examples_and_reads_as_text(words: list[str], monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_of(words, capsys)
    about, examples, usage, *groups = text.split("\n\n")
    assert about.endswith(".")
    assert examples.startswith("Examples:\n  lotnet ") and examples.count("\n  lotnet ") >= 2
    assert usage.startswith("Usage: lotnet ")
    assert groups[-1].startswith("Common options:") and groups[-1].rstrip().endswith("Show this help and exit.")
    found = re.search(r"type:|Literal|null|None|SUPPRESS|Optional|\bNoneType|default: (?:True|False)|, \)", text)
    assert found is None, found
    unbroken = r"  --\S+ \{\S+\}$|  lotnet "  # choices and examples are not wrapped
    lines = [line for line in text.splitlines() if not re.match(unbroken, line)]
    assert max(map(len, lines)) < 80 and max(map(len, text.splitlines())) <= 100


def test_help_is_as_wide_as_the_terminal_within_bounds(monkeypatch, capsys) -> None:
    widths = {}
    for columns in (40, 80, 100, 300):
        monkeypatch.setenv("COLUMNS", str(columns))
        widths[columns] = max(map(len, help_of(["certify"], capsys).splitlines()))
    assert widths[40] == widths[80] <= 80 < widths[100] == widths[300] <= 100


def test_the_settings_of_each_kind_are_shown(capsys) -> None:
    assert "--loss.gamma X" in help_of(["train", "--loss.kind", "creg"], capsys)
    assert "--model.dense_width N" in help_of(["train", "--model.kind", "lipwidenet"], capsys)
    soc = help_of(["train", "--model.parametrization", "soc"], capsys)
    assert "--model.options.terms N" in soc and "--model.options.tolerance" not in soc
    assert "(default: soc)" in soc
    every = help_of(["train"], capsys)
    assert all(f"{name}: " in every for name in (*LOSSES, *MODELS, *PARAMETRIZATIONS))


def test_the_list_of_verbs_has_one_line_for_each(capsys) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for title, verbs in GROUPS.items():
        assert f"\n{title}:\n" in text
        assert all(re.search(rf"^  {verb} +\w", text, re.MULTILINE) for verb in verbs)
    assert max(map(len, text.splitlines())) <= 88


def test_placeholders() -> None:
    kinds = {int: "N", float: "X", bool: "{true,false}", str: "OUT", int | None: "N", str | None: "OUT"}
    assert {kind: placeholder(kind, "--model.out") for kind in kinds} == kinds
