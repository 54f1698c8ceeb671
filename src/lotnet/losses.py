"""Losses on logits. Each is a pure function of logits, labels and the model's Lipschitz constant in pixels.

`lipschitz` is the Lipschitz constant of the network before its head: `1 / std` for a model of 1-Lipschitz layers behind
`Normalize`. So `margin / (sqrt 2 lipschitz)` is a radius for pixels in [0, 1]. Offsets and temperatures are given for
inputs that are not normalised, as in the literature, and are multiplied by `lipschitz` here. So a setting means the
same radius whatever the std of the data set.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.errors import InputError


def margins(logits: Tensor, labels: Tensor) -> Tensor:  # b c, b -> b
    """Logit of the label minus the largest other logit: negative where the prediction is wrong."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - others.amax(dim=1)


@dataclass(frozen=True)
class Loss(ABC):
    """Base class of the losses. A loss is called on a batch and returns the mean over its images.

    `lipschitz` is the Lipschitz constant of the network before its head, in pixels. `pairwise` (c, c) holds the
    Lipschitz constant of each difference of two logits as a function of the features: sqrt 2 off the diagonal for an
    orthogonal head. `progress` in [0, 1] is the fraction of the run that is done.

    Invariant: no loss reads the value of a tensor on the CPU, so a CUDA graph can record it. `progress` is a tensor
    then.

    Settings that are numbers must not be negative, and temperatures must be positive. Otherwise the loss would reward
    mistakes.
    """

    def __post_init__(self) -> None:
        for setting in fields(self):
            name, value = setting.name, getattr(self, setting.name)
            if name == "temperature" and value <= 0:
                raise InputError(f"loss.temperature must be positive, not {value}")
            if not isinstance(value, str) and value < 0:
                raise InputError(f"loss.{name} must be at least 0, not {value}")

    @abstractmethod
    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor: ...


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Cross-entropy."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        return F.cross_entropy(logits, labels)


@dataclass(frozen=True)
class CReg(Loss):
    """Certificate regularisation (CReg): cross-entropy minus gamma times the certified radius, if that is positive."""

    gamma: float = 0.5
    """Weight of the certified radius."""
    on: str = "radius"
    """What is weighted: radius, margin / (sqrt 2 L), as in the authors' code; or margin, margin / sqrt 2, as in the
    paper's formula."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on not in ("radius", "margin"):
            raise InputError(f"CReg works on the radius or the margin, not on {self.on!r}")

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        certificate = F.relu(margins(logits, labels)) / math.sqrt(2)
        if self.on == "radius":
            certificate = certificate / lipschitz
        return F.cross_entropy(logits, labels) - self.gamma * certificate.mean()


@dataclass(frozen=True)
class OffsetCrossEntropy(Loss):
    """Offset cross-entropy, `T CE((z - xi onehot) / T)`: lowers the label's logit by xi, to demand a margin of xi."""

    offset: float = 0.6
    """xi, in pixels: sqrt 2 times the radius to reach, so 0.6 is a radius of 108/255."""
    temperature: float = 0.25
    """T, in pixels: small values concentrate on images with small margins."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        temperature = self.temperature * lipschitz
        shifted = lower_label(logits, labels, self.offset * lipschitz)
        return temperature * F.cross_entropy(shifted / temperature, labels)


@dataclass(frozen=True)
class LogitAnnealing(Loss):
    """Logit annealing, `T (1 - p)^beta CE` on the offset logits: images with probability p near one count less.

    The defaults are what the authors publish for LipConvnets: xi = 2 sqrt 2 and T = 0.75, in logits of a network that
    divides pixels by 0.2507. For their network BRONet, which scales its logits freely, see `AnnealedEMMA`.
    """

    offset: float = 0.709
    """xi, as in OffsetCrossEntropy: a radius of 128/255."""
    temperature: float = 0.188
    """T, as in OffsetCrossEntropy."""
    beta: float = 5.0
    """How fast images lose weight as their probability grows."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        shifted = lower_label(logits, labels, self.offset * lipschitz)
        return annealed(shifted, labels, self.temperature * lipschitz, self.beta)


@dataclass(frozen=True)
class EMMA(Loss):
    """Efficient margin maximisation (EMMA): cross-entropy on logits after a worst-case perturbation of each class.

    Each wrong logit is raised by what a perturbation of size eps could gain on the label's logit, or by the gap to the
    label's logit where that is smaller.
    """

    radius: float = 108 / 255
    """eps in pixels. It grows linearly until halfway through the run, and then stays."""
    temperature: float = 0.25
    """T, as in OffsetCrossEntropy; 1 in logits for pixels of standard deviation 0.25."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        temperature = self.temperature * lipschitz
        raised = raise_others(logits, labels, pairwise, self.radius * lipschitz, progress)
        return temperature * F.cross_entropy(raised / temperature, labels)


@dataclass(frozen=True)
class AnnealedEMMA(Loss):
    """Logit annealing on top of EMMA, the loss of BRONet (block reflector orthogonal network).

    BRONet scales its logits freely, by a first layer whose norm is about 59 on CIFAR-10. The defaults of offset and
    temperature are the published 2 and 0.75 divided by that.
    """

    radius: float = 108 / 255
    """eps, as in EMMA."""
    offset: float = 0.034
    """xi, as in OffsetCrossEntropy."""
    temperature: float = 0.0127
    """T, as in OffsetCrossEntropy."""
    beta: float = 5.0
    """How fast images lose weight as their probability grows."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        raised = raise_others(logits, labels, pairwise, self.radius * lipschitz, progress)
        shifted = lower_label(raised, labels, self.offset * lipschitz)
        return annealed(shifted, labels, self.temperature * lipschitz, self.beta)


def lower_label(logits: Tensor, labels: Tensor, offset: float) -> Tensor:  # b c, b -> b c
    """Lower the label's logit by the offset."""
    return logits - offset * F.one_hot(labels, logits.shape[1]).to(logits.dtype)


def raise_others(
    logits: Tensor, labels: Tensor, pairwise: Tensor, reach: float, progress: float | Tensor
) -> Tensor:  # b c, b, c c -> b c
    """Raise each wrong logit j by `reach pairwise[y, j]`, or by its gap to the label's logit y if that is smaller.

    The reach grows linearly until halfway through the run. A wrong logit is raised by at least a hundredth of it.
    """
    # Not Python's `min`: that would read the number, which may be on a GPU.
    ramp = torch.as_tensor(2 * progress, dtype=torch.float64).clamp(max=1.0)
    reached = reach * ramp * pairwise[labels]  # b c; zero for the label itself
    gaps = logits.gather(1, labels[:, None]) - logits
    return logits + (gaps.detach() / reached.clamp_min(1e-12)).clamp(0.01, 1) * reached


def annealed(logits: Tensor, labels: Tensor, temperature: float, beta: float) -> Tensor:
    """Mean of `T (1 - p)^beta CE`, p the probability of the label at this temperature."""
    entropy = F.cross_entropy(logits / temperature, labels, reduction="none")
    return temperature * ((1 - (-entropy).exp()) ** beta * entropy).mean()


LOSSES: dict[str, type[Loss]] = {
    "cross-entropy": CrossEntropy,
    "creg": CReg,
    "offset": OffsetCrossEntropy,
    "emma": EMMA,
    "annealing": LogitAnnealing,
    "emma-annealing": AnnealedEMMA,
}
