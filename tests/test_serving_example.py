"""examples/serve.py: a real ONNX file, a real process and real requests, with the labels of `lotnet predict`."""

import io
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from PIL import Image

from lotnet import predict
from lotnet.data import load, to_unit
from lotnet.export import export
from lotnet.frozen.model import FrozenModel

EXAMPLE = Path(__file__).parent.parent / "examples" / "serve.py"


def test_it_is_short_and_needs_no_lotnet() -> None:
    text = EXAMPLE.read_text()
    assert text.count("\n") <= 34
    assert "import lotnet" not in text and "torch" not in text


def test_its_answers_are_those_of_predict(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = FrozenModel.load(folder)
    export(model, tmp_path / "model.onnx", precision="float64")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "model.onnx"), str(port)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        pixels = load("digits").test.images[:3]
        for image, expected in zip(pixels, predict(model, to_unit(pixels, torch.float64)), strict=True):
            file = io.BytesIO()
            Image.fromarray(image[0].numpy()).save(file, "PNG")
            answer = _post(port, file.getvalue(), server)
            assert answer["label"] == expected.label
            assert answer["radius"] == pytest.approx(expected.radius, rel=1e-3)
        for content in (b"no image", b"", file.getvalue()[:60]):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://127.0.0.1:{port}", content, timeout=30)
            assert refused.value.code == 400
            assert "not an image" in json.loads(refused.value.read())["error"]
    finally:
        server.kill()
        _, log = server.communicate()
    assert log.count("POST") == 6 and "Traceback" not in log


def _post(port: int, content: bytes, server: subprocess.Popen) -> dict:
    """The server's answer. It takes a moment to start."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", content, timeout=30) as response:
                return json.loads(response.read())
        except OSError:
            assert server.poll() is None, "the server has ended"
            time.sleep(0.1)
    raise AssertionError("the server did not start")
