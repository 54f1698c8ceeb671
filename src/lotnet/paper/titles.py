"""Networks in the words of the papers, for legends of plots and tables of pages."""

from collections.abc import Sequence

from lotnet.config.settings import kind_of
from lotnet.data import public_name
from lotnet.losses import Loss
from lotnet.models import LipConvnet, LipResNet18, LipWideNet, ModelConfig

Words = dict[str, str]
"""What a reader wants to know of a network, in the order in which it is said. Empty where nothing is unusual."""

DATA = {
    "digits": "digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny-imagenet": "TinyImageNet",
    "tinyimagenet": "TinyImageNet",
}
"""Data sets, by the names of lotnet and of the paper's tables."""
_LAYERS = {"cayley": "Cayley", "spectral": "spectral normalisation"}
_LOSSES = {
    "cross-entropy": "cross-entropy",
    "creg": "CReg loss",
    "offset": "offset cross-entropy",
    "emma": "EMMA loss",
    "annealing": "logit annealing",
    "emma-annealing": "EMMA loss with logit annealing",
}
_USUAL = {
    "head": "no last-layer normalisation",
    "padding": "zero padding",
    "residual": "residual connections",
}
"""What is said of a network only to tell it from one that is unusual."""


def words(model: ModelConfig, loss: Loss) -> Words:
    """Network, layer, loss, and what is unusual."""
    plain = isinstance(model, LipConvnet) and not model.residual and model.depth > 10
    kind = kind_of(loss)
    return {
        "network": _network(model),
        "layer": layer(model.parametrization),
        "loss": _LOSSES.get(kind, f"{kind} loss"),
        "head": "last-layer normalisation" if model.head == "lln" else "",
        "padding": "" if model.padding_mode == "zeros" else f"{model.padding_mode} padding",
        "residual": "no residual connections" if plain else "",
    }


def joined(parts: Words) -> str:
    """
    >>> joined({"network": "LipConvnet-20", "layer": "LOT", "head": "", "loss": "EMMA loss"})
    'LipConvnet-20, LOT, EMMA loss'
    """
    return ", ".join(filter(None, parts.values()))


def distinguished(networks: Sequence[Words]) -> tuple[str, list[str]]:
    """What all networks have in common, and what the name of each has to say beyond that.

    The name of a network that has no other beside it says everything. Networks with the same words get the same name.

    >>> distinguished([{"network": "LipConvnet-5", "layer": "LOT"}, {"network": "LipConvnet-5", "layer": "SOC"}])
    ('LipConvnet-5', ['LOT', 'SOC'])
    """
    if len(networks) == 1:
        return "", [joined(networks[0])]
    keys = dict.fromkeys(key for network in networks for key in network)
    different = [key for key in keys if len({network.get(key, "") for network in networks}) > 1]
    common = joined({key: networks[0].get(key, "") for key in keys if key not in different})
    names = [joined({key: network.get(key, "") for key in different}) for network in networks]
    if "" in names:
        names = [joined({key: network.get(key) or _USUAL.get(key, "") for key in different}) for network in networks]
    return common, names


def layer(parametrization: str) -> str:
    """The name of a parametrization: LOT, SOC, Cayley, ..."""
    return _LAYERS.get(parametrization, parametrization.upper())


def data_title(name: str) -> str:
    """The name of a data set; of a folder its last part only."""
    return DATA.get(name, public_name(name))


def _network(model: ModelConfig) -> str:
    if isinstance(model, LipConvnet):
        usual = model.channels == LipConvnet().channels
        return f"LipConvnet-{model.depth}" + ("" if usual else f" with {model.channels} channels")
    if isinstance(model, LipWideNet):
        return f"wide network, {model.depth} x {model.channels} channels"
    return "ResNet-18" if isinstance(model, LipResNet18) else type(model).__name__
