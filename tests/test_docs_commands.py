"""Every command of the documentation and of results/ is run, or read by the parser that would run it.

A command in a console, sh or bash block is run as written, in one folder for each page, but with a small budget. It is
only parsed if it needs something that a machine may lack. All other commands are parsed: verbs, options and their
values must exist. A command that the test does not know is a failure.
"""

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lotnet.cli.arguments import Parser
from lotnet.cli.main import VERBS, main
from lotnet.cli.verbs import ablate, selftrain, train
from lotnet.cli.verbs.analyze import ANALYSES
from pages import PAGES, RECORDS, ROOT, Command, commands

BUDGETS: dict[str, tuple[str, ...]] = {
    "train": ("--trainer.epochs=1", "--limit=200", "--model.channels=4"),
    "selftrain": ("--trainer.epochs=1", "--teacher_epochs=1", "--limit=500", "--model.channels=4"),
    "certify": ("--limit=20",),
    "attack": ("--limit=5", "--steps=2"),
    "pack": ("--limit=20",),
}
"""Appended to a command that is run, unless the page's own words are there."""

ELSEWHERE = re.compile(r"cifar|tiny-imagenet|PATH|DIR|RUN|NAME|cuda|photo|onnx|--autoattack|folder:|torchrun")
"""What names data, files, devices or extras that may not be here: such commands are read only."""

ENDLESS = {"demo"}
"""Verbs that wait for people."""

OTHERS = {"find"}
"""Programs that are nobody's here."""


