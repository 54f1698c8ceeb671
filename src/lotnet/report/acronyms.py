"""What the acronyms in the names of networks stand for. The glossary of the documentation says more."""

_EXPANSIONS = {
    "LOT": "layer-wise orthogonal training",
    "SOC": "skew orthogonal convolution",
    "BCOP": "block convolution orthogonal parametrization",
    "ECO": "explicitly constructed orthogonal convolution",
    "RKO": "reshaped kernel orthogonalization",
    "CReg": "certificate regularisation",
    "EMMA": "efficient margin maximisation",
}


def expanded(names: list[str]) -> dict[str, str]:
    """The acronyms that occur in some names of networks, with their expansions."""
    words = {word for name in names for word in name.replace(",", " ").split()}
    return {acronym: expansion for acronym, expansion in _EXPANSIONS.items() if acronym in words}
