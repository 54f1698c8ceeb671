"""Certificates: for each image a prediction and a radius inside which it cannot change.

* Claim A (`radius_real`): the real-arithmetic function of the stored tensors keeps its prediction for every input
  closer than the radius.
* Claim B (`radius_float`): the float64 program `model.astype(torch.float64)` keeps its prediction for every
  representable input closer than the radius, in any order of summation. So the radius of one image may differ in its
  last bits with the images beside it in the batch, since products of other sizes sum in another order; each of these
  radii is valid, because the bound of the rounding error holds for every order.
* The standard certificate (`radius_plain`) is margin / (||w_c - w_j|| L) with L = 1 / min std, as in the literature. It
  assumes that every layer is exactly 1-Lipschitz and that every operation is exact.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.certification.batches import Images, batches, usual_batch
from lotnet.certification.rounding import Bounds, bounds
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel, require_frozen
from lotnet.frozen.pointwise import FrozenNormalize
from lotnet.linalg.roundoff import unit_roundoff

Claim = Literal["plain", "real", "float"]

_U = unit_roundoff(torch.float64)


@dataclass(frozen=True)
class Certificate:
    """The certificate of one image: its prediction, margin and radii.

    >>> certificate = Certificate(3, 3, margin=0.5, radius_plain=0.2, radius_real=0.199, radius_float=0.198)
    >>> certificate.prediction == certificate.label and certificate.radius_float > 36 / 255
    True
    """

    prediction: int
    """The predicted class."""
    label: int | None
    """The true class, if it was given."""
    margin: float
    """The logit of the predicted class minus the largest other logit."""
    radius_plain: float
    """The standard certificate, which ignores rounding."""
    radius_real: float
    """Claim A: proved for the function of the stored tensors, in real arithmetic."""
    radius_float: float
    """Claim B: proved for the float64 program, rounding included."""


@dataclass(frozen=True)
class Certificates:
    """The certificates of a set of images, one tensor for each field, and the Lipschitz bound behind them.

    >>> import lotnet
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator ...>
    >>> network = torch.nn.Sequential(
    ...     lotnet.OrthogonalConv2d(1, 4, 3), lotnet.MaxMin(), torch.nn.Flatten(), lotnet.OrthogonalLinear(64, 3)
    ... )
    >>> model = lotnet.freeze(network, image_size=4)
    >>> certificates = certify(model, torch.rand(5, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1]))
    >>> 0 <= certificates.accuracy(36 / 255) <= certificates.accuracy() <= 1
    True
    """

    predictions: Tensor
    labels: Tensor | None
    margins: Tensor
    radii: dict[Claim, Tensor]
    """The radii by claim: "plain" is the standard certificate, "real" claim A, "float" claim B."""
    lipschitz_bound: float
    """Proved Lipschitz bound of the features before the last layer, in pixels of [0, 1]."""
    precision: str
    finite: Tensor
    """Whether all pixels of an image are finite. Otherwise it counts as misclassified, and its radius is 0."""
    logits: Tensor | None = None
    """The logits of the float64 program, if `certify` was asked to keep them."""

    @staticmethod
    def of(certificates: "Sequence[Certificate]", lipschitz_bound: float, precision: str) -> "Certificates":
        """Labelled certificates of finite images, from those of the single images."""
        labels = [c.label for c in certificates if c.label is not None]
        return Certificates(
            torch.tensor([c.prediction for c in certificates], dtype=torch.int64),
            torch.tensor(labels, dtype=torch.int64),
            torch.tensor([c.margin for c in certificates], dtype=torch.float64),
            {
                claim: torch.tensor([getattr(c, f"radius_{claim}") for c in certificates], dtype=torch.float64)
                for claim in get_args(Claim)
            },
            lipschitz_bound,
            precision,
            torch.ones(len(certificates), dtype=torch.bool),
        )

    def __len__(self) -> int:
        return len(self.predictions)

    def __iter__(self) -> Iterator[Certificate]:
        for n in range(len(self)):
            label = None if self.labels is None else int(self.labels[n])
            radii = (float(self.radii[claim][n]) for claim in ("plain", "real", "float"))
            yield Certificate(int(self.predictions[n]), label, float(self.margins[n]), *radii)

    @property
    def not_finite(self) -> int:
        """Number of images with NaN or infinite pixels."""
        return int((~self.finite).sum())

    def correct(self) -> Tensor:
        if self.labels is None:
            raise InputError("accuracies need labels: pass them to certify")
        return self.finite & (self.predictions == self.labels)

    def accuracy(self, radius: float | None = None, claim: Claim = "float") -> float:
        """Share of images that are classified correctly and, if a radius is given, certified beyond it."""
        correct = self.correct()
        return float((correct if radius is None else correct & (self.radii[claim] > radius)).double().mean())


def smallest_std(model: FrozenModel) -> float:
    """Smallest std of the normalisation, or 1 without one. Standard radii use its inverse as the Lipschitz constant."""
    return min((float(m.std.abs().min()) for m in model.modules() if isinstance(m, FrozenNormalize)), default=1.0)


def certify(
    model: FrozenModel,
    images: Images,
    labels: Tensor | None = None,
    *,
    batch_size: int | None = None,
    keep_logits: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Certificates:
    """Prove a radius for each image, by the float64 program of a frozen model.

    Args:
        model: the frozen model, from `freeze` or `load`.
        images: images (b, c, h, w) with pixels in [0, 1]: a tensor, or `lotnet.data.UnitImages`, which reads a batch
            at a time.
        labels: the classes of the images; without them, there are no accuracies.
        batch_size: images at a time, by default 250, fewer if they are large. It does not change what is proved.
        keep_logits: whether the certificates keep the logits.
        progress: is called with the number of images after each batch.

    >>> import lotnet
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch._C.Generator ...>
    >>> network = torch.nn.Sequential(
    ...     lotnet.OrthogonalConv2d(1, 4, 3), lotnet.MaxMin(), torch.nn.Flatten(), lotnet.OrthogonalLinear(64, 3)
    ... )
    >>> model = lotnet.freeze(network, image_size=4)
    >>> certificates = certify(model, torch.rand(5, 1, 4, 4))
    >>> len(certificates), all(certificate.radius_float >= 0 for certificate in certificates)
    (5, True)
    """
    _check(model, images, labels)
    if isinstance(images, Tensor):
        _check_pixels(images)  # before the work; other images are checked when they are read
    _warn_of_other_arithmetic()
    device = next(iter(model.buffers())).device
    program = model.astype(torch.float64).to(device)
    limits = bounds(program)
    std = smallest_std(program)
    parts, kept = [], []
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for chosen in batches(len(images), usual_batch(model.input_shape, batch_size)):
            batch = images[chosen]
            if not isinstance(images, Tensor):
                _check_pixels(batch)
            batch = batch.to(device, torch.float64)
            finite = batch.isfinite().flatten(1).all(dim=1)
            logits = program(torch.where(finite.view(-1, *(1,) * (batch.ndim - 1)), batch, 0))
            if keep_logits:
                kept.append(logits.cpu())
            known = finite & logits.isfinite().all(dim=1)
            logits = torch.where(known[:, None], logits, torch.nan)  # no margin, so no radius
            parts.append([t.cpu() for t in (*certified_radii(logits, limits, std), finite)])
            progress(len(batch))
    predictions, margin, plain, real, rounded, finite = (torch.cat(column) for column in zip(*parts, strict=True))
    radii: dict[Claim, Tensor] = {"plain": plain, "real": real, "float": rounded}
    labels = None if labels is None else labels.cpu()
    logits = torch.cat(kept) if kept else None
    return Certificates(predictions, labels, margin, radii, limits.lipschitz, "float64", finite, logits)


def certified_radii(logits: Tensor, limits: Bounds, std: float) -> tuple[Tensor, ...]:
    """Return the prediction c, the smallest margin, and the three radii.

    For every other class j, let m be the computed difference of logits, t the rounding error of one logit, e the
    rounding error of the features, and Lam = ||w_c - w_j||. The real difference at a point x' is at least

        m - t_c - t_j - Lam e - Lam L ||x' - x||,

    which is positive within a distance of [(m - t_c - t_j) / Lam - e] / L: claim A. The program's difference at x' may
    be smaller by the same errors once more: claim B. Factors 1 -+ 16u around each step cover the rounding of these
    formulas themselves.
    """
    top, prediction = logits.max(dim=1)
    lam = limits.pairs.to(logits.device)[prediction]  # b c
    own = F.one_hot(prediction, logits.shape[1]).bool()
    gaps = torch.where(own, torch.inf, top[:, None] - logits)
    errors = limits.logit_error.to(logits.device)
    errors = errors[prediction][:, None] + errors[None, :]

    def radius(times: int) -> Tensor:
        won = gaps * (1 - 16 * _U) - times * errors * (1 + 16 * _U)
        distance = torch.where(lam > 0, won / lam * (1 - 16 * _U), torch.where(won > 0, torch.inf, 0.0))
        distance = distance - times * limits.feature_error * (1 + 16 * _U)
        smallest = (distance / limits.lipschitz * (1 - 16 * _U)).amin(dim=1)
        return torch.nan_to_num(smallest, nan=0.0, posinf=limits.max_radius).clamp(0.0, limits.max_radius)

    plain = torch.nan_to_num((gaps / lam * std).amin(dim=1), nan=0.0, posinf=limits.max_radius).clamp(
        0.0, limits.max_radius
    )
    return prediction, torch.nan_to_num(gaps.amin(dim=1), nan=0.0), plain, radius(1), radius(2)


def _warn_of_other_arithmetic() -> None:
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        warnings.warn("autocast is active: certification runs in float64 and ignores it", stacklevel=3)
    if torch.backends.cuda.matmul.fp32_precision == "tf32":
        warnings.warn("TF32 is active: certification runs in float64, which TF32 does not affect", stacklevel=3)


def _check(model: FrozenModel, images: Images, labels: Tensor | None) -> None:
    require_frozen(model, "certified")
    if not model.is_intact():
        raise InputError("the model was changed after freezing: freeze it again")
    # If subnormal numbers are read as zero, the bounds do not hold.
    if float(torch.tensor(torch.finfo(torch.float64).tiny, dtype=torch.float64) / 2) == 0:
        raise InputError(
            "subnormal numbers are flushed to zero: call torch.set_flush_denormal(False) before certifying"
        )
    if tuple(images.shape[1:]) != model.input_shape:
        raise InputError(
            f"the model was frozen for images of {model.input_shape}, not {tuple(images.shape[1:])}: "
            "resize them or freeze the model at that size"
        )
    if not len(images):
        raise InputError("there are no images to certify: pass at least one")
    if labels is not None and (tuple(labels.shape) != (len(images),) or labels.is_floating_point()):
        raise InputError(
            f"labels must be {len(images)} whole numbers, one for each image, not a {labels.dtype} tensor of shape "
            f"{tuple(labels.shape)}"
        )


def _check_pixels(images: Tensor) -> None:
    if not images.is_floating_point():
        raise InputError("pixels are floating-point numbers in [0, 1]: divide 8-bit images by 255")
    finite = images[images.isfinite()]
    if finite.numel() and not (finite.min() >= 0 and finite.max() <= 1):
        raise InputError("pixels lie in [0, 1], and some of these do not: divide 8-bit images by 255 and clip")
