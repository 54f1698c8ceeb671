"""LipConvnets of one shape with different layers, for benchmarks."""

import torch.nn.functional as F
from torch import Tensor, nn

from literal_lot import LiteralLOT
from lotnet.layers import GlobalAveragePool, Householder, Normalize, OrthogonalConv2d, OrthogonalLinear
from lotnet.models import ImageSpec, LipConvnet


class PlainConv2d(nn.Module):
    """An ordinary convolution in place of an orthogonal one."""

    def __init__(self, like: OrthogonalConv2d) -> None:
        super().__init__()
        self.stride = like.stride[0]  # square, as in all networks here
        inner = like.in_channels * self.stride**2
        self.conv = nn.Conv2d(inner, like.out_channels, like.kernel_size, padding=like.kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pixel_unshuffle(x, self.stride) if self.stride > 1 else x)


def literal(like: OrthogonalConv2d) -> LiteralLOT:
    return LiteralLOT(like.in_channels, like.out_channels, like.kernel_size, like.stride[0], like.padding_mode)


def network(kind: str, depth: int, channels: int = 32, side: int = 32) -> nn.Sequential:
    """`kind` is plain, literal or a parametrization's name; all with Householder activations."""
    images = ImageSpec(3, side, side, 10, (0.5, 0.5, 0.5), 0.25)
    name = "lot" if kind in ("plain", "literal") else kind
    return _with_layers(
        kind, LipConvnet(depth=depth, channels=channels, activation="hh1", parametrization=name).build(images)
    )


def flat_network(kind: str, channels: int = 256, layers: int = 12) -> nn.Sequential:
    """A convolution of stride 2, then equal convolutions on 16 x 16 pixels, and the mean of the pixels."""
    body: list[nn.Module] = [Normalize((0.5, 0.5, 0.5), 0.25)]
    for n in range(layers + 1):
        convolution = OrthogonalConv2d(channels if n else 3, channels, 3, stride=1 if n else 2)
        body.append(nn.Sequential(convolution, Householder(channels)))
    return _with_layers(kind, nn.Sequential(*body, GlobalAveragePool(), nn.Flatten(), OrthogonalLinear(channels, 10)))


def _with_layers(kind: str, model: nn.Sequential) -> nn.Sequential:
    if kind == "plain":
        _replace(model, PlainConv2d)
        head = model[-1]
        assert isinstance(head, OrthogonalLinear)
        model[-1] = nn.Linear(head.in_features, head.out_features)
    elif kind == "literal":
        _replace(model, literal)
    return model


def _replace(module: nn.Module, make) -> None:
    for name, child in module.named_children():
        if isinstance(child, OrthogonalConv2d):
            setattr(module, name, make(child))
        elif not isinstance(child, OrthogonalLinear):
            _replace(child, make)
