"""JSON files as typed records: written values are read back, and values of a wrong type are refused in one sentence."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotnet.errors import InputError
from lotnet.records import Key, convert, read_record, write_record


@dataclass(frozen=True)
class Inner:
    name: str
    share: float


@dataclass(frozen=True)
class Outer:
    count: int
    inner: Inner
    kind: Literal["a", "b"] = "a"
    note: str | None = None
    flags: tuple[bool, ...] = ()
    by_name: dict[str, list[float]] = field(default_factory=dict)
    rest: Any = None


texts, floats = st.text(max_size=5), st.floats(allow_nan=False)
outers = st.builds(
    Outer,
    count=st.integers(),
    inner=st.builds(Inner, texts, floats),
    kind=st.sampled_from(["a", "b"]),
    note=st.none() | texts,
    flags=st.lists(st.booleans(), max_size=3).map(tuple),
    by_name=st.dictionaries(texts, st.lists(floats, max_size=2), max_size=2),
)


@given(outers)
def test_written_values_are_read_back(record: Outer) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record.json"
        write_record(path, record)
        assert read_record(Outer, path, "make it again") == record


WHOLE = {"format": 1, "count": 3, "inner": {"name": "x", "share": 1}}

WRONG: dict[str, Any] = {
    "count must be a whole number": {"count": "3"},
    "count must be a whole": {"count": True},
    "inner must be an object": {"inner": []},
    "inner.share must be a number": {"inner": {"name": "x", "share": "1"}},
    "inner.share is missing": {"inner": {"name": "x"}},
    "kind must be one of a, b": {"kind": "c"},
    "note must be text": {"note": 3},
    r"flags\[1\] must be true or false": {"flags": [True, 1]},
    "by_name.x must be a list": {"by_name": {"x": 1.0}},
    "colour is unknown": {"colour": "red"},
}


@pytest.mark.parametrize(("reason", "change"), WRONG.items())
def test_values_of_the_wrong_type_are_refused_in_one_sentence(reason: str, change: Any, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(WHOLE))
    assert read_record(Outer, path, "make it again").inner.share == 1.0
    path.write_text(json.dumps(WHOLE | change))
    with pytest.raises(InputError, match=rf"record.json is damaged \(.*{reason}.*\): make it again"):
        read_record(Outer, path, "make it again")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, "\x00", '{"count": 3}'])
def test_text_that_is_not_a_record_is_reported_as_damaged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"record\.json is damaged"):
        read_record(Outer, path, "make it again")


def test_an_unknown_format_a_missing_file_and_other_bytes_give_a_one_sentence_error(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(InputError, match=r"cannot read .*record.json \(No such file.*\): make it again"):
        read_record(Outer, path, "make it again")
    path.write_text(json.dumps(WHOLE | {"format": 7}))
    with pytest.raises(InputError, match="has format 7, this lotnet reads 1 and 2: make it again"):
        read_record(Outer, path, "make it again", formats=(1, 2))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not text"):
        read_record(Outer, path, "make it again")


def test_a_field_type_that_json_lacks_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="no JSON value becomes"):
        convert(Path, "x")


@dataclass(frozen=True)
class Counts:
    DERIVED: ClassVar = ("total",)

    held_out: Annotated[int, Key("held out")]
    left_out: Annotated[int | None, Key("left-out", optional=True)] = None

    @property
    def total(self) -> int:
        return self.held_out + (self.left_out or 0)


@dataclass(frozen=True)
class Seed:
    counts: tuple[Counts, ...]


def test_fields_have_other_keys_in_the_file_and_derived_values_are_only_written(tmp_path: Path) -> None:
    path, record = tmp_path / "record.json", Seed((Counts(3), Counts(4, 5)))
    write_record(path, record)
    stored = {"format": 1, "counts": [{"held out": 3, "total": 3}, {"held out": 4, "left-out": 5, "total": 9}]}
    assert json.loads(path.read_text()) == stored
    assert read_record(Seed, path, "make it again") == record
    path.write_text(json.dumps(stored).replace('"total": 3', '"total": "?"').replace(', "total": 9', ""))
    assert read_record(Seed, path, "make it again") == record
    for change, reason in {'"3"': "held out must be a whole number", '3, "held_out": 3': "held_out is unknown"}.items():
        path.write_text(json.dumps(stored).replace('"held out": 3', f'"held out": {change}'))
        with pytest.raises(InputError, match=rf"damaged \(counts\[0\]\.{reason}\): make it again"):
            read_record(Seed, path, "make it again")