class ReadError(Exception):
    """Raised in place of the work, once the arguments are read."""


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb stops when its arguments have been read: three with their settings, the others by their parser."""
    real = Parser.read

    def read(parser: Parser, arguments: list[str]) -> Any:
        options = real(parser, arguments)
        if parser.prog.removeprefix("lotnet ") in ("train", "selftrain", "ablate"):
            return options
        raise ReadError

    monkeypatch.setattr(Parser, "read", read)
    for verb in (train, selftrain, ablate):
        monkeypatch.setattr(verb, "read_arguments", _then_stop(verb.read_arguments))
    monkeypatch.setattr(train, "open_run", _stop)  # what --resume names need not be there
    monkeypatch.setattr(selftrain.Plan, "read", _stop)


def _then_stop(read_arguments: Callable[[list[str]], Any]) -> Callable[[list[str]], None]:
    def read(arguments: list[str]) -> None:
        read_arguments(arguments)
        raise ReadError

    return read


def _stop(_: Path) -> None:
    raise ReadError


def is_run(command: Command) -> bool:
    words = command.words
    return command.shown and words[0] == "lotnet" and words[1] not in ENDLESS and not ELSEWHERE.search(str(command))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for command in filter(is_run, commands(page)):
        verb, *words = command.words[1:]
        given = {word.split("=")[0] for word in words}
        budget = [option for option in BUDGETS.get(verb, ()) if option.split("=")[0] not in given]
        if "--resume" in given or "--print-model" in given:
            budget = []
        code = main([verb, *words, *budget])
        assert code == 0, f"{page.name}, line {command.line}: {command}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("page", [*PAGES, *RECORDS], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path, reading: None, capsys) -> None:
    wrong = []
    for command in commands(page):
        check = CHECKS.get(command.words[0])
        problem = check(command, capsys) if check else "" if command.words[0] in OTHERS else "unknown to this test"
        if problem:
            wrong.append(f"{page.name}, line {command.line}: {command}: {problem}")
    assert wrong == []


def check_lotnet(command: Command, capsys: Any) -> str:
    verb, *words = ["train" if word == "VERB" else word for word in command.words[1:]] or [""]
    if verb.startswith("--"):
        return "" if verb in ("--help", "--version") else "no such option"
    if verb not in VERBS:
        return "no such verb"
    if not words and not command.shown:
        return ""  # the text only mentions the verb
    try:
        code = main([verb, *words])
    except ReadError:
        return ""
    except SystemExit as ended:  # --help
        code = ended.code
    said = capsys.readouterr().err
    if not command.shown and words[-1].startswith("--") and "expected one argument" in said:
        return ""  # the text only mentions an option, without a value
    return "" if code == 0 else said


def check_make(command: Command, _: Any) -> str:
    makefile = (ROOT / "Makefile").read_text()
    missing = [
        word
        for word in command.words[1:]
        if not re.search(rf"^{re.escape(word.split('=')[0])}\b.*{'=' if '=' in word else ':'}", makefile, re.MULTILINE)
    ]
    return f"the Makefile has no {', '.join(missing)}" if missing else ""


def check_python(command: Command, _: Any) -> str:
    first, *words = command.words[1:]
    if first == "-m":
        return "" if importlib.util.find_spec(words[0]) else f"no module {words[0]}"
    if not (ROOT / first).is_file():
        return f"no file {first}"
    options = [word.split("=")[0] for word in words if word.startswith("--")]
    text = (ROOT / first).read_text()
    if "from workers import" in text:  # which adds options to several programs
        text += (ROOT / "tests" / "workers.py").read_text()
    missing = [option for option in options if f'"{option}"' not in text]
    return f"{first} has no {', '.join(missing)}" if missing else ""


def check_pip(command: Command, _: Any) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.findall(r"\[([\w,]+)\]", str(command))
    missing = [extra for group in asked for extra in group.split(",") if extra not in extras]
    return f"there is no extra {', '.join(missing)}" if missing else ""


def check_torchrun(command: Command, capsys: Any) -> str:
    words = command.words
    if "-m" not in words or words[words.index("-m") + 1] != "lotnet":
        return "it does not start lotnet"
    return check_lotnet(Command(("lotnet", *words[words.index("-m") + 2 :]), command.line, True), capsys)


CHECKS = {
    "lotnet": check_lotnet,
    "make": check_make,
    "python": check_python,
    "pip": check_pip,
    "torchrun": check_torchrun,
}


def test_the_checks_find_commands_and_their_errors(tmp_path: Path, reading: None, capsys) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Type `lotnet cerify RUN` or\n`python benchmarks/none.py`, never `lotnet.linalg`.\n\n"
        "```sh\n# a comment\nOMP_NUM_THREADS=1 lotnet train --model.dept 5 \\\n  --limit 3 | rm\n```\n\n"
        "    make nothing\n\n"
        "```console\n$ pip install 'lotnet[wings]' && lotnet paper\nlotnet output\n```\n"
    )
    found = commands(page)
    assert [str(command) for command in found] == [
        "lotnet cerify RUN",
        "python benchmarks/none.py",
        "lotnet train --model.dept 5 --limit 3",
        "rm",
        "make nothing",
        "pip install 'lotnet[wings]'",
        "lotnet paper",
    ]
    assert [command.line for command in found] == [1, 2, 6, 6, 10, 13, 13]
    problems = [CHECKS[c.words[0]](c, capsys) if c.words[0] in CHECKS else "unknown" for c in found]
    expected = ["no such verb", "no file", "did you mean --model.depth", "unknown", "no nothing", "no extra wings", ""]
    assert all(words in problem for words, problem in zip(expected, problems, strict=True)), problems
    assert problems[-1] == "" and [is_run(c) for c in found] == [False, False, True, False, False, False, True]


@pytest.mark.parametrize(
    "words", [*([verb] for verb in VERBS), *(["analyze", name] for name in ANALYSES)], ids=" ".join
)
def test_examples_of_help_parse(words: list[str], reading: None, capsys) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    text = capsys.readouterr().out
    examples = [shlex.split(line, comments=True) for line in re.findall(r"^  (lotnet .*)$", text, re.MULTILINE)]
    assert len(examples) >= 2
    for example in examples:
        problem = check_lotnet(Command(tuple(example), 0, True), capsys)
        assert problem == "", f"{shlex.join(example)}: {problem}"
