"""metrics.jsonl: one line for each epoch that a training run has finished."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lotnet.certification.plain import in_255ths
from lotnet.errors import InputError
from lotnet.files import atomic_write
from lotnet.records import parse_record, read_text

FORMAT = 1


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of one epoch: training loss, and accuracies in [0, 1] on the validation images, if there are any."""

    epoch: int
    """Counted from 1."""
    loss: float
    clean: float | None = None
    certified: dict[str, float] = field(default_factory=dict)
    """Accuracy by the standard certificate at each radius, named "36/255" and so on."""
    seconds: float = 0.0
    step: int | None = None
    """Steps since the start of the run."""
    lr: float | None = None
    """Learning rate of the last step."""
    largest_singular_value: float | None = None
    """Upper bound over all layers. Training measures it on a GPU only."""


class MetricsFile:
    """Reads, appends to and shortens metrics.jsonl."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[EpochMetrics]:
        """One record for each finished epoch; none if no epoch is finished yet."""
        if not self.path.exists():
            return []
        remedy = "delete the run and train it again"
        lines = read_text(self.path, remedy).splitlines()
        return [parse_record(EpochMetrics, line, str(self.path), remedy) for line in lines]

    def append(self, record: EpochMetrics) -> int:
        """Append one epoch. Returns the new length of the file in bytes, which the epoch's checkpoint stores."""
        before = self.path.read_bytes() if self.path.exists() else b""
        known = {key: value for key, value in asdict(record).items() if value is not None}
        content = before + json.dumps({"format": FORMAT, **known}).encode() + b"\n"
        atomic_write(self.path, content)
        return len(content)

    def truncate(self, length: int) -> None:
        """Shorten the file to `length` bytes: drop the epochs after the resumed checkpoint, which are trained again."""
        if self.path.exists():
            atomic_write(self.path, self.path.read_bytes()[:length])


def best_epoch(metrics: list[EpochMetrics], radius: float) -> int:
    """The epoch with the highest validation accuracy certified at `radius`; ties go to the later epoch.

    Without validation images it is the last epoch.
    """
    name = in_255ths(radius)
    if metrics and all(record.clean is None for record in metrics):
        return metrics[-1].epoch
    if not metrics or any(name not in record.certified for record in metrics):
        raise InputError(f"no epoch has a certified accuracy at {name}: train the run again")
    return max(metrics, key=lambda record: (record.certified[name], record.epoch)).epoch
