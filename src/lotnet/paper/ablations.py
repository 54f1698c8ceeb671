"""The paper's ablations: what each varies, as settings over one base."""

from dataclasses import dataclass

from lotnet.paper.tables import SOC, Overrides

PAPER_RECIPE = "cifar10/plain"
"""What the paper's own numbers are for, with `BASE` and a variant's settings."""
BASE: Overrides = {
    "model.depth": "20",
    "model.activation": "maxmin",
    "model.head": "orthogonal",
    "loss.kind": "cross-entropy",
}
"""The paper's for all of them: LipConvnet-20 without CReg and HH. On small images it has fewer layers."""


@dataclass(frozen=True)
class Ablation:
    """Variants that differ in nothing but the settings named here."""

    about: str
    """One line for the list."""
    variants: dict[str, Overrides]
    table: str | None = None
    """The beginning of the name of the paper's tables with these rows; none where it has no numbers."""

    def varied(self) -> set[str]:
        """Names of the settings that the variants differ in."""
        return {name for overrides in self.variants.values() for name in overrides}


_CREG: Overrides = {"loss.kind": "creg"}
_HH: Overrides = {"model.activation": "hh1"}
_LLN: Overrides = {"model.head": "lln"}

ABLATIONS: dict[str, Ablation] = {
    "residual": Ablation(
        "inner layers averaged with their input, or not",
        {
            "soc": SOC | {"model.residual": "false"},
            "soc-residual": SOC | {"model.residual": "true"},
            "lot": {"model.residual": "false"},
            "lot-residual": {"model.residual": "true"},
        },
        table="abl-residual",
    ),
    "padding": Ablation(
        "periodic images, or zeros around them",
        {"circular": {"model.padding_mode": "circular"}, "zeros": {"model.padding_mode": "zeros"}},
        table="abl-padding",
    ),
    "techniques": Ablation(
        "certificate regularisation (creg), Householder activations (hh), last-layer normalisation (lln)",
        {
            "plain": {},
            "creg": _CREG,
            "hh": _HH,
            "lln": _LLN,
            "creg-hh": _CREG | _HH,
            "creg-hh-lln": _CREG | _HH | _LLN,
        },
        table="sup",
    ),
    # The paper takes n steps of one cubic. LOT here takes as many steps as its schedule needs for the condition number
    # it allows for: 3 or 4, 4 or 5, 6 and 8 for these, by the number of channels. Like too few of the paper's, they
    # leave small singular values below one, in training; what is evaluated is always iterated to the end.
    "steps": Ablation(
        "steps of LOT's iteration in training, by the condition number that they suffice for",
        {f"condition-{n}": {"model.options": f"{{condition: {n}}}"} for n in (2, 10, 100, 1000)},
    ),
    "start": Ablation(
        "layers with as many outputs as inputs start at the identity, or at random",
        {"identity": {"model.start": "identity"}, "random": {"model.start": "random"}},
    ),
}
"""Name: ablation. Variants in the order of the paper's rows, where it has some."""
