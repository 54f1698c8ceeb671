"""Predictions with their certificate: a label, its probability, and the radius within which the label is proved.

    [prediction] = lotnet.predict(lotnet.load("lipconvnet5-cifar10"), ["cat.png"])
    print(prediction.label, prediction.radius)

Invariants:

* label and radius are claim B of `lotnet.certification`: the float64 program gives the same label to every
  representable input closer than the radius;
* the radius is about the image as the model reads it. If the file was resized or converted first, `changes` says so;
* probabilities are the softmax of the same program's logits. They are not calibrated, and nothing is proved about them.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

import torch
from torch import Tensor

from lotnet.certification import certify
from lotnet.certification.formatting import rounded_down
from lotnet.data import decode, to_unit
from lotnet.data.images import center_box, image_files, read_header
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel

_WITHOUT_ALPHA = {"LA": "L", "RGBA": "RGB"}
"""Modes whose levels stay as they are when alpha is dropped."""

__all__ = ["Picture", "Prediction", "find_files", "predict", "read_picture", "read_pictures"]


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image.

    >>> prediction = Prediction("cat", 1, {"dog": 0.0, "cat": 1.0}, radius=0.25)
    >>> f"{prediction.label}, {prediction.confidence:.2f}, {prediction.radius_255:.1f}/255"
    'cat, 0.73, 63.7/255'
    """

    label: str
    index: int
    """Index of the label among the classes."""
    logits: dict[str, float]
    """Logit of each class by name, in the order of the classes."""
    radius: float
    """Certified l2 radius (claim B), for pixels in [0, 1]; 0 if nothing is proved."""

    @property
    def probabilities(self) -> dict[str, float]:
        """Softmax of the logits."""
        shares = torch.tensor(list(self.logits.values()), dtype=torch.float64).softmax(dim=0)
        return dict(zip(self.logits, shares.tolist(), strict=True))

    @property
    def confidence(self) -> float:
        """Probability of the label."""
        return self.probabilities[self.label]

    @property
    def radius_255(self) -> float:
        """The radius in units of 1/255, rounded down."""
        return math.nextafter(self.radius * 255, 0.0)

    @property
    def meaning(self) -> str:
        """A sentence that explains the radius, which is rounded down."""
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
    """Changes to the file's pixels that made the model's input; empty if the input is exactly the file's pixels."""
    repeats: int | None = 1
    """How often the input repeats each level of the file: 3 for a grey file and an RGB model, otherwise 1. None if the
    input has other levels than the file, because it was resized, for instance."""
    drops_alpha: bool = False
    """Whether the file has an alpha channel, which the model does not read."""

    def scope(self, radius: float) -> str:
        """A sentence that says in which pixels a certified radius of this picture is, rounded down."""
        channels, height, width = self.pixels.shape
        read = f"{height} x {width} {'grey' if channels == 1 else 'RGB'} pixels"
        if self.repeats == 1:
            without = " without their alpha channel" if self.drops_alpha else ""
            return f"The radius is in the file's own pixels{without}, {read}."
        if self.repeats is not None:
            own = math.nextafter(radius / math.sqrt(self.repeats), 0.0)  # the l2 norm of a repeated change
            return (
                f"The radius is in the {read} that the model reads, where each grey level of the file counts "
                f"{self.repeats} times; in the file's own grey pixels it is {rounded_down(own, 4)}."
            )
        return (
            f"The radius is in the {read} that the model reads, not in the pixels of the file: about changes of the "
            "file itself nothing is proved, because its levels were computed anew and rounded."
        )


def predict(
    model: FrozenModel, images: Tensor | Sequence[str | Path], *, batch_size: int | None = None
) -> list[Prediction]:
    """Predict the label of each image, with the radius within which it is proved.

    Args:
        model: the frozen model, from `freeze` or `load`.
        images: one tensor of pixels in [0, 1] (b, c, h, w), or a list of image files, which are read like the model's
            training images.
        batch_size: images at a time, by default 250, fewer if they are large.

    To call this often, pass `model.astype(torch.float64)`, which caches the proved bounds of its layers.

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
    program = model.astype(torch.float64) if isinstance(model, FrozenModel) else model  # certify refuses any other
    certificates = certify(program, images, batch_size=batch_size, keep_logits=True)
    assert certificates.logits is not None
    rows = certificates.logits.tolist()
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
    """Names of the classes; their numbers if the model has no names for `count` classes."""
    names = model.spec.classes
    return names if len(names) == count else tuple(str(n) for n in range(count))


def find_files(names: Iterable[str | Path], listed: TextIO | None = None) -> list[Path]:
    """Find the image files that `names` stand for.

    A file stands for itself, a folder for all images below it, and `-` for the names in `listed` (stdin), one per line.
    """
    found: list[Path] = []
    for name in names:
        if str(name) == "-":
            # A `-` within the list is ignored: there is no second list to read.
            found += find_files(line.rstrip("\n") for line in listed or sys.stdin if line.strip() not in ("", "-"))
        else:
            found += _files_of(Path(name))
    if not found:
        raise InputError("there are no images to predict: name image files, folders, or - for a list on stdin")
    return found


def _files_of(path: Path) -> list[Path]:
    try:
        if path.is_file():
            return [path]
        files = image_files(path) if path.is_dir() else None
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}): check the path") from None
    if files is None:
        raise InputError(f"there is no image {path}: check the path")
    if not files:
        raise InputError(f"the folder {path} holds no images: name another one or an image file")
    return files


def read_pictures(files: Sequence[str | Path], input_shape: Sequence[int]) -> list[Picture]:
    """Read image files for a model of this input shape (c, h, w), decoded like its training images."""
    return [read_picture(Path(file), input_shape, str(file)) for file in files]


def read_picture(file: Path | IO[bytes], input_shape: Sequence[int], name: str) -> Picture:
    """Read an image file, or an image in memory; errors refer to it by `name`."""
    if len(input_shape) != 3 or input_shape[0] not in (1, 3):
        shape = " x ".join(str(n) for n in input_shape)
        raise InputError(f"image files become grey or RGB, and this model reads {shape}: pass it tensors")
    channels, height, width = input_shape
    pixels = decode(file, input_shape, name)  # first, because it refuses damaged and too large files
    header = read_header(file, name)
    size, part = (header.height, header.width), center_box(header.height, header.width, input_shape)
    changes = []
    if header.rotated:
        changes.append("rotated or mirrored as its EXIF orientation says")
    if part != size:
        changes.append(f"the middle {part[0]} x {part[1]} of {size[0]} x {size[1]} pixels")
    if part != (height, width):
        changes.append(f"{part[0]} x {part[1]} pixels resized to {height} x {width}")
    wanted = {1: "L", 3: "RGB"}[channels]
    mode = _WITHOUT_ALPHA.get(header.mode, header.mode)
    if header.has_alpha:
        changes.append("the alpha channel dropped")
    if header.has_16_bits:
        changes.append("the upper 8 of 16 bits kept")
    if mode != wanted:
        changes.append(f"mode {mode} converted to {wanted}")
    repeats = _repeats(mode, part == (height, width) and not header.has_16_bits, wanted)
    return Picture(name, pixels, tuple(changes), repeats, header.has_alpha)


def _repeats(mode: str, keeps_levels: bool, wanted: str) -> int | None:
    """How often the model's input repeats each level of the file; see `Picture.repeats`."""
    if not keeps_levels or mode not in ("L", wanted):
        return None
    return 3 if mode != wanted else 1
