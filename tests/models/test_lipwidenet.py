"""The wide network at one resolution."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lotnet import certify, freeze, train
from lotnet.certification.plain import pixel_lipschitz
from lotnet.errors import InputError
from lotnet.frozen.convolution import FrozenKernel
from lotnet.layers import Centering, OrthogonalConv2d, OrthogonalLinear
from lotnet.models import ImageSpec, LipWideNet
from lotnet.parametrizations import LOT, Spectral

COLOUR = ImageSpec(3, 16, 16, 4, (0.49, 0.48, 0.45), 0.2507)
SMALL = {"depth": 2, "channels": 8, "dense_layers": 2, "dense_width": 16, "activation": "hh1"}


def trained_a_little(config: LipWideNet) -> nn.Sequential:
    """A network whose weights, biases and running means are all random."""
    torch.manual_seed(0)
    network = config.build(COLOUR)
    with torch.no_grad():
        for tensor in [*network.parameters(), *(m.running_mean for m in network.modules() if isinstance(m, Centering))]:
            tensor.add_(0.1 * torch.randn_like(tensor))
    return network


def test_its_layers_are_stem_trunk_neck_and_dense_layers() -> None:
    with torch.device("meta"):
        network = LipWideNet(channels=512, dense_width=2048, head="lln").build(ImageSpec(3, 32, 32, 10))
    stem, *trunk, neck = (m for m in network.modules() if isinstance(m, OrthogonalConv2d) and m.in_channels <= 512)
    assert (stem.out_channels, stem.stride, stem.parametrization) == (512, (2, 2), Spectral())
    assert len(trunk) == 12 and {(m.in_channels, m.out_channels, m.kernel_size) for m in trunk} == {(512, 512, 3)}
    assert (neck.stride, neck.kernel_size, neck.bias) == ((4, 4), 1, None)
    dense = [m for m in network.modules() if isinstance(m, OrthogonalLinear)]
    assert [(m.in_features, m.out_features) for m in dense] == [(8192, 2048)] + 8 * [(2048, 2048)]
    centred = [m for m in network.modules() if isinstance(m, Centering)]
    assert len(centred) == 12 and all(m.bias is None for m in trunk)


@pytest.mark.parametrize("stem", ["free", "orthogonal"])
@pytest.mark.parametrize("centering", [True, False])
def test_the_frozen_network_is_the_same_function_with_a_proved_constant(stem: str, centering: bool) -> None:
    network = trained_a_little(LipWideNet(stem=stem, centering=centering, head="lln", **SMALL)).eval()
    frozen, x = freeze(network, 16), torch.rand(5, 3, 16, 16)
    assert torch.allclose(frozen(x), network(x), atol=1e-4)
    body = freeze(network[:-1], 16)
    assert float(body.lipschitz_bound()) == pytest.approx(pixel_lipschitz(network), rel=1e-5)
    assert any(type(m) is FrozenKernel and m.kernel.shape[2:] == (3, 3) for m in frozen.modules()) == (stem == "free")
    certificates = certify(frozen, x)
    assert (certificates.radii["float"] > 0).all()
    y = x + 0.1 * torch.randn_like(x)
    moved = (body(x) - body(y)).norm(dim=1)
    assert (moved <= float(body.lipschitz_bound()) * (x - y).flatten(1).norm(dim=1)).all()


def test_in_training_too_the_stem_enlarges_nothing() -> None:
    stem = trained_a_little(LipWideNet(**SMALL)).train()[1][0]
    impulses = torch.eye(3 * 16 * 16).view(-1, 3, 16, 16)
    with torch.no_grad():
        matrix = (stem(impulses) - stem(0 * impulses)).flatten(1)
        norm = float(torch.linalg.matrix_norm(matrix.double(), ord=2))
    assert 0.9 < norm <= 1 + 1e-5  # below one where the image is smaller than the periodic grid


def test_all_kernels_learn() -> None:
    network = trained_a_little(LipWideNet(head="lln", start="quasi-residual", **SMALL)).train()
    network(torch.rand(4, 3, 16, 16)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_the_start_is_near_the_identity_where_channels_are_equal() -> None:
    network = LipWideNet(start="quasi-residual", gamma=0.01, **SMALL).build(COLOUR)
    x = torch.rand(2, 8, 8, 8)
    layer = network[2][0]
    assert isinstance(layer.parametrization, LOT)
    assert (layer.eval()(x) - x).norm() < 0.05 * x.norm()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LipWideNet(stem="plain"), "unknown stem 'plain': choose one of free, orthogonal"),
        (lambda: LipWideNet(channels=7), "channels must be a positive even number, not 7"),
        (lambda: LipWideNet(dense_width=0), "dense_width must be a positive even number, not 0"),
        (lambda: LipWideNet(depth=0), "depth must be at least 1, not 0"),
        (lambda: LipWideNet(patch=3).build(COLOUR), "multiples of 6, not 16 x 16: resize the images, or choose"),
    ],
)
def test_what_does_not_fit_is_refused(make, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_it_trains_on_the_digits(tmp_path: Path) -> None:
    settings = {f"model.{name}": value for name, value in SMALL.items()}
    settings |= {"model.kind": "lipwidenet", "data.augment": "randaugment", "loss.kind": "emma-annealing"}
    run = train("digits/default", tmp_path / "run", quiet=True, limit=200, **settings, **{"trainer.epochs": 1})
    assert 0 <= run.metrics()[-1].clean <= 1


@pytest.mark.gpu
def test_a_recorded_step_computes_the_same(tmp_path: Path) -> None:
    settings = {f"model.{name}": value for name, value in SMALL.items()} | {"model.kind": "lipwidenet"}
    settings |= {"data.augment": "randaugment", "trainer.epochs": 2, "trainer.precision": "ieee"}
    losses = []
    for on in (True, False):
        folder = tmp_path / str(on)
        run = train("digits/default", folder, device="cuda", quiet=True, **settings, **{"trainer.cuda_graph": on})
        losses.append([record.loss for record in run.metrics()])
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
