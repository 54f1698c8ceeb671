"""`lotnet.convert`: plain networks become 1-Lipschitz ones that can be trained, frozen, certified and exported."""

import itertools
from pathlib import Path

import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lotnet
from lotnet.data import load, to_unit
from lotnet.errors import InputError
from lotnet.export import export
from lotnet.frozen.pointwise import windows_to_channels
from lotnet.layers.window_kernel import Axis, window_kernel
from lotnet.operators import Kernel


def vgg(widths: tuple[int, ...], classes: int = 10) -> nn.Sequential:
    """Pairs of 3 x 3 convolutions with batch normalisation, a pool after each pair, and two dense layers."""
    layers: list[nn.Module] = []
    inputs = 1
    for width in widths:
        for _ in range(2):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    head = (nn.Linear(widths[-1] * 4, 64), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(64, classes))
    return nn.Sequential(nn.Sequential(*layers), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Sequential(*head))


def train(network: nn.Module, images: Tensor, labels: Tensor, steps: int) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (1 - step / steps)
        chosen = torch.randint(len(images), (64,), generator=generator)
        with lotnet.orthogonalized(network):
            F.cross_entropy(8 * network(images[chosen]), labels[chosen]).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def journey(widths: tuple[int, ...], steps: int, limit: int, folder: Path) -> dict[str, float]:
    """Convert, train on the digits, freeze, certify, export; the result of it on `limit` test digits."""
    torch.manual_seed(0)
    digits = load("digits")
    images, test = (to_unit(split.images, torch.float32) for split in (digits.train, digits.test))
    network = lotnet.convert(vgg(widths), (1, 8, 8), mean=0.3, std=0.37, quiet=True)
    train(network, images, digits.train.labels, steps)
    frozen = lotnet.freeze(network.eval(), 8)
    test, truth = test[:limit], digits.test.labels[:limit]
    certificates = lotnet.certify(frozen, test, truth)
    labels = certificates.predictions
    export(frozen, folder / "digits.onnx", precision="float64", images=test[:20])
    session = onnxruntime.InferenceSession(folder / "digits.onnx", providers=["CPUExecutionProvider"])
    logits = torch.from_numpy(session.run(None, {"images": test.double().numpy()})[0])
    assert torch.equal(logits.argmax(dim=1), labels)
    robust = (labels == truth) & (certificates.radii["float"] > 36 / 255)
    return {
        "clean": float((labels == truth).float().mean()),
        "certified": float(robust.float().mean()),
    }


def test_a_vgg_becomes_a_certified_network(tmp_path: Path) -> None:
    found = journey((8,), 40, 100, tmp_path)
    assert found["clean"] > 0.8 and 0 < found["certified"] <= found["clean"]


@pytest.mark.slow
def test_a_vgg_trained_for_a_minute(tmp_path: Path) -> None:
    found = journey((16, 32), 2400, 359, tmp_path)
    print(found)
    assert found["clean"] > 0.95 and found["certified"] > 0.6


@pytest.mark.parametrize(("k", "s", "d"), list(itertools.product((1, 2, 3, 4, 7), (1, 2, 3), (1, 2))))
def test_the_free_kernel_of_a_strided_layer_is_the_plain_convolution(k: int, s: int, d: int) -> None:
    x, kernel = torch.randn(1, 2, 18, 18, dtype=torch.float64), torch.randn(3, 2, k, k, dtype=torch.float64)
    checked = 0
    for padding in range(d * (k - 1) + 1):
        plain = F.conv2d(F.pad(x, (padding,) * 4), kernel, stride=s, dilation=d)
        same = s > 1 or (padding == d * ((k - 1) // 2) and (k % 2 or d == 1))
        if plain.shape[-1] == 18 // s and same:
            free, dilation = window_kernel(kernel, [Axis(k, s, d, padding)] * 2)
            found = Kernel(free, dilation=dilation).apply(windows_to_channels(x, (s, s)))
            assert torch.allclose(found, plain, atol=1e-12)
            checked += 1
    assert checked or (k, s) in ((2, 1), (4, 1))  # even kernels change the size


def test_modules_in_their_places() -> None:
    plain = nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=(1, 2), padding=1, bias=False),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 5, 4, stride=2, padding=1, groups=1),
        nn.ReLU(),
        nn.Conv2d(5, 8, 7, dilation=2),
        nn.Identity(),
        nn.AvgPool2d(3, 2, 1),
        nn.AdaptiveAvgPool2d((None, 2)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8, 3),
    )
    network = lotnet.convert(plain, (2, 4, 4), quiet=True)
    kinds = [type(layer).__name__ for layer in network]
    convolutions = ["OrthogonalConv2d", "MaxMin", "OrthogonalConvTranspose2d", "Abs", "OrthogonalConv2d"]
    others = ["AveragePool", "GlobalAveragePool", "Flatten", "Dropout", "NormalizedLinear"]
    assert kinds == ["Normalize", *convolutions, *others]
    assert torch.equal(network[5].weight, plain[4].weight) and network[5].dilation == (2, 2)
    assert network[1].bias is None and torch.equal(network[-1].weight, plain[-1].weight)
    assert lotnet.freeze(network.eval(), (2, 4, 4)).output_shape((2, 4, 4)) == (3,)


