"""Predictions for people: a label, how sure the network is, and how far the label is proved to hold.

    [prediction] = lotnet.predict(lotnet.load("lipconvnet5-cifar10"), ["cat.png"])
    print(prediction.label, prediction.radius)

Invariants:

* label and radius are claim B's, of the float64 graph (see `lotnet.certification`): no representable input closer
  than the radius gets another label from it;
* the radius is about the picture as the model reads it: one that was resized first is named so in `changes`;
* probabilities are the softmax of the same graph's logits: they are not calibrated, and nothing is proved of them.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

import torch
from PIL import Image
from torch import Tensor

from lotnet.certification import certify
from lotnet.certification.formatting import rounded_down
from lotnet.data import decode, to_unit
from lotnet.data.images import image_files
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel

__all__ = ["Picture", "Prediction", "find_files", "predict", "read_picture", "read_pictures"]

_TURNED = range(2, 9)  # EXIF orientations that are not upright
_ORIENTATION = 0x0112


@dataclass(frozen=True)
class Prediction:
    """One image's.

    >>> prediction = Prediction("cat", 1, {"dog": 0.0, "cat": 1.0}, radius=0.25)
    >>> f"{prediction.label}, {prediction.confidence:.2f}, {prediction.radius_255:.1f}/255"
    'cat, 0.73, 63.7/255'
    """

    label: str
    index: int
    """Of the label among the classes."""
    logits: dict[str, float]
    """By class name, in the order of the classes."""
    radius: float
    """Claim B, l2, pixels in [0, 1]; 0 where nothing is proved."""

    @property
    def probabilities(self) -> dict[str, float]:
        """Softmax of the logits."""
        shares = torch.tensor(list(self.logits.values()), dtype=torch.float64).softmax(dim=0)
        return dict(zip(self.logits, shares.tolist(), strict=True))

    @property
    def confidence(self) -> float:
        """The label's probability."""
        return self.probabilities[self.label]

    @property
    def radius_255(self) -> float:
        """The radius in 8-bit steps, the product rounded down."""
        return math.nextafter(self.radius * 255, 0.0)

    @property
    def meaning(self) -> str:
        """The radius as a sentence, rounded down."""
        if not self.radius:
            return "Nothing is proved for this image: another label is as near as the rounding of the computation."
        return (
            f"No change of the pixels whose l2 norm is below {rounded_down(self.radius, 4)} (pixels in [0, 1]), "
            f"however it is chosen, makes the float64 program answer anything but {self.label}."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "index": self.index,
            "confidence": self.confidence,
            "probabilities": self.probabilities,
            "logits": self.logits,
            "radius": self.radius,
            "radius_255": self.radius_255,
            "claim": "B",
            "meaning": self.meaning,
        }


@dataclass(frozen=True, eq=False)
class Picture:
    """An image file as a model reads it."""

    name: str
    pixels: Tensor  # c h w, uint8
    changes: tuple[str, ...]
    """What was done to the file's pixels to make the model's input; none: it is exactly what the file holds."""


def predict(model: FrozenModel, images: Tensor | Sequence[str | Path], *, batch_size: int = 250) -> list[Prediction]:
    """Predict the label of each image, with the radius in which it is proved.

    `images` is one tensor of pixels in [0, 1] (b, c, h, w), or a list of image files, which are read as the model's
    training images were.

    Called often, pass `model.astype(torch.float64)`: it keeps what was proved of its layers.

    >>> import lotnet, torch
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator ...>
    >>> network = torch.nn.Sequential(
    ...     lotnet.OrthogonalConv2d(1, 4, 3), lotnet.MaxMin(), torch.nn.Flatten(), lotnet.OrthogonalLinear(64, 3)
    ... )
    >>> model = lotnet.freeze(network, image_size=4)
    >>> [prediction] = predict(model, torch.rand(1, 1, 4, 4))
    >>> prediction.label in ("0", "1", "2"), prediction.radius >= 0
    (True, True)
    """
    if not isinstance(images, Tensor):
        images = _pixels(model, images)
    if not images.isfinite().all():
        raise InputError("some pixels are NaN or infinite: predict images with pixels in [0, 1]")
    graph = model.astype(torch.float64) if isinstance(model, FrozenModel) else model  # certify refuses any other
    certificates = certify(graph, images, batch_size=batch_size)
    device = next(iter(model.buffers())).device
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        parts = [graph(batch.to(device, torch.float64)).cpu() for batch in images.split(batch_size)]
    rows = torch.cat(parts).tolist()
    names = class_names(model, len(rows[0]))
    return [
        Prediction(names[c.prediction], c.prediction, dict(zip(names, logits, strict=True)), c.radius_float)
        for c, logits in zip(certificates, rows, strict=True)
    ]


