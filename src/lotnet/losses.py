"""Losses on logits. Each is a pure function of logits, labels and the model's Lipschitz constant in pixels.

`lipschitz` is that of the whole network before the head, `1 / std` for a model of 1-Lipschitz layers behind
`Normalize`, so that `margin / (sqrt 2 lipschitz)` is a radius in pixels of [0, 1]. Settings named in the
literature for unnormalised inputs (offset, temperature) are in units of radii here too, times `lipschitz`: a recipe
means the same whatever std its data set has.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.errors import InputError


def margins(logits: Tensor, labels: Tensor) -> Tensor:  # b c, b -> b
    """Logit of the label minus the largest other one: negative where the prediction is wrong."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return own - others.amax(dim=1)


@dataclass(frozen=True)
class Loss(ABC):
    """Mean over the batch. `progress` in [0, 1] is how far training has come; `pairwise` (c, c) holds the Lipschitz
    constant of every logit difference relative to the network's, sqrt 2 off the diagonal for an orthogonal head.

    Invariant: no loss looks at the value of a tensor, so that a CUDA graph can record it; `progress` is a tensor then.

    Numbers among the settings are not negative, temperatures positive: below that a loss rewards mistakes.
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
    """Cross-entropy minus gamma times the certificate, where it is positive."""

    gamma: float = 0.5
    """Weight of the certificate."""
    on: str = "radius"
    """radius: margin / (sqrt 2 L), as in the authors' code; margin: margin / sqrt 2, as in the paper's formula."""

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
    """`T CE((z - xi onehot) / T)`: the label has to win by xi before it counts as won."""

    offset: float = 0.6
    """xi in pixels times L: sqrt 2 times the radius to be won, so 0.6 is 108/255."""
    temperature: float = 0.25
    """T, likewise."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        offset, temperature = self.offset * lipschitz, self.temperature * lipschitz
        shifted = logits - offset * F.one_hot(labels, logits.shape[1]).to(logits.dtype)
        return temperature * F.cross_entropy(shifted / temperature, labels)


@dataclass(frozen=True)
class LogitAnnealing(Loss):
    """`T (1 - p)^beta CE`, p the probability that the offset cross-entropy sees: what is won already counts less."""

    offset: float = 2.0
    """xi, as in OffsetCrossEntropy."""
    temperature: float = 0.75
    """T, likewise."""
    beta: float = 5.0
    """How fast won examples lose weight."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        offset, temperature = self.offset * lipschitz, self.temperature * lipschitz
        shifted = (logits - offset * F.one_hot(labels, logits.shape[1]).to(logits.dtype)) / temperature
        entropy = F.cross_entropy(shifted, labels, reduction="none")
        return temperature * ((1 - (-entropy).exp()) ** self.beta * entropy).mean()


@dataclass(frozen=True)
class EMMA(Loss):
    """Cross-entropy on logits moved as far as a perturbation could move them, each wrong class by its own share."""

    radius: float = 108 / 255
    """eps in pixels, reached halfway through the run and kept."""
    temperature: float = 0.25
    """T, as in OffsetCrossEntropy; 1 in logits for pixels of standard deviation 0.25."""

    def __call__(
        self, logits: Tensor, labels: Tensor, lipschitz: float, pairwise: Tensor, progress: float | Tensor
    ) -> Tensor:
        # No `min`: that would look at the number, which may be on a GPU.
        ramp = torch.as_tensor(2 * progress, dtype=torch.float64).clamp(max=1.0)
        reach = self.radius * ramp * lipschitz * pairwise[labels]  # b c; zero for the label itself
        own = logits.gather(1, labels[:, None])
        share = ((own - logits).detach() / reach.clamp_min(1e-12)).clamp(0.01, 1)
        temperature = self.temperature * lipschitz
        return temperature * F.cross_entropy((logits + share * reach) / temperature, labels)


LOSSES: dict[str, type[Loss]] = {
    "cross-entropy": CrossEntropy,
    "creg": CReg,
    "offset": OffsetCrossEntropy,
    "emma": EMMA,
    "annealing": LogitAnnealing,
}
