"""Packed models: small folders with the free kernels in half precision, and the settings to rebuild the network.

Invariants:

* a packed model is a folder with `kernels.safetensors`, `packed.json` and a model card, `README.md`. `packed.json`
  holds the SHA-256 of the kernels and of everything else in it (format 1: of the kernels only);
* a folder is read completely before a network is built, and one whose tensors are not those of the network that its
  settings describe is refused;
* free kernels, the tensors named `weight`, are rounded to float16. All other tensors stay as they are. For a LOT
  network, this takes half the size of a checkpoint, and less than a quarter of the size of the frozen model;
* the rounded kernels are the ones that are frozen and certified: they are orthogonalised again, in float64. So rounding
  may change the accuracy, but it invalidates no proof;
* unpacking depends only on the folder. On one machine it gives the same model and the same radii, bit for bit.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from lotnet.certification.certificate import Claim
from lotnet.certification.summary import ClassSummary, Summary
from lotnet.config.settings import kind_of
from lotnet.data import without_path
from lotnet.errors import InputError
from lotnet.files import atomic_write, make_folder
from lotnet.frozen.model import FrozenModel
from lotnet.layers import freeze
from lotnet.models import MODELS, ImageSpec, ModelConfig
from lotnet.pretrained.card import CARD, packed_card
from lotnet.records import Key, convert, parse_json, to_json
from lotnet.runs.environment import Hardware

FORMAT = 2
_FORMATS = (1, FORMAT)
_LARGEST_SETTING = 4096  # of counts and widths, so that hostile settings do not build for hours
SETTINGS = "packed.json"
KERNELS = "kernels.safetensors"


@dataclass(frozen=True)
class PackedResult:
    """What is certified of the unpacked model: a part of a `Summary`."""

    images: int
    clean: float
    radii: list[float]
    certified: dict[Claim, list[float]]
    mean_radius: dict[Claim, float]
    lipschitz_bound: float
    classes: list[ClassSummary] = field(default_factory=list)
    """Empty in files of earlier versions, as is `confusion`."""
    confusion: list[list[int]] = field(default_factory=list)

    @staticmethod
    def of(summary: Summary) -> "PackedResult":
        return PackedResult(**{item.name: getattr(summary, item.name) for item in fields(PackedResult)})


@dataclass(frozen=True)
class PackedSession:
    """The code and the machine of one session of the training run."""

    commit: str | None
    versions: dict[str, str | None]
    hardware: Hardware


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a packed model was trained. Settings have the names of the version that packed it."""

    loss: Annotated[dict[str, Any] | None, Key("loss", optional=True)] = None
    optimizer: dict[str, Any]
    trainer: dict[str, Any]
    seed: int
    sessions: list[PackedSession]


@dataclass(frozen=True, eq=False)
class Packed:
    """A network with free kernels: its operators are orthogonalised when it is unpacked."""

    model: ModelConfig
    images: ImageSpec
    classes: tuple[str, ...]
    data: str
    """The data set it was trained on."""
    tensors: Mapping[str, Tensor]
    trained: Training | None
    """How it was trained; None if that is not recorded."""
    result: PackedResult | None = None
    total: int | None = None
    """Number of test images of the data set, of which `result` may be about a part; None in earlier files."""

    def network(self) -> nn.Sequential:
        """Build the network from the stored kernels, in `eval()` mode."""
        self.check()
        with torch.random.fork_rng(devices=[]):  # `build` draws initial weights, which are replaced below
            network = self.model.build(self.images)
        network.load_state_dict({name: tensor.float() for name, tensor in self.tensors.items()})
        return network.eval()

    def unpack(self) -> FrozenModel:
        """Build the network, and freeze it."""
        frozen = freeze(self.network(), self.images.shape)
        frozen.name_classes(self.classes, self.data)
        return frozen

    def check(self) -> None:
        """Raise a `ValueError` unless the tensors are those of the network. Needs memory for their shapes only."""
        sizes = [value for value in vars(self.model).values() if isinstance(value, int)]
        sizes += [self.images.channels, self.images.height, self.images.width, self.images.classes]
        if not all(size <= _LARGEST_SETTING for size in sizes) or min(sizes[-4:]) < 1:
            raise ValueError(f"a size is not from 1 to {_LARGEST_SETTING}")
        if len(self.images.mean) != self.images.channels or len(self.classes) != self.images.classes:
            raise ValueError("there is not one mean for each channel and one name for each class")
        with torch.device("meta"):
            wanted = self.model.build(self.images).state_dict()
        if {name: tensor.shape for name, tensor in wanted.items()} != {n: t.shape for n, t in self.tensors.items()}:
            raise ValueError("the kernels are not those of the network")

    def write(self, folder: Path) -> int:
        """Write the packed model and its card into a folder. Returns the size of the files in bytes."""
        make_folder(folder)
        kernels = save({name: tensor.contiguous() for name, tensor in self.tensors.items()})
        about: dict[str, Any] = {
            "format": FORMAT,
            "data": without_path(self.data),
            "classes": list(self.classes),
            "images": dataclasses.asdict(self.images),
            "model": {"kind": kind_of(self.model), **dataclasses.asdict(self.model)},
            "trained": {} if self.trained is None else to_json(self.trained),
            "result": None if self.result is None else dataclasses.asdict(self.result),
            "total": self.total,
        }
        about["sha256"] = _digest(about, kernels)
        card = packed_card(folder.resolve().name, self, about["sha256"])
        settings = json.dumps(about, indent=1).encode()
        files = {KERNELS: kernels, SETTINGS: settings, CARD: card.encode(errors="backslashreplace")}
        for file, content in files.items():
            atomic_write(folder / file, content)
        return sum(map(len, files.values()))


