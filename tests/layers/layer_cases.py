"""Helpers of the layer tests."""

import torch
from torch import Tensor, nn

PARAMETERS = {"weight", "bias", "angles", "logit"}
"""The only trainable state of a layer."""
BUFFERS = {"mean", "std", "running_mean", "logit"}
"""Constants that travel with it; a residual's logit is one unless it is trainable."""


def randomize(module: nn.Module, seed: int = 0) -> nn.Module:
    """Make every parameter random, so that no identity or zero start hides a mistake."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def dense(function: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    """The matrix of an affine map of images, from its response to every impulse."""
    size = int(torch.tensor(shape).prod())
    with torch.no_grad():
        impulses = torch.eye(size, dtype=dtype).view(size, *shape)
        return (function(impulses) - function(torch.zeros_like(impulses[:1]))).flatten(1).T


def jacobian(function: nn.Module, x: Tensor) -> Tensor:
    """The derivative of any map at one point, as a matrix."""
    found = torch.autograd.functional.jacobian(lambda z: function(z[None])[0].flatten(), x)
    assert isinstance(found, Tensor)
    return found.flatten(1)


def largest_singular_value(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix.double(), ord=2))