def _pixels(model: FrozenModel, files: Sequence[str | Path]) -> Tensor:
    if isinstance(files, str | Path) or not all(isinstance(file, str | Path) for file in files):
        raise InputError("images are one tensor (b, c, h, w) or a list of image files: stack tensors with torch.stack")
    pictures = read_pictures(find_files(files), model.input_shape)
    return to_unit(torch.stack([picture.pixels for picture in pictures]), torch.float64)


def class_names(model: FrozenModel, count: int) -> tuple[str, ...]:
    """Those the model was trained with; numbers if it was frozen without any."""
    names = tuple(str(name) for name in model.settings.get("classes", ()))
    return names if len(names) == count else tuple(str(n) for n in range(count))


def find_files(names: Iterable[str | Path], listed: TextIO | None = None) -> list[Path]:
    """The files that are meant: themselves, all below a folder, for `-` those that `listed` (stdin) has, one a line."""
    found: list[Path] = []
    for name in names:
        if str(name) == "-":
            # A list that names `-` again has no second list to read.
            found += find_files(line.rstrip("\n") for line in listed or sys.stdin if line.strip() not in ("", "-"))
        elif Path(name).is_dir():
            files = image_files(Path(name))
            if not files:
                raise InputError(f"the folder {name} holds no images: name another one or an image file")
            found += files
        elif Path(name).is_file():
            found.append(Path(name))
        else:
            raise InputError(f"there is no image {name}: check the path")
    if not found:
        raise InputError("there are no images to predict: name image files, folders, or - for a list on stdin")
    return found


def read_pictures(files: Sequence[str | Path], input_shape: Sequence[int]) -> list[Picture]:
    """Image files as a model of this input shape (c, h, w) reads them, decoded as its training images were."""
    return [read_picture(Path(file), input_shape, str(file)) for file in files]


def read_picture(file: Path | IO[bytes], input_shape: Sequence[int], name: str) -> Picture:
    """One of them, or an image in memory; `name` is what an error calls it."""
    channels, height, width = input_shape
    if height != width or channels not in (1, 3):
        shape = " x ".join(str(n) for n in input_shape)
        raise InputError(f"image files become grey or RGB squares, and this model reads {shape}: pass it tensors")
    side = height
    rgb = decode(file, side, name)  # first: it refuses what is damaged or too large
    with Image.open(file) as image:
        size, mode, turned = image.size, image.mode, image.getexif().get(_ORIENTATION) in _TURNED
    changes = []
    if turned:
        changes.append("turned as its EXIF says")
    if size != (side, side):
        middle = "" if size[0] == size[1] else "the middle square of "
        changes.append(f"{middle}{size[0]} x {size[1]} pixels resized to {side} x {side}")
    wanted = {1: "L", 3: "RGB"}[channels]
    if mode != wanted:
        changes.append(f"mode {mode} converted to {wanted}")
    return Picture(name, _grey(rgb) if channels == 1 else rgb, tuple(changes))


def _grey(rgb: Tensor) -> Tensor:  # 3 h w -> 1 h w
    """Rec. 601 luma in 16-bit fixed point. The weights sum to one, so a grey image keeps its values exactly."""
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32)[:, None, None]
    return ((rgb.int() * weights).sum(dim=0, keepdim=True) + 2**15).div(2**16, rounding_mode="floor").to(torch.uint8)
