"""`lotnet demo`: the server's answers, and the requests it refuses."""

import base64
import io
import json
import signal
import socket
import struct
import subprocess
import sys
import zlib
from http.client import HTTPConnection
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from lotnet import FrozenModel, MaxMin, Normalize, OrthogonalConv2d, OrthogonalLinear, freeze
from lotnet.cli.main import main
from lotnet.data import load, to_unit
from lotnet.data.pictures import levels, png
from lotnet.demo.answers import Answers, amplified
from lotnet.demo.server import LARGEST_UPLOAD, Server, is_loopback
from lotnet.prediction import predict


@pytest.fixture(scope="module")
def digit() -> bytes:
    return png(load("digits").test.images[0])


def request(page: Server, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, dict]:
    connection = HTTPConnection("127.0.0.1", page.server_address[1], timeout=60)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    content = response.read()
    is_json = response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(content) if is_json else content, dict(response.headers)


def test_the_page_loads_only_from_this_server(page: Server) -> None:
    for path, kind in (("/", "text/html"), ("/style.css", "text/css"), ("/page.js", "text/javascript")):
        status, content, headers = request(page, "GET", path)
        assert status == 200 and headers["Content-Type"].startswith(kind)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert b"http://" not in content and b"https://" not in content
    _, about, _ = request(page, "GET", "/about")
    assert about["model"] == "small" and len(about["examples"]) == 3
    status, content, _ = request(page, "GET", about["examples"][0]["path"])
    assert status == 200 and content.startswith(b"\x89PNG")


def test_predict_answers_like_the_function(page: Server, model: FrozenModel, digit: bytes) -> None:
    status, found, _ = request(page, "POST", "/predict", digit)
    (expected,) = predict(model, to_unit(load("digits").test.images[:1], torch.float64))
    assert status == 200
    assert (found["label"], found["radius"]) == (expected.label, expected.radius)
    assert float(found["radius_text"]) <= expected.radius
    assert found["meaning"] == expected.meaning and found["changes"] == []


def test_an_attack_fails_within_the_radius_and_succeeds_far_beyond(page: Server, digit: bytes) -> None:
    _, before, _ = request(page, "POST", "/predict", digit)
    for part in (0, 0.5, 0.999):
        _, found, _ = request(page, "POST", f"/attack?size={part * before['radius']}", digit)
        assert found["held"] and found["proved"] and found["label"] == before["label"]
        assert found["distance"] <= part * before["radius"]
    _, found, _ = request(page, "POST", "/attack?size=5", digit)
    assert not found["held"] and not found["proved"] and found["label"] != before["label"]


@pytest.mark.parametrize(
    ("status", "words", "method", "path", "headers"),
    [
        (403, "this is not evil.example", "GET", "/", {"Host": "evil.example"}),
        (403, "this is not evil.example:80", "POST", "/predict", {"Host": "evil.example:80"}),
        (403, "other pages", "POST", "/predict", {"Origin": "http://evil.example"}),
        (403, "other pages", "POST", "/predict", {"Origin": "null"}),
        (404, "nothing here", "GET", "/../server.py", {}),
        (404, "nothing here", "GET", "/examples/%2e%2e/page.js", {}),
        (404, "nothing here", "POST", "/about", {}),
        (413, "larger than 16 MB", "POST", "/predict", {"Content_Length": str(LARGEST_UPLOAD + 1)}),
        (411, "how long", "POST", "/predict", {"Content_Length": "many"}),
        (400, "does not decode as an 8- or 16-bit image", "POST", "/predict", {}),
        (400, "must be a number, not 'big'", "POST", "/attack?size=big", {}),
        (400, "from 0 to 100", "POST", "/attack?size=nan", {}),
        (400, "from 0 to 100", "POST", "/attack?size=-1", {}),
    ],
)
def test_refusals_give_a_one_sentence_error(
    page: Server, status: int, words: str, method: str, path: str, headers
) -> None:
    body = b"no image" if method == "POST" and "Content_Length" not in headers else None
    found, content, _ = request(page, method, path, body, **headers)
    assert found == status and words in content["error"]


@pytest.mark.parametrize("side", [9_000, 30_000])  # above our limit, and above Pillow's
def test_an_image_bomb_is_refused_before_it_is_decoded(page: Server, digit: bytes, side: int) -> None:
    header = b"IHDR" + struct.pack(">II", side, side) + digit[24:29]
    bomb = digit[:12] + header + struct.pack(">I", zlib.crc32(header)) + digit[33:]
    status, content, _ = request(page, "POST", "/predict", bomb)
    assert status == 400 and "scale it down" in content["error"]


def test_only_plain_image_formats_are_decoded(page: Server) -> None:
    """Pillow would start Ghostscript for this format."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "EPS")
    status, content, _ = request(page, "POST", "/predict", buffer.getvalue())
    assert status == 400 and "lotnet reads PNG, JPEG" in content["error"]


def test_a_port_that_is_taken_gives_a_one_sentence_error(folder: Path, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["demo", str(folder), "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err
    assert main(["demo", str(folder), "--port", "70000"]) == 2
    assert "0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1", "::1"])  # the second is reserved for examples
def test_a_host_of_another_machine_gives_a_one_sentence_error(folder: Path, host: str, capsys) -> None:
    assert main(["demo", str(folder), "--host", host, "--port", "0"]) == 2
    assert "choose another --host" in capsys.readouterr().err


def test_the_command_serves_until_it_is_interrupted(folder: Path) -> None:
    command = [sys.executable, "-u", "-m", "lotnet", "demo", str(folder), "--port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job ignores it
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    port = int(line.split("http://127.0.0.1:")[1].split("/")[0])
    connection = HTTPConnection("localhost", port, timeout=60)
    connection.request("GET", "/about")
    about = json.loads(connection.getresponse().read())
    assert about["model"] == folder.name and len(about["examples"]) == 8
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "Stopped.\n", "")


def test_loopback_hosts_are_recognized() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.1.2.3", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "192.168.1.5", "demo.example"))


def test_a_grey_image_stays_grey_under_attack_where_the_model_reads_color(digit: bytes) -> None:
    torch.manual_seed(0)
    layers = (OrthogonalConv2d(3, 4, 3), MaxMin(), nn.Flatten(), OrthogonalLinear(256, 10))
    answers = Answers(freeze(nn.Sequential(Normalize((0.5,) * 3, 0.25), *layers), (3, 8, 8)))
    assert answers.predict(digit)["grey"]
    found = answers.attack(digit, 0.5)
    assert 0.45 < found["distance"] <= 0.5
    for name in ("picture", "change"):
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(found[name].partition(",")[2]))))
        assert pixels.shape == (8, 8, 3) and pixels.std() > 0 and (pixels == pixels[..., :1]).all()
    colors = png(levels(torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))))
    assert not answers.predict(colors)["grey"]
    change = answers.attack(colors, 0.5)["change"]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(change.partition(",")[2]))))
    assert (pixels != pixels[..., :1]).any()


def test_the_page_has_the_stylesheet_of_the_report(page: Server) -> None:
    style = (resources.files("lotnet") / "web" / "style.css").read_bytes()
    assert request(page, "GET", "/style.css")[1] == style


def test_no_change_is_grey() -> None:
    assert torch.equal(amplified(torch.zeros(1, 2, 2)), torch.full((1, 2, 2), 0.5))
    assert amplified(torch.tensor([-1e-3, 1e-3])).tolist() == [0.0, 1.0]