def pack(
    network: nn.Module,
    model: ModelConfig,
    images: ImageSpec,
    classes: tuple[str, ...],
    data: str,
    trained: Training | None = None,
) -> Packed:
    """Pack a trained network: round its kernels."""
    tensors = {name: _rounded_to_half(name, tensor.detach().cpu()) for name, tensor in network.state_dict().items()}
    return Packed(model, images, classes, data, tensors, trained)


def _rounded_to_half(name: str, tensor: Tensor) -> Tensor:
    if name.rsplit(".", 1)[-1] != "weight":
        return tensor.float()
    half = tensor.half()
    if not half.isfinite().all():
        raise InputError(f"{name} has entries beyond 65504, the largest of float16: scale it down and pack again")
    return half


def is_packed(folder: Path) -> bool:
    return (folder / SETTINGS).is_file()


def read(folder: Path) -> Packed:
    """Read a packed model of this or an earlier format, and check that a network can be built from it."""
    try:
        about = parse_json((folder / SETTINGS).read_text())
        kernels = (folder / KERNELS).read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read the packed model in {folder} ({error.strerror}): write it again with "
            f"`lotnet pack RUN --out {folder}`"
        ) from None
    except ValueError:
        raise _damaged(folder) from None
    if not isinstance(about, dict):
        raise _damaged(folder)
    if about.get("format") not in _FORMATS:
        known = " and ".join(map(str, _FORMATS))
        raise InputError(f"{folder} has format {about.get('format')}, this lotnet reads {known}: pack it again")
    if about.get("sha256") != _digest(about, kernels):
        raise _damaged(folder)
    try:
        packed = _parse(about, kernels)
        packed.check()
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError):
        raise _damaged(folder) from None
    return packed


def _parse(about: Mapping[str, Any], kernels: bytes) -> Packed:
    settings = dict(about["model"])
    return Packed(
        model=convert(MODELS[settings.pop("kind")], settings, "model"),
        images=convert(ImageSpec, about["images"], "images"),
        classes=convert(tuple[str, ...], about["classes"], "classes"),
        data=convert(str, about["data"], "data"),
        tensors=load(kernels),
        trained=convert(Training, about["trained"], "trained") if about["trained"] != {} else None,
        result=convert(PackedResult | None, about["result"], "result"),
        total=convert(int | None, about.get("total"), "total"),
    )


def _digest(about: Mapping[str, Any], kernels: bytes) -> str:
    """SHA-256 of the kernels and, since format 2, of the settings beside the digest itself."""
    digest = hashlib.sha256(kernels)
    if about["format"] != 1:
        digest.update(
            json.dumps({key: value for key, value in about.items() if key != "sha256"}, sort_keys=True).encode()
        )
    return digest.hexdigest()


def _damaged(folder: Path) -> InputError:
    return InputError(f"the packed model in {folder} is damaged: write it again with `lotnet pack RUN --out {folder}`")
