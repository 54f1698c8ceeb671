"""A sample of `make fuzz`: damaged and hand-made files, archives and requests for every reader."""

import warnings
from urllib.parse import urlsplit

import pytest
from hostile import fuzz
from PIL import Image

SEEDS = range(470)  # ten inputs of each kind


def test_every_reader_returns_a_value_or_refuses_in_one_line() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends, wrong = fuzz(SEEDS)
    assert not wrong
    assert ends["refused"] > 200 and ends["read"] > 50


# What is checked less, and the targets that show it.
MUTANTS = {
    "every format that Pillow knows is opened": (
        "PIL.Image.open",
        lambda file, formats, opened=Image.open: opened(file),
        "PCX",
    ),
    "archives may unpack to any size": (
        "lotnet.data.archive._Budget.read",
        lambda self, size: self._file.read(size),
        "large.tar",
    ),
    "a Host header is not parsed with care": (
        "lotnet.demo.server.Server.knows",
        lambda self, host: urlsplit(f"//{host}").hostname != "",
        ".request",
    ),
    "what a sentence quotes is not escaped": (
        "lotnet.errors.printable",
        lambda text, keep="": text,
        "2.pickle",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_harness_notices_a_reader_that_checks_less(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, value, part = MUTANTS[name]
    monkeypatch.setattr(where, value)
    for start in range(0, 2000, 20):
        if fuzz(range(start, start + 20), part)[1]:
            return
    pytest.fail("survived")
