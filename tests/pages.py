"""The documentation pages, and the commands in them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RECORDS = [ROOT / "CHANGELOG.md", *sorted((ROOT / "results").glob("*.md"))]
"""What was done; their commands must still exist, and are too long to repeat."""

PROGRAMS = ("lotnet", "make", "python", "pip", "torchrun")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
MACHINE = re.compile(r"(?<![\w.)>\]/:])/[a-z]+/\w")
"""A path from the root of somebody's disk."""
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """(line, content) of the page's code blocks in these languages."""
    text = page.read_text()
    found = [match for match in FENCE.finditer(text) if match[1] in languages]
    return [(text[: match.start()].count("\n") + 1, match[2]) for match in found]


@dataclass(frozen=True)
class Command:
    """One simple command: no pipe, no `&&`."""

    words: tuple[str, ...]
    line: int
    shown: bool
    """In a block that says it can be typed as it stands: console, sh or bash. Others are spoken of."""

    def __str__(self) -> str:
        return shlex.join(self.words)


def commands(page: Path) -> list[Command]:
    """Every command of a page. In console (after `$`), sh and bash blocks, every line is a command. Elsewhere, in text
    and indented blocks and in code spans, a command is what starts with one of `PROGRAMS`."""
    found: list[Command] = []
    text = page.read_text()
    for match in FENCE.finditer(text):
        start = text[: match.start()].count("\n") + 2
        language, content = match[1], match[2].replace("\\\n", "  ")
        for n, line in enumerate(content.splitlines()):
            if language == "console" and line.startswith("$ "):
                found += _split(line[2:], start + n, True)
            elif language in ("sh", "bash"):
                found += _split(line.removeprefix("$ "), start + n, True)
            elif language in ("text", "") and _program(line):
                found += _split(line, start + n, False)
    rest = FENCE.sub(lambda match: re.sub("[^\n]", "", match[0]), text)  # lines keep their numbers
    for match in INDENTED.finditer(rest):
        start = rest[: match.start()].count("\n") + 1
        for n, line in enumerate(match[0].splitlines()):
            if _program(line.strip()):
                found += _split(line.strip(), start + n, False)
    for match in SPAN.finditer(INDENTED.sub(lambda match: re.sub("[^\n]", "", match[0]), rest)):
        if _program(match[1]):
            found += _split(" ".join(match[1].split()), rest[: match.start()].count("\n") + 1, False)
    return sorted(found, key=lambda command: command.line)


def _program(line: str) -> bool:
    return bool(re.match(rf"(?:{'|'.join(PROGRAMS)})\s(?!\d)", line))  # `lotnet 0.1.0` is a version


def _split(line: str, number: int, shown: bool) -> list[Command]:
    """The simple commands of a line, without comments and settings of the environment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    simple: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            simple.append([])
        elif simple[-1] or not re.match(r"[A-Z_]+=", word):
            simple[-1].append(word)
    return [Command(tuple(words), number, shown) for words in simple if words]
