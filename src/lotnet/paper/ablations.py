"""The paper's ablations. Each variant is a set of settings over one base."""

from dataclasses import dataclass

from lotnet.paper.tables import SOC, Overrides

PAPER_RECIPE = "cifar10/plain"
"""With `BASE` and a variant's settings, this recipe is the paper's own setting."""
BASE: Overrides = {
    "model.depth": "20",
    "model.activation": "maxmin",
    "model.head": "orthogonal",
    "loss.kind": "cross-entropy",
}
"""The paper's base: LipConvnet-20 without certificate regularisation (CReg) and Householder activations (HH).

On small images the network has fewer layers.
"""


@dataclass(frozen=True)
class Ablation:
    """Variants that differ only in the settings given here."""

    about: str
    """One line of help."""
    variants: dict[str, Overrides]
    table: str | None = None
    """Prefix of the names of the paper's tables with these rows; None where the paper has no numbers."""

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
    # The paper takes n steps of one cubic polynomial. Here LOT takes as many steps as its schedule needs for a given
    # condition number: 3 or 4, 4 or 5, 6 and 8 for the variants below, depending on the number of channels. Like too
    # few of the paper's steps, a short schedule leaves small singular values below one in training. Evaluation always
    # iterates to convergence.
    "steps": Ablation(
        "steps of LOT's iteration in training, by the condition number that they are enough for",
        {f"condition-{n}": {"model.options.condition": str(n)} for n in (2, 10, 100, 1000)},
    ),
    "start": Ablation(
        "square layers initialised at the identity, or at random",
        {"identity": {"model.start": "identity"}, "random": {"model.start": "random"}},
    ),
}
"""Name: ablation. Variants are in the order of the paper's rows, if it has any."""
