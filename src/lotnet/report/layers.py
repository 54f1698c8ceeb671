"""The layers of a frozen model in words, and the table of their proved bounds."""

from lotnet.certification.formatting import rounded_up
from lotnet.report.collect import RunData
from lotnet.report.tables import Row, Table

_WORDS = {
    "Normalize": "subtract the mean, divide by the standard deviation",
    "Spectrum": "convolution, stored by frequency",
    "Dense": "convolution, stored as a matrix",
    "Kernel": "convolution, stored as a kernel",
    "Series": "convolution, stored as a series (SOC)",
    "Grouped": "convolution in groups",
    "Dilated": "dilated convolution",
    "Shift": "bias",
    "Householder": "Householder activation (HH)",
    "MaxMin": "MaxMin activation",
    "GroupSort": "GroupSort activation",
    "LeakyReLU": "leaky ReLU",
    "Hardtanh": "hardtanh",
    "AveragePool": "average pool",
    "GlobalAveragePool": "global average pool",
    "NormPool": "norm pool",
    "MaxPool": "max pool",
    "LayerCentering": "layer centering",
    "Downsampling": "pixels to channels (stride)",
    "Upsampling": "channels to pixels",
    "Flatten": "flatten",
    "Linear": "last linear layer",
    "Concatenation": "branches side by side",
    "ChannelShift": "shift of channels",
    "ChannelShuffle": "shuffle of channels",
    "ZeroPad": "padding by zeros",
    "ToColumn": "sequence to image",
    "FromColumn": "image to sequence",
}
"""Kinds of frozen layers, by the names of their classes in `lotnet.frozen` without the prefix."""


def audit(run: RunData, slot: int) -> Table:
    """The proved bound of each layer, and the product that certificates use."""
    table = Table(run.name, ["Layer", "Proved bound", "Orthogonality error", "Proof"])
    rows = run.certification.audit
    for row in rows:
        error = row.orthogonality_error
        cells = [layer_title(row.name, row.kind), rounded_up(row.lipschitz_bound)]
        table.rows.append(Row([*cells, "" if error is None else f"{error:.1e}", f"{row.seconds:.2f} s"]))
    total = rounded_up(run.certification.summary.lipschitz_bound)
    table.rows.append(Row([f"Product of {multiplied(run)}", total, "", ""], slot, "total"))
    return table


def layer_title(name: str, kind: str) -> str:
    return f"{name.removeprefix('model.')} {_WORDS.get(kind, kind)}"


def multiplied(run: RunData) -> str:
    """Which layers the product of bounds is of: certificates treat the last layer by the pairs of its rows."""
    count = len(run.certification.audit)
    return f"the first {count - 1} of {count} layers"


def has_residuals(run: RunData) -> bool:
    """Whether the network has residual blocks."""
    return any(".shortcut" in row.name for row in run.certification.audit)


def has_concatenations(run: RunData) -> bool:
    """Whether the network has branches whose outputs are concatenated."""
    return any(".branches." in row.name for row in run.certification.audit)
