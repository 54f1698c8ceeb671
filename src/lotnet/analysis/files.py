"""The files that an analysis writes: its numbers as JSON, its tensors as safetensors, its plot as PNG."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from lotnet.files import atomic_write

FORMAT = 1


@dataclass(frozen=True, eq=False)
class AnalysisFiles:
    """What an analysis writes."""

    name: str
    """Stem of the file names."""
    content: dict[str, Any]
    """The numbers, for NAME.json."""
    draw: Callable[[], bytes]
    """Makes NAME.png. Needs matplotlib."""
    caption: str = ""
    """A sentence that says what to see in the plot. It is stored with the numbers."""
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """For NAME.safetensors, if there are any."""

    def write(self, folder: Path, prefix: str = "") -> list[Path]:
        """Write the files, and return their paths. Without matplotlib there is no plot among them."""
        stem = f"{prefix}{self.name}"
        text = json.dumps({"format": FORMAT, **self.content, "caption": self.caption}, indent=1, allow_nan=False)
        written = {folder / f"{stem}.json": text.encode()}
        if self.tensors:
            tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
            written[folder / f"{stem}.safetensors"] = save(tensors)
        with suppress(ImportError):  # the numbers are complete without the plot
            written[folder / f"{stem}.png"] = self.draw()
        for path, data in written.items():
            atomic_write(path, data)
        return list(written)