def test_a_network_of_sequences(capsys) -> None:
    plain = nn.Sequential(
        *(nn.Conv1d(2, 8, 7, stride=2, padding=3), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2), nn.AvgPool1d(2)),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
    )
    network = lotnet.convert(plain, 16, mean=[0.5, 0.4], std=0.2)
    assert "model.0 Conv1d -> OrthogonalConv1d(2, 8, kernel_size=5), kernel kept" in capsys.readouterr().out
    frozen = lotnet.freeze(network.eval(), 16)
    assert lotnet.certify(frozen, torch.rand(3, 2, 16)).radii["float"].shape == (3,)


def test_modules_that_are_1_lipschitz_already_are_kept(capsys) -> None:
    plain = nn.Sequential(
        *(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 8, 3, padding=1), lotnet.MaxMin(), nn.LeakyReLU(0.2, inplace=True)),
        *(nn.ChannelShuffle(2), lotnet.OrthogonalConv2d(8, 8, 3), nn.ReLU6(inplace=True), nn.Flatten()),
        nn.Linear(8 * 36, 3),
    ).double()
    network = lotnet.convert(plain, 5, mean=(0.1, 0.2, 0.3))
    assert "model.2 MaxMin -> MaxMin(), kept" in capsys.readouterr().out
    assert network[6] is not plain[5] and torch.equal(network[6].weight, plain[5].weight.float())
    assert lotnet.freeze(network.eval(), 5).output_shape((3, 5, 5)) == (3,)


class OwnForward(nn.Module):
    """A network as torchvision has them."""

    features = nn.Sequential(nn.Conv2d(1, 4, 3))


def test_a_network_with_a_forward_of_its_own_is_refused() -> None:
    with pytest.raises(InputError, match=r"takes an nn.Sequential, not a OwnForward: .* put its modules into"):
        lotnet.convert(OwnForward(), 9)  # type: ignore[arg-type]
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(9, 2))
    with pytest.raises(InputError, match=r"mean needs one number, or one for each of 3 channels, not \[0.1, 0.2\]"):
        lotnet.convert(plain, 9, mean=[0.1, 0.2])
    with pytest.raises(InputError, match=r"model.0 reads 3 channels, not the 5 that it gets: correct"):
        lotnet.convert(plain, (5, 9, 9))
    with pytest.raises(InputError, match=r"image_size must say the shape .*, not 4: pass \(channels, height, width\)"):
        lotnet.convert(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), 4)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    (
        ((nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(9, 2)), r"model.1 is a GELU, .*use MaxMin"),
        ((nn.Conv2d(1, 4, 3), nn.Softmax(1)), r"must end in nn.Linear, which gives the logits: append one"),
        (
            (nn.Conv2d(1, 4, 3, 2), nn.Flatten(), nn.Linear(9, 2)),
            r"stride over 9 x 9 pixels by \(2, 2\): choose",
        ),
        (
            (nn.Conv2d(1, 4, 3, padding_mode="reflect"), nn.Flatten(), nn.Linear(9, 2)),
            r'"reflect", which copies',
        ),
        ((nn.Conv2d(1, 4, 3), nn.Linear(9, 2)), r"model.1 is a Linear that reads images: put nn.Flatten\(\) before it"),
        ((nn.Conv2d(1, 4, 3), nn.LayerNorm(9), nn.Flatten(), nn.Linear(9, 2)), r"LayerNorm, .*use LayerCentering"),
        ((nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(9, 2)), r"pools 9 x 9 pixels to 2, not"),
        ((lotnet.Normalize([0.5], 0.2), nn.Conv2d(1, 4, 3), nn.Linear(9, 2)), r"which convert adds itself: leave it"),
        ((nn.Conv2d(1, 4, 3), nn.LeakyReLU(2.0), nn.Linear(9, 2)), r"LeakyReLU, .*with a slope from -1 to 1"),
        ((nn.Conv2d(1, 4, 3), nn.PixelShuffle(3), nn.Linear(9, 2)), r"model.1"),
        ((nn.Conv2d(1, 4, 3), nn.MaxPool2d(16), nn.Flatten(), nn.Linear(9, 2)), r"model.1: images of 9 x 9 have no"),
    ),
)
def test_what_has_no_counterpart_is_refused(layers: tuple[nn.Module, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        lotnet.convert(nn.Sequential(*layers), 9)
