"""The last layer of a network that starts from another is fitted to the features that are there."""

import copy

import pytest
import torch
from torch import Tensor, nn

from lotnet import MaxMin, Normalize, NormalizedLinear, OrthogonalConv2d, OrthogonalLinear
from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.data import load, to_unit
from lotnet.losses import EMMA
from lotnet.training.last_layer import fit_last_layer

TRAIN = load("digits").train.select(slice(0, 300))


def network(head: type[nn.Module]) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (OrthogonalConv2d(1, 4, 3, stride=2), MaxMin(), nn.Flatten())
    return nn.Sequential(Normalize((0.3,), 0.37), *layers, head(64, 10))


def loss_of(model: nn.Sequential) -> tuple[float, Tensor]:
    """The loss on the training images, and the predictions."""
    with torch.no_grad():
        logits = model(to_unit(TRAIN.images))
        pairwise = pairwise_constants(model[-1], 10, logits)
        return float(EMMA()(logits, TRAIN.labels, pixel_lipschitz(model), pairwise, 1.0)), logits.argmax(dim=1)


@pytest.mark.parametrize("head", [NormalizedLinear, OrthogonalLinear])
def test_it_is_fitted_to_features_that_stay(head: type[nn.Module]) -> None:
    model = network(head)
    before, (at_first, _) = copy.deepcopy(model.state_dict()), loss_of(model)
    fit_last_layer(model, EMMA(), TRAIN, torch.device("cpu"))
    after, found = loss_of(model)
    assert after < 0.6 * at_first
    assert float((found == TRAIN.labels).float().mean()) > 0.8
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed and all(name.startswith("4.") for name in changed)
    assert model.training and all(parameter.grad is None for parameter in model.parameters())


def test_it_draws_no_random_numbers() -> None:
    one, other = network(NormalizedLinear), network(NormalizedLinear)
    state = torch.get_rng_state()
    fit_last_layer(one, EMMA(), TRAIN, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), state)
    fit_last_layer(other, EMMA(), TRAIN, torch.device("cpu"))
    assert all(map(torch.equal, one.parameters(), other.parameters()))
