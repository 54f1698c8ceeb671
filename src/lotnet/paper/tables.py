"""The paper's tables, row by row, and how to train each row here."""

import csv
import shlex
from dataclasses import dataclass
from importlib import resources
from typing import Any

from lotnet.errors import InputError

Overrides = dict[str, str]

UNLABELED = "ti_500K_pseudo_labeled.pickle"
"""File of the unlabeled images of the paper's semi-supervised rows, under its original name."""

EPOCHS = 200
"""Epochs of every row."""

ACCURACIES = {"clean": "clean", "cert_36": "36/255", "cert_72": "72/255", "cert_108": "108/255"}
"""Columns of accuracies: field of `Row`, heading."""

TITLES = {
    "sup-crhh": "Supervised, with certificate regularisation and Householder activations",
    "abl-residual": "Ablation: residual connections",
    "pgd-linf-8-255": "Accuracy under an l-infinity attack",
    "abl-padding": "Ablation: padding",
    "sup": "Supervised, cross-entropy and MaxMin",
    "ssl-crhh": "Semi-supervised, with certificate regularisation and Householder activations",
    "ssl": "Semi-supervised, cross-entropy and MaxMin",
    "sup-resnet18": "ResNet-18",
}
"""What each table shows."""

SOC: Overrides = {"model.parametrization": "soc"}


@dataclass(frozen=True)
class Row:
    """One row of one table. Accuracies are percentages, None where the paper has no number."""

    table: str
    dataset: str
    model: str
    conv: str
    setting: str
    creg_hh: bool
    lln: bool
    residual: bool | None
    padding: str
    clean: float
    cert_36: float | None
    cert_72: float | None
    cert_108: float | None
    eval_seconds: float | None
    pgd_linf: float | None

    @property
    def variant(self) -> str:
        """The variant of an ablation; empty in other tables."""
        return {
            "abl-residual": "residual" if self.residual else "no residual",
            "abl-padding": f"{self.padding} padding",
        }.get(self.table, "")

    @property
    def is_supervised(self) -> bool:
        """Whether the row is trained on labels alone and certified, as by `lotnet train` and `lotnet certify`."""
        return self.setting == "supervised" and self.cert_36 is not None


def rows() -> list[Row]:
    """All rows, in the paper's order."""
    text = (resources.files("lotnet") / "paper" / "tables.csv").read_text()
    return [_row(record) for record in csv.DictReader(text.splitlines())]


def tables() -> list[str]:
    """The names of the tables."""
    return list(dict.fromkeys(row.table for row in rows()))


def rows_of(table: str | None) -> list[Row]:
    """The rows of one table, or all."""
    if table is not None and table not in tables():
        raise InputError(f"the paper has no table {table}: choose one of {', '.join(tables())}")
    return [row for row in rows() if table in (None, row.table)]


def recipe_for(row: Row) -> tuple[str, Overrides]:
    """The packaged recipe of a row, and the settings in which the row differs from it."""
    dataset = {"tinyimagenet": "tiny-imagenet"}.get(row.dataset, row.dataset)
    overrides: Overrides = {}
    if row.model == "ResNet-18":
        setting = "resnet18"
    else:
        setting = {(False, False): "plain", (True, False): "creg-hh", (True, True): "creg-hh-lln"}[row.creg_hh, row.lln]
        depth = row.model.removeprefix("LipConvnet-")
        if depth != "5":
            overrides["model.depth"] = depth
        if not row.residual:
            overrides["model.residual"] = "false"
    if row.conv == "SOC":
        overrides |= SOC
    if row.padding == "circular":
        overrides["model.padding_mode"] = "circular"
    return f"{dataset}/{setting}", overrides


def command_for(row: Row) -> str:
    """The command that trains a row. Semi-supervised rows use `lotnet selftrain`."""
    recipe, overrides = recipe_for(row)
    verb = "train"
    if row.setting == "semi-supervised":
        verb, overrides = "selftrain", overrides | {"unlabeled": UNLABELED}
    return shlex.join(["lotnet", verb, "--config", recipe, *arguments(overrides)])


def arguments(overrides: Overrides) -> list[str]:
    """Overrides as command-line arguments."""
    return [word for name, value in overrides.items() for word in (f"--{name}", value)]


def _row(record: dict[str, str]) -> Row:
    flags = {"yes": True, "no": False, "": None}
    typed: dict[str, Any] = dict(record)
    typed |= {name: flags[record[name]] for name in ("creg_hh", "lln", "residual")}
    numbers = ("clean", "cert_36", "cert_72", "cert_108", "eval_seconds", "pgd_linf")
    typed |= {name: float(record[name]) if record[name] else None for name in numbers}
    return Row(**typed)
