"""The groups of settings that every run has: data, optimizer and trainer."""

from dataclasses import dataclass
from typing import Any, Literal

from lotnet.data import AugmentationKind, Channels, Side
from lotnet.errors import InputError


@dataclass(frozen=True)
class DataConfig:
    """The data set."""

    name: str = "digits"
    """Data set: digits, cifar10, cifar100, tiny-imagenet, or folder:PATH for your own images."""
    root: str | None = None
    """Folder of prepared data sets; by default $LOTNET_DATA, else ~/.cache/lotnet."""
    side: int | None = None
    """Resize the images of a folder to this side, in pixels; by default they keep their size if all have the same."""
    width: int | None = None
    """Width of images that are not square; data.side is then their height."""
    channels: Channels | None = None
    """Channels of the images of a folder; by default as in the files."""
    augment: AugmentationKind = "standard"
    """standard: mirroring and shifts, as is usual for the data set; strong: also changes of shape and color;
    randaugment: also RandAugment with fourteen operations, on every second image."""
    flip: bool | None = None
    """Mirror a random half of the training images; by default as data.augment says. Wrong where sides matter."""
    crop: int | None = None
    """Largest random shift of training images, in pixels; by default as data.augment says."""
    validation: float = 0.05
    """Share of the training images that are held out to choose the best epoch; 0 keeps the last epoch."""

    def __post_init__(self) -> None:
        for name in ("side", "width"):
            value = getattr(self, name)
            check(value is None or value >= 1, f"data.{name}", "at least 1", value)
        check(0 <= self.validation < 1, "data.validation", "at least 0 and below 1", self.validation)
        check(self.crop is None or self.crop >= 0, "data.crop", "at least 0", self.crop)
        if self.width is not None and self.side is None:
            raise InputError(f"data.width {self.width} is given without data.side, which is the height: give both")

    @property
    def size(self) -> Side | None:
        """Side of square images, or (height, width); None if it is not chosen yet."""
        return self.side if self.side is None or self.width is None else (self.side, self.width)


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer settings."""

    name: Literal["sgd", "nadam"] = "sgd"
    """Optimizer: sgd with momentum, or nadam."""
    lr: float = 0.1
    """Largest learning rate."""
    momentum: float = 0.9
    """Momentum of sgd."""
    nesterov: bool = False
    """Use Nesterov momentum in sgd."""
    weight_decay: float = 0.0
    """Weight decay of all parameters. LOT's operator does not depend on the scale of its kernel."""
    schedule: Literal["multistep", "onecycle", "constant"] = "multistep"
    """Learning rate over the run. multistep: times 0.1 after half and after three quarters of it; onecycle: linear
    warm-up, then cosine to zero."""
    warmup: float = 0.15
    """Fraction of the run that onecycle spends on the warm-up; 0 is cosine decay alone."""
    clip: float = 0.0
    """Clip the norm of the gradient to this value; 0 does not clip."""

    def __post_init__(self) -> None:
        check(self.lr > 0, "optimizer.lr", "positive", self.lr)
        check(0 <= self.warmup < 1, "optimizer.warmup", "at least 0 and below 1", self.warmup)
        check(0 <= self.momentum < 1, "optimizer.momentum", "at least 0 and below 1", self.momentum)
        check(self.weight_decay >= 0, "optimizer.weight_decay", "at least 0", self.weight_decay)
        check(self.clip >= 0, "optimizer.clip", "at least 0", self.clip)


@dataclass(frozen=True)
class TrainerConfig:
    """Length of the run, arithmetic, checkpoints and processes."""

    epochs: int = 200
    """Passes over the training images."""
    batch_size: int = 256
    """Images per step, over all processes together."""
    precision: Literal["tf32", "ieee", "double"] = "tf32"
    """Arithmetic of training steps. On a CPU, tf32 is the same as ieee. Evaluation never uses tf32."""
    ema: float = 0.0
    """Decay of the exponential moving average of the weights, which is evaluated and saved; 0 takes no average."""
    radius: float = 36 / 255
    """The best checkpoint has the highest certified accuracy at this radius on the validation images."""
    cuda_graph: bool = True
    """On GPUs, record the training step as a CUDA graph and replay it."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; 0 writes one only at the end of each epoch."""
    threads: int | None = None
    """CPU threads; by default one per core. Small networks train faster with 1. Results differ in the last digits."""
    devices: int = 1
    """Processes on this machine, each with its own device; torchrun sets its own number."""
    nodes: int = 1
    """Number of machines; torchrun sets its own number."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "devices", "nodes"):
            check(getattr(self, name) >= 1, f"trainer.{name}", "at least 1", getattr(self, name))
        check(self.threads is None or self.threads >= 1, "trainer.threads", "at least 1", self.threads)
        check(0 <= self.ema < 1, "trainer.ema", "at least 0 and below 1", self.ema)
        check(self.radius >= 0, "trainer.radius", "at least 0", self.radius)
        check(self.checkpoint_every >= 0, "trainer.checkpoint_every", "at least 0", self.checkpoint_every)


def check(condition: bool, name: str, wanted: str, found: Any) -> None:
    """Raise an `InputError` that names the setting, unless the condition holds."""
    if not condition:
        raise InputError(f"{name} must be {wanted}, not {found}")
