"""LipConvnets of one shape with different layers, for benchmarks."""

import torch.nn.functional as F
from torch import Tensor, nn

from literal_lot import LiteralLOT
from lotnet.layers import OrthogonalConv2d, OrthogonalLinear
from lotnet.models import ImageSpec, LipConvnet


class PlainConv2d(nn.Module):
    """An ordinary convolution in place of an orthogonal one."""

    def __init__(self, like: OrthogonalConv2d) -> None:
        super().__init__()
        self.stride = like.stride
        inner = like.in_channels * like.stride**2
        self.conv = nn.Conv2d(inner, like.out_channels, like.kernel_size, padding=like.kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pixel_unshuffle(x, self.stride) if self.stride > 1 else x)


def literal(like: OrthogonalConv2d) -> LiteralLOT:
    return LiteralLOT(like.in_channels, like.out_channels, like.kernel_size, like.stride, like.padding_mode)


def network(kind: str, depth: int, channels: int = 32, side: int = 32) -> nn.Sequential:
    """`kind` is plain, literal or a parametrization's name; all with Householder activations."""
    images = ImageSpec(3, side, side, 10, (0.5, 0.5, 0.5), 0.25)
    name = "lot" if kind in ("plain", "literal") else kind
    model = LipConvnet(depth=depth, channels=channels, activation="hh1", parametrization=name).build(images)
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
