"""Every reader of files that others may have written, each with content to start from."""

import errno
import hashlib
import io
import json
import os
import pickle
import socket
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

import lotnet
from lotnet.config import RunConfig
from lotnet.config.selftraining import SelfTrainingConfig
from lotnet.data import archive, cache, cifar, decode, tiny_imagenet
from lotnet.data import load as load_data
from lotnet.data.unlabeled import pseudo_labeled
from lotnet.data.unpickle import load_arrays
from lotnet.demo.answers import Answers
from lotnet.demo.server import Server
from lotnet.errors import InputError
from lotnet.models import ImageSpec, LipConvnet
from lotnet.paper import ablation_runs
from lotnet.paper.results import load_all
from lotnet.prediction import read_picture
from lotnet.pretrained import packed
from lotnet.pretrained.cache import PROOFS, load_cached
from lotnet.runs.attacks import read_attacks, read_linf
from lotnet.runs.certificates import read_certification
from lotnet.runs.checkpoint import read as read_checkpoint
from lotnet.runs.directory import Run
from lotnet.selftraining import pseudolabels
from lotnet.selftraining import results as selftraining
from lotnet.selftraining.plan import FILE, Plan

TESTS = Path(__file__).parents[1]
FIXTURES = TESTS / "fixtures"
RUN, FROZEN = FIXTURES / "run-format1", FIXTURES / "frozen-format2"


@dataclass(frozen=True)
class Target:
    """A file, its content before it is changed, and what reads it. It lies in a folder with all that it needs."""

    name: str
    content: bytes
    read: Callable[[Path], Any]
    harmful: bool = False
    """Whether it must be refused, however it is changed."""


@contextmanager
def targets(folder: Path) -> Iterator[list[Target]]:
    """All targets, with their surroundings in `folder`, while a demo server runs."""
    with demo_server() as server, patch.dict(os.environ, LOTNET_DATA=str(folder / "cache")):
        yield [*_model_files(folder), *_run_files(folder), *_data_files(folder), *_pictures(), *_requests(server)]


def _copied(folder: Path, name: str, source: Path) -> Path:
    made = folder / name
    made.mkdir()
    for file in source.glob("*.*"):
        (made / file.name).write_bytes(file.read_bytes())
    return made


def _model_files(folder: Path) -> Iterator[Target]:
    _copied(folder, "frozen", FROZEN)
    for name in ("config.json", "model.safetensors"):
        yield Target(f"frozen/{name}", (FROZEN / name).read_bytes(), lambda p: lotnet.load(p.parent))
    model, images = LipConvnet(channels=2), ImageSpec(1, 8, 8, classes=3)
    torch.manual_seed(0)
    names = ("a", "b", "c")
    packed.pack(model.build(images), model, images, names, "made up").write(folder / "packed")
    yield Target("packed/packed.json", (folder / "packed/packed.json").read_bytes(), read_packed)
    kernels = (folder / "packed/kernels.safetensors").read_bytes()
    yield Target("packed/kernels.safetensors", kernels, read_packed)
    load_cached(folder / "packed")
    (proofs,) = (folder / "cache").rglob(PROOFS)
    name = proofs.relative_to(folder).as_posix()
    yield Target(name, proofs.read_bytes(), lambda p: load_cached(folder / "packed"))


def read_packed(path: Path) -> object:
    """Read a packed model after its digest is made to match, as a forger would."""
    try:
        about = json.loads((path.parent / "packed.json").read_text())
        digest = hashlib.sha256((path.parent / "kernels.safetensors").read_bytes())
        rest = {key: value for key, value in about.items() if key != "sha256"}
        digest.update(json.dumps(rest, sort_keys=True).encode() if about["format"] != 1 else b"")
        (path.parent / "packed.json").write_text(json.dumps(about | {"sha256": digest.hexdigest()}))
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        pass  # no longer JSON of that kind
    return packed.read(path.parent)


