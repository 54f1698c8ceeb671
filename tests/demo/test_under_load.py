"""The demo server under load, and facing clients that are slow, hostile or gone: an answer or a closed connection."""

import json
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from lotnet.data import load
from lotnet.data.pictures import png
from lotnet.demo import limits
from lotnet.demo.limits import Quota
from lotnet.demo.server import Server

PICTURE = png(load("digits").test.images[0])
WHOLE = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"


def connect(page: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", page.server_address[1]), timeout=60)


def ask(page: Server, body: bytes = PICTURE) -> tuple[int, dict]:
    connection = HTTPConnection("127.0.0.1", page.server_address[1], timeout=60)
    connection.request("POST", "/predict", body)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_two_hundred_simultaneous_pictures_are_all_answered(page: Server) -> None:
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda _: ask(page), range(200)))
    assert [status for status, _ in answers] == [200] * 200
    assert len({found["label"] for _, found in answers}) == 1


def test_half_open_connections_do_not_keep_others_out(page: Server) -> None:
    idle = [connect(page) for _ in range(300)]
    for n, client in enumerate(idle):
        client.send((WHOLE % (10**6, b"half"))[: n % 90])
    assert ask(page)[0] == 200
    for client in idle:
        client.close()


HOSTILE = [
    b"",
    b"\r\n\r\n",
    b"\x00\xff" * 1000,
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET // HTTP/1.1\r\nHost: [\r\n\r\n",
    b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST //[?size=1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx",
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
    WHOLE % (0, b""),
    WHOLE % (100, b"only half"),
    WHOLE % (len(PICTURE), PICTURE[:-1] + b"x"),
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_any_bytes_get_an_answer_or_a_closed_connection(
    page: Server, content: bytes, reset: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(page) as client:
        client.sendall(content)
        if reset:  # leave without a word
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            client.shutdown(socket.SHUT_WR)
            while client.recv(2**16):
                pass
    assert ask(page)[0] == 200
    assert capfd.readouterr().err == ""


def test_a_request_that_takes_too_long_is_closed(page: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadline is one for the whole request, so a byte now and then does not prolong it."""
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.3)
    with connect(page) as client:
        client.sendall(WHOLE % (1000, b"half"))
        assert client.recv(1000) == b""
    with connect(page) as client:
        client.sendall(b"POST /predict HT")
        assert client.recv(1000) == b""


def test_uploads_share_a_quota_and_give_it_back(page: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(PICTURE) + 10
    monkeypatch.setattr(page, "uploads", Quota(size))
    for _ in range(3):
        assert ask(page)[0] == 200
        wait_for_all_of_it(page.uploads, size)
        status, answer = ask(page, PICTURE + bytes(20))
        assert status == 503 and "try again" in answer["error"]
        wait_for_all_of_it(page.uploads, size)


def wait_for_all_of_it(quota: Quota, size: int) -> None:
    """The server gives a request's bytes back after its answer, in another thread."""
    for _ in range(6000):
        if quota.take(size):
            quota.take(-size)
            return
        time.sleep(0.01)
    raise AssertionError("the bytes of a request were not given back")


def test_a_connection_too_many_is_closed(page: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_connections", Quota(0))
    with connect(page) as client:
        assert client.recv(1000) == b""
