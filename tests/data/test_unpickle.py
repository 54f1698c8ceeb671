"""The restricted unpickler: it loads arrays of every pickle protocol, and refuses to run code."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotnet.data.unpickle import load_arrays
from lotnet.errors import InputError

ARRAYS = [
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    np.arange(5, dtype=">i8"),
    np.array([True, False]),
    np.array(3.5),
    np.zeros((0, 3), dtype=np.float16),
]


def load(data: bytes):
    return load_arrays(io.BytesIO(data), "the file")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.str}{a.shape}")
def test_arrays_in_containers_come_back(array, protocol):
    content = {"data": array, "labels": [1, 2, (3, None)], "name": "x", b"raw": b"\x00\xff", "scale": 0.5}
    back = load(pickle.dumps(content, protocol))
    assert np.array_equal(back.pop("data"), content.pop("data"))
    assert back == content


def test_numpy_scalars_become_numbers():
    assert load(pickle.dumps([np.int64(7), np.float32(0.5)])) == [7, 0.5]


def test_python_2_pickle_of_an_old_numpy():
    # The format of CIFAR's authors: protocol 2, byte strings, numpy.core.
    short = lambda text: b"U" + bytes([len(text)]) + text  # noqa: E731
    data = (
        b"\x80\x02}" + short(b"data") + b"cnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nK\x00\x85" + short(b"b") + b"\x87R(K\x01K\x02K\x02\x86"
        b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89" + short(b"\x01\x02\x03\xff") + b"tbs."
    )
    assert load(data)["data"].tolist() == [[1, 2], [3, 255]]


class _Program:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "hostile",
    [
        lambda mark: _Program(os.system, f"touch {mark}"),
        lambda mark: _Program(eval, f"open({str(mark)!r}, 'w')"),
        lambda mark: _Program(open, str(mark), "w"),
        lambda mark: {"data": [np.zeros(2), _Program(os.mkdir, str(mark))]},
        lambda mark: _Program(getattr, "", "format"),
        lambda mark: collections.OrderedDict(a=1),
        lambda mark: np.array([{}], dtype=object),
        lambda mark: np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        lambda mark: {1, 2},
    ],
    ids=["system", "eval", "open", "nested", "getattr", "class", "objects", "structured", "set"],
)
def test_programs_are_refused_and_do_not_run(hostile, protocol, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(InputError, match="the file"):
        load(pickle.dumps(hostile(mark), protocol))
    assert not mark.exists()


def test_the_refusal_names_the_requested_object():
    with pytest.raises(InputError, match=r"asks for (posix|nt)\.system, which no file of arrays needs: get it"):
        load(pickle.dumps(_Program(os.system, "true")))


def test_allowed_names_cannot_be_modified_or_returned():
    changed = b"cnumpy\ndtype\n}U\x04nameU\x01xsb."  # BUILD with a dict, onto the stand-in
    bare = b"cnumpy\nndarray\n."
    called = b"cnumpy\nndarray\n(K\x02tR."
    for data in (changed, bare, called):
        with pytest.raises(InputError, match="refused"):
            load(b"\x80\x02" + data)


def test_a_list_shared_exponentially_often_costs_no_time():
    value: list = []
    for _ in range(100):
        value = [value, value]
    assert len(load(pickle.dumps(value))) == 2


def test_a_cycle_gives_a_clear_error():
    value: list = []
    value.append(value)
    with pytest.raises(InputError, match="not a readable pickle"):
        load(pickle.dumps(value))


def test_a_huge_declared_size_gives_a_clear_error():
    with pytest.raises(InputError):
        load(b"\x80\x05\x8e" + struct.pack("<Q", 2**60) + b"x.")


@pytest.mark.parametrize("number", [b"r\xff\xff\xff\x7f", b"p4000000000\n"])
def test_a_huge_memo_index_allocates_no_memory(number):
    assert load(b"\x80\x02]" + number + b".") == []


def test_bytes_are_not_multiplied():
    """One string, encoded repeatedly: a file of 100 KB would allocate gigabytes."""
    text = b"X" + struct.pack("<I", 50_000) + b"a" * 50_000 + b"q\x00"
    again = b"(c_codecs\nencode\nh\x00h\x00\x86R0"
    with pytest.raises(InputError, match="asks for more bytes than it holds"):
        load(b"\x80\x02" + text + again * 2000 + b".")


def test_a_file_may_have_more_bytes_after_the_pickle():
    file = io.BytesIO(b"before" + pickle.dumps([1, 2]) + b"behind")
    file.seek(6)
    assert load_arrays(file, "the file") == [1, 2]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_back_from_every_protocol(protocol):
    content = {
        "a": [True, False, None, -1, 255, 70000, 2**40, -(2**2100), 0.1],
        (1, 2): "\u00e4\n\u20ac",
        "b": b"\x00\xff",
        "e": b"",
    }
    assert load(pickle.dumps(content, protocol)) == content


def test_a_python_2_string_of_protocol_0_keeps_its_bytes():
    assert load(b"S'a\\xff\\n\\''\n.") == "a\xff\n'"


def test_a_pickle_cannot_pop_below_its_mark_or_append_to_a_non_list():
    for data in (b"](0.", b"](K\x01a.", b"}K\x01a.", b"]K\x01K\x02s.", b"(.", b"1."):
        with pytest.raises(InputError, match="not a readable pickle"):
            load(b"\x80\x02" + data)


def test_every_pickle_instruction_is_known():
    """An instruction that may run code is refused by its name."""
    for code in (
        pickle.INST,
        pickle.OBJ,
        pickle.NEWOBJ,
        pickle.NEWOBJ_EX,
        pickle.EXT1,
        pickle.PERSID,
        pickle.BINPERSID,
    ):
        with pytest.raises(InputError, match=r"asks for the instruction [A-Z]"):
            load(b"\x80\x02" + code + b".")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_load_or_give_a_clear_error(data):
    whole = pickle.dumps({"data": ARRAYS[0]}, 2)
    for broken in (data, whole[: len(data)], data + whole, whole[: len(data)] + data):
        try:
            load(broken)
        except InputError as error:  # any other exception fails the test
            assert str(error)