def _run_files(folder: Path) -> Iterator[Target]:
    _copied(folder, "run", RUN)
    yield Target(
        "run/environment.json", (RUN / "environment.json").read_bytes(), lambda p: Run.open(p.parent).environment()
    )
    yield Target("run/metrics.jsonl", (RUN / "metrics.jsonl").read_bytes(), lambda p: Run.open(p.parent).metrics())
    yield Target("run/config.yaml", (RUN / "config.yaml").read_bytes(), lambda p: Run.open(p.parent).config)
    yield Target("recipe.yaml", (RUN / "config.yaml").read_bytes(), lambda p: RunConfig.from_yaml(_text(p), "x.yaml"))
    certificates = (RUN / "certificates.json").read_bytes()
    yield Target("certificates.json", certificates, lambda p: read_certification(p, "again"))
    result = (TESTS.parent / "results/cifar10-lipconvnet5-lot-plain.json").read_bytes()
    (folder / "results").mkdir()
    yield Target("results/x.json", result, lambda p: load_all(p.parent))
    yield Target("attacks.json", b'{"format": 1, "images": 3}', lambda p: read_attacks(p, "again"))
    linf = {"format": 1, "images": 3, "clean": 0.5, "attacked": 0.3, "radius": 0.03, "steps": 50, "restarts": 1}
    linf |= {"seed": 0, "split": "test", "checksum": "0"}
    yield Target("linf.json", json.dumps(linf).encode(), read_linf)
    ablation = (TESTS / "paper/ablation-format-1.json").read_bytes()
    yield Target("ablation.json", ablation, ablation_runs.read)
    seeds = (TESTS / "selftraining/selftraining-format-1.json").read_bytes()
    yield Target("selftraining.json", seeds, selftraining.read)
    checkpoint = sorted((RUN / "checkpoints").glob("0*.safetensors"))[0]
    yield Target("checkpoint.safetensors", checkpoint.read_bytes(), read_checkpoint)
    Plan(RunConfig.from_recipe("digits/default", {}), SelfTrainingConfig(labeled=0.1), (1, 2)).write(
        folder / "selftrained"
    )
    plan = (folder / "selftrained" / FILE).read_bytes()
    yield Target(f"selftrained/{FILE}", plan, lambda p: Plan.read(p.parent))
    yield from _pseudo_labels(folder)


def _pseudo_labels(folder: Path) -> Iterator[Target]:
    images, model = torch.zeros(4, 3, 16, 16, dtype=torch.uint8), lotnet.load(FROZEN)
    made = pseudolabels.PseudoLabels(torch.zeros(4, dtype=torch.int64), torch.ones(4))
    (folder / "labels").mkdir()
    pseudolabels.write(folder / "labels", made, images, model, pseudolabels.Origin())
    for file in sorted((folder / "labels").iterdir()):
        yield Target(f"labels/{file.name}", file.read_bytes(), lambda p: pseudolabels.read(p.parent, images, model))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:  # the reader takes text
        raise InputError("it is not text: give another file") from None


def _data_files(folder: Path) -> Iterator[Target]:
    cache.write(load_data("digits"), folder / "digits.safetensors", "made up")
    yield Target("digits.safetensors", (folder / "digits.safetensors").read_bytes(), cache.read)
    for mode in ("w:", "w:gz"):
        yield Target(f"{mode[2:]}.tar", _tar(mode), lambda p: archive.files(p, {"wanted"}))
    yield Target("large.tar", _tar("w:gz", 40 * 2**20), lambda p: archive.files(p, {"wanted"}), harmful=True)
    for protocol in (0, 2, 4):
        content = pickle.dumps(_ARRAYS, protocol)
        yield Target(f"{protocol}.pickle", content, lambda p: load_arrays(io.BytesIO(p.read_bytes()), p))
    more = {"data": np.zeros((2, 4, 4, 3), np.uint8), "extrapolated_targets": [1, 2]}
    yield Target("more.pickle", pickle.dumps(more, 2), pseudo_labeled)
    yield from _cifar(folder)
    tiny = folder / "tiny"
    for name in ("train/n1/images", "val/images"):
        (tiny / name).mkdir(parents=True)
        (tiny / name / "a.png").write_bytes(picture("PNG"))
    (tiny / "val/val_annotations.txt").write_text("a.png\tn1\t0\t0\t1\t1\n")
    for name, content in (("wnids.txt", b"n1\n"), ("val/val_annotations.txt", b"a.png\tn1\t0\t0\t1\t1\n")):
        (tiny / name).write_bytes(content)
        yield Target(f"tiny/{name}", content, lambda p: tiny_imagenet.read(str(tiny)))


