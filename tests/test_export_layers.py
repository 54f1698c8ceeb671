"""Models with every kind of layer are exported to ONNX, in both precisions: `export` checks the file it wrote."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lotnet import (
    Abs,
    ChannelShift,
    Concatenation,
    FullSort,
    GlobalAveragePool,
    GlobalNormPool,
    GroupSort,
    InvertibleDownsampling,
    InvertibleUpsampling,
    LayerCentering,
    MaxPool,
    Normalize,
    NormalizedLinear,
    NormPool,
    OrthogonalConv2d,
    OrthogonalConvTranspose2d,
    freeze,
)
from lotnet.export import Precision, export

SHAPE = (2, 4, 6)
MODELS: dict[str, tuple[nn.Module, ...]] = {
    "activations": (
        OrthogonalConv2d(2, 4, 1),
        GroupSort(2),
        Abs(0.5),
        nn.LeakyReLU(-0.3),
        FullSort(),
        nn.Hardtanh(-3, 4),
        nn.ReLU(),
        nn.Flatten(),
        NormalizedLinear(96, 3),
    ),
    "convolutions": (
        OrthogonalConv2d(2, 4, 3, padding=2, dilation=2, groups=2),
        OrthogonalConv2d(4, 4, 2, dilation=2, padding_mode="circular", parametrization="bcop"),
        OrthogonalConvTranspose2d(4, 1, 2, stride=2, dilation=2),
        nn.Flatten(),
        NormalizedLinear(96, 3),
    ),
    "windows": (
        Concatenation(OrthogonalConv2d(2, 6, 3), nn.Identity()),
        InvertibleUpsampling(2),
        LayerCentering(2),
        InvertibleDownsampling(4),
        ChannelShift(3),
        nn.ChannelShuffle(2),
        nn.ZeroPad2d((0, 0, 1, 0)),
        ChannelShift(3, "circular"),
        Concatenation(GlobalAveragePool(), GlobalNormPool(), MaxPool(2), scaled=False),
        NormPool(1),
        nn.Flatten(),
        NormalizedLinear(96, 3),
    ),
}


@pytest.mark.parametrize("precision", ("float32", "float64"))
@pytest.mark.parametrize("name", MODELS)
def test_the_exported_file_agrees(name: str, precision: Precision, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    model = nn.Sequential(Normalize([0.4, 0.6], 0.5), *MODELS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    done = export(freeze(model, SHAPE), tmp_path / "model.onnx", "onnx", precision)
    assert done.checked == 50 and done.path.is_file()