def _cifar(folder: Path) -> Iterator[Target]:
    """CIFAR-10 in its three layouts, with ten images in each file."""
    batches, labels = [f"data_batch_{n}" for n in range(1, 6)], list(range(10))
    pixels = np.zeros((10, 3 * 1024), np.uint8)
    strip = io.BytesIO()
    Image.fromarray(np.zeros((10, 1024, 3), np.uint8)).save(strip, "PNG")
    contents = {
        ".bin": b"".join(bytes([n]) + pixels[n].tobytes() for n in labels),
        "": pickle.dumps({"data": pixels, "labels": labels}, 2),
        ".png": strip.getvalue(),
    }
    for suffix, content in contents.items():
        where = folder / f"cifar{suffix}"
        where.mkdir()
        for name in (*batches, "test_batch"):
            (where / f"{name}{suffix}").write_bytes(content)
        (where / "train_lables.json").write_text(json.dumps(labels * 5))
        (where / "test_lables.json").write_text(json.dumps(labels))
        changed = [f"test_batch{suffix}", *["test_lables.json"] * (suffix == ".png")]
        for name in changed:
            whole = (where / name).read_bytes()
            yield Target(f"{where.name}/{name}", whole, lambda p: cifar.read(cifar.CIFAR10, str(p.parent)))


_ARRAYS = {"data": np.zeros((3, 5), np.uint8), b"labels": [1, 2, 3], "more": (1.5, "x")}


def _tar(mode: str, zeros: int = 0) -> bytes:
    """An archive with a member that is not wanted, and may be very long, and one that is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as target:  # type: ignore[call-overload]
        for name, content in (("other", os.urandom(3000) + bytes(zeros)), ("wanted", os.urandom(3000))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def picture(kind: str, side: int = 20) -> bytes:
    """A picture of random pixels in one of Pillow's formats."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side + 4, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def _pictures() -> Iterator[Target]:
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "EPS", "PCX"):
        yield Target(f"{kind}.png", picture(kind), lambda p: decode(p, (3, 8, 8)), harmful=kind in ("EPS", "PCX"))
    yield Target("one.png", picture("PNG"), lambda p: read_picture(p, (1, 8, 8), "it"))


# Requests to the demo server.


_CLOSED = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)  # by the server, before it had read everything


@dataclass(frozen=True)
class Demo:
    """A running demo server."""

    port: int
    terminal: io.StringIO
    """What it printed: nothing, unless it has a bug."""

    def ask(self, request: bytes) -> bytes:
        """Send these bytes, close this side, and return all that comes back."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                while part := client.recv(2**16):
                    answer += part
            except OSError as error:
                if error.errno not in _CLOSED:
                    raise
        return answer


@contextmanager
def demo_server() -> Iterator[Demo]:
    """Serve the small frozen model from a thread of this process."""
    terminal = io.StringIO()
    about = {"model": "small", "data": "made up", "input_shape": [3, 16, 16]}
    with redirect_stderr(terminal), Server("127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.show, args=(Answers(lotnet.load(FROZEN)), about, []), daemon=True)
        thread.start()
        yield Demo(server.server_address[1], terminal)
        server.shutdown()
        thread.join()


def _requests(demo: Demo) -> Iterator[Target]:
    body = picture("PNG")

    def ask(path: Path) -> bytes:
        answer = demo.ask(path.read_bytes())
        assert not demo.terminal.getvalue(), f"the terminal shows {demo.terminal.getvalue()[-300:]!r}"
        assert b" 500 " not in answer[:20], f"a bug: {answer[-300:]!r}"
        if b" 200 " not in answer[:20]:
            raise InputError("refused, or the connection was closed")
        return answer

    head = b"Host: localhost\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    for name, first, rest in (
        ("page", b"GET / HTTP/1.1", b"Host: localhost\r\nConnection: close\r\n\r\n"),
        ("about", b"GET /about HTTP/1.1", b"Host: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nConnection: close\r\n\r\n"),
        ("predict", b"POST /predict HTTP/1.1", head + body),
        ("attack", b"POST /attack?size=0.5 HTTP/1.1", head + body),
    ):
        yield Target(f"{name}.request", first + b"\r\n" + rest, ask)
