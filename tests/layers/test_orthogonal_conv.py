"""`OrthogonalConv2d` as a module: shapes, alignment, cache, precisions, and errors."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from layer_cases import dense, largest_singular_value, randomize
from torch import Tensor, nn

from lotnet import (
    LOT,
    NormalizedLinear,
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalConvTranspose2d,
    OrthogonalLinear,
)
from lotnet.errors import InputError
from lotnet.linalg.fourier import Grid, full_kernel
from lotnet.operators import Spectrum
from lotnet.parametrizations import Cayley


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("stride", (1, 2, 3))
@pytest.mark.parametrize("k", (1, 2, 3, 4, 5))
def test_shapes_and_norm_on_rectangular_images(k: int, stride: int, padding_mode: str) -> None:
    height, width = 6 * stride, 5 * stride
    for inputs, outputs in ((2, 3), (3, 3), (4, 2)):
        layer = randomize(
            OrthogonalConv2d(inputs, outputs, k, stride, padding_mode=padding_mode).double(), seed=k
        ).eval()
        x = torch.randn(2, inputs, height, width, dtype=torch.float64)
        y = layer(x)
        assert y.shape == (2, outputs, 6, 5)
        response = y - layer(torch.zeros_like(x))
        assert (response.flatten(1).norm(dim=1) <= x.flatten(1).norm(dim=1) * (1 + 1e-12)).all()


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("channels", ((2, 4), (2, 8), (2, 9)))
def test_a_strided_layer_is_orthogonal_in_the_downsampled_shape(channels: tuple[int, int], padding_mode: str) -> None:
    inputs, outputs = channels
    layer = randomize(OrthogonalConv2d(inputs, outputs, 3, 2, padding_mode=padding_mode).double()).eval()
    values = torch.linalg.svdvals(dense(layer, (inputs, 8, 8)))
    assert values[0] <= 1 + 1e-12
    if padding_mode == "circular":  # orthonormal rows or columns, whichever are fewer
        assert values[min(outputs, 4 * inputs) * 16 - 1] >= 1 - 1e-9


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize("k", (1, 2, 3, 4, 5))
def test_a_centre_delta_is_the_identity_as_in_a_plain_convolution(k: int, padding_mode: str) -> None:
    layer = OrthogonalConv2d(3, 3, k, padding_mode=padding_mode, bias=False).eval()
    plain = nn.Conv2d(3, 3, k, padding="same", padding_mode=padding_mode, bias=False)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[:, :, (k - 1) // 2, (k - 1) // 2] = 7 * torch.eye(3)
        plain.weight.copy_(layer.weight / 7)
    x = torch.randn(2, 3, 7, 6)
    assert torch.allclose(plain(x), x)
    assert torch.allclose(layer(x), x, atol=1e-5)
    assert torch.allclose(layer.train()(x), x, atol=1e-4)


@pytest.mark.parametrize("tap", ((0, 0), (0, 1), (1, 2), (2, 1)))
def test_a_shift_goes_where_a_plain_convolution_shifts(tap: tuple[int, int]) -> None:
    """A delta off the centre is orthogonal already, so its polar factor is itself."""
    layer = OrthogonalConv2d(2, 2, 3, padding_mode="circular", bias=False).eval()
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[:, :, tap[0], tap[1]] = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    x = torch.randn(1, 2, 6, 5)
    expected = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), layer.weight)
    assert torch.allclose(layer(x), expected, atol=1e-5)


@pytest.mark.parametrize("stride", (1, 2))
def test_starts_at_the_identity_when_channels_are_equal_and_at_random_otherwise(stride: int) -> None:
    x = torch.randn(1, 3, 8, 8)
    same = OrthogonalConv2d(3, 3 * stride**2, 3, stride)
    assert torch.allclose(same(x), F.pixel_unshuffle(x, stride), atol=1e-5)
    torch.manual_seed(0)
    first, second = (OrthogonalConv2d(3, 5, 3, stride).weight for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("training", (True, False))
def test_an_empty_batch(training: bool) -> None:
    layer = OrthogonalConv2d(2, 4, 3).train(training)
    assert layer(torch.zeros(0, 2, 6, 6)).shape == (0, 4, 6, 6)


def test_functional_transforms_of_a_layer_in_evaluation() -> None:
    layer = randomize(OrthogonalConv2d(2, 2, 3)).eval()
    x = torch.randn(3, 2, 4, 4)
    found = torch.func.jacrev(layer)(x[:1]).view(32, 32)
    assert torch.allclose(found, dense(layer, (2, 4, 4), torch.float32), atol=1e-5)
    assert torch.allclose(torch.func.vmap(layer)(x[:, None])[:, 0], layer(x), atol=1e-6)


def test_only_weight_and_bias_are_stored() -> None:
    layer = OrthogonalConv2d(2, 4, 3).eval()
    layer(torch.randn(1, 2, 5, 5))
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert list(OrthogonalConv2d(2, 4, 3, bias=False).state_dict()) == ["weight"]


# --- the operator that eval() caches


def kept(layer: OrthogonalConv2d, side: int = 6) -> object:
    return layer.operator(side, side)


def test_evaluation_caches_its_operator_until_something_changes() -> None:
    layer = randomize(OrthogonalConv2d(3, 3, 3)).eval()
    first = kept(layer)
    layer(torch.randn(4, 3, 6, 6))
    assert kept(layer) is first
    assert kept(layer.train().eval()) is first  # nothing changed
    assert kept(layer, 7) is not first
    assert kept(layer) is not first  # the cache holds one size only


def _step(layer: OrthogonalConv2d) -> None:
    layer.train()(torch.randn(1, 3, 6, 6)).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    layer.eval()


def _edit_data(layer: OrthogonalConv2d) -> None:
    layer.weight.data[0, 0, 0, 0] += 1  # does not change the version counter


def _add_in_place(layer: OrthogonalConv2d) -> None:
    with torch.no_grad():
        layer.weight.add_(torch.randn_like(layer.weight))


def _replace(layer: OrthogonalConv2d) -> None:
    layer.weight = nn.Parameter(torch.randn_like(layer.weight))


def _load(layer: OrthogonalConv2d) -> None:
    layer.load_state_dict(randomize(OrthogonalConv2d(3, 3, 3), seed=9).state_dict())


def _swap_parametrization(layer: OrthogonalConv2d) -> None:
    layer.parametrization = Cayley()


@pytest.mark.parametrize("change", (_step, _edit_data, _add_in_place, _replace, _load, _swap_parametrization))
def test_every_change_invalidates_the_cached_operator(change) -> None:
    layer = randomize(OrthogonalConv2d(3, 3, 3)).eval()
    x = torch.randn(1, 3, 6, 6)
    before = layer(x)
    change(layer)
    after = layer(x)
    assert not torch.allclose(before, after, atol=1e-3)
    fresh = OrthogonalConv2d(3, 3, 3, parametrization=layer.parametrization).eval()
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(after, fresh(x))


def test_a_layer_changes_precision_after_it_was_used() -> None:
    layer = randomize(OrthogonalConv2d(3, 3, 3)).eval()
    x = torch.randn(1, 3, 6, 6)
    single = layer(x)
    double = layer.double()(x.double())
    assert double.dtype == torch.float64
    assert torch.allclose(single.double(), double, atol=1e-5)
    assert torch.allclose(layer.float()(x), single, atol=1e-6)


def test_a_copy_is_independent() -> None:
    layer = randomize(OrthogonalConv2d(3, 3, 3)).eval()
    x = torch.randn(1, 3, 6, 6)
    y = layer(x)
    other = copy.deepcopy(layer)
    assert torch.equal(other(x), y)
    randomize(other, seed=5)
    assert not torch.allclose(other(x), y, atol=1e-3)
    assert torch.equal(layer(x), y)


def test_training_and_evaluation_agree_within_the_tolerance() -> None:
    layer = randomize(OrthogonalConv2d(4, 4, 3, parametrization=LOT(tolerance=1e-6, condition=1e4)))
    x = torch.randn(2, 4, 8, 8)
    assert (layer.train()(x) - layer.eval()(x)).norm() <= 1e-4 * x.norm()


# --- precisions


@pytest.mark.parametrize("training", (True, False))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_outputs_keep_the_half_precision_of_inputs(dtype: torch.dtype, training: bool) -> None:
    layer = randomize(OrthogonalConv2d(3, 6, 3, stride=2)).train(training)
    x = torch.randn(2, 3, 8, 8)
    y = layer(x.to(dtype))
    assert y.dtype == dtype and torch.isfinite(y).all()
    assert (y.float() - layer(x)).norm() <= 4 * torch.finfo(dtype).eps * x.norm()
    y.float().sum().backward()
    assert layer.weight.grad is not None or not training
    low = copy.deepcopy(layer).to(dtype)  # a kernel in half precision is widened before it is orthogonalised
    z = low(x.to(dtype))
    assert z.dtype == dtype and torch.isfinite(z).all()
    assert (z - low.bias.detach()[:, None, None]).float().norm() <= 1.01 * x.norm()


@pytest.mark.parametrize("training", (True, False))
def test_autocast_does_not_reach_inside(training: bool) -> None:
    layer = randomize(OrthogonalConv2d(3, 6, 3)).train(training)
    x = torch.randn(2, 3, 6, 6)
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x)
        from_half = layer(x.bfloat16())
    assert found.dtype == torch.float32 and torch.equal(found, expected)
    assert from_half.dtype == torch.bfloat16 and torch.isfinite(from_half).all()


# --- padding


def test_the_zero_padded_operator_is_real() -> None:
    """Computed with complex numbers throughout, the imaginary part of the answer vanishes."""
    layer = randomize(OrthogonalConv2d(2, 2, 3, bias=False).double()).eval()
    operator = layer.frozen_operator(5, 6)
    assert isinstance(operator, Spectrum)
    kernel = full_kernel(operator.transfers, Grid(5, 6, 1))
    assert not kernel.is_complex()
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    centred = kernel.roll((-3, -3), dims=(-2, -1))  # (7 - 1) // 2 and (8 - 1) // 2
    spectrum = torch.fft.fft2(centred).conj()
    answer = torch.fft.ifft2(torch.einsum("oihw,bihw->bohw", spectrum, torch.fft.fft2(F.pad(x, (1, 1, 1, 1)))))
    assert answer.imag.abs().max() < 1e-14
    assert torch.allclose(answer.real[..., 1:-1, 1:-1], layer(x), atol=1e-12)


def _difference_of_paddings(name: str) -> Tensor:
    torch.manual_seed(0)
    layers = [OrthogonalConv2d(2, 2, 3, padding_mode=m, parametrization=name).double() for m in ("zeros", "circular")]
    for layer in layers:
        layer.load_state_dict(layers[0].state_dict())
    noise = 0.1 * torch.randn_like(layers[0].weight)
    x = torch.randn(1, 2, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        for layer in layers:
            layer.weight.add_(noise)
        return (layers[0].eval()(x) - layers[1].eval()(x)).abs().amax(dim=(0, 1))


def test_paddings_differ_in_the_outermost_pixels_only() -> None:
    difference = _difference_of_paddings("bcop")  # a 3 x 3 kernel whatever the image: sees one pixel across the border
    assert difference[1:-1, 1:-1].max() < 1e-14
    border = torch.cat((difference[0], difference[-1], difference[:, 0], difference[:, -1]))
    assert border.max() > 1e-2


def test_paddings_differ_less_and_less_inwards_for_lot() -> None:
    difference = _difference_of_paddings("lot")  # as large as the image, but it decays away from the centre
    rings = [difference[n : 16 - n, n : 16 - n].max().item() for n in (0, 2, 4, 6)]
    assert rings[0] > 1e-2
    assert rings[1] < rings[0] / 3 and rings[2] < rings[1] / 3 and rings[3] < rings[2]


def test_zero_padding_is_a_contraction_and_circular_padding_an_isometry() -> None:
    for mode, smallest in (("zeros", 0.0), ("circular", 1 - 1e-12)):
        layer = randomize(OrthogonalConv2d(2, 2, 3, padding_mode=mode).double()).eval()
        values = torch.linalg.svdvals(dense(layer, (2, 6, 6)))
        assert values[0] <= 1 + 1e-12 and values[-1] >= smallest
        assert (values[-1] < 0.99) == (mode == "zeros")


# --- bad input


def refuse(pattern: str, layer: nn.Module, x: Tensor) -> None:
    for training in (True, False):
        with pytest.raises(InputError, match=pattern) as caught:
            layer.train(training)(x)
        assert "\n" not in str(caught.value)


def test_wrong_channels() -> None:
    refuse(
        r"images with 3 channels .* not a tensor of shape .*: set in_channels",
        OrthogonalConv2d(3, 4, 3),
        torch.zeros(1, 2, 8, 8),
    )
    refuse(r"images with 3 channels .*: one image is a batch of one", OrthogonalConv2d(3, 4, 3), torch.zeros(3, 8, 8))


def test_a_side_that_the_stride_does_not_divide() -> None:
    refuse(
        r"images of 8 x 9 cannot be downsampled by the stride 2: resize",
        OrthogonalConv2d(3, 4, 3, 2),
        torch.zeros(1, 3, 8, 9),
    )


def test_a_kernel_larger_than_the_padded_image() -> None:
    layer = OrthogonalConv2d(2, 2, 5, padding_mode="circular")
    refuse(r"size 5 does not fit the padded image of 4 x 6: use a smaller kernel_size", layer, torch.zeros(1, 2, 4, 6))
    assert OrthogonalConv2d(2, 2, 5)(torch.zeros(1, 2, 1, 2)).shape == (1, 2, 1, 2)  # 5 x 6 once padded


@pytest.mark.parametrize("value", (math.nan, math.inf, -math.inf))
def test_a_kernel_that_is_not_finite(value: float) -> None:
    layer = OrthogonalConv2d(2, 2, 3)
    with torch.no_grad():
        layer.weight[0, 1, 2, 0] = value
    refuse(r"the kernel has NaN or infinite entries: lower the learning rate", layer, torch.zeros(1, 2, 6, 6))
    with pytest.raises(InputError, match="the kernel has NaN"):
        layer.frozen((2, 6, 6), torch.float32)


def test_integer_images_are_refused() -> None:
    image = torch.full((1, 2, 6, 6), 200, dtype=torch.uint8)
    refuse(r"floating-point numbers, not torch.uint8: divide 8-bit images by 255", OrthogonalConv2d(2, 2, 3), image)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    (
        ({"parametrization": "loot"}, r"unknown parametrization 'loot': choose one of lot, soc"),
        ({"padding_mode": "reflect"}, r"'reflect' copies pixels .* enlarges differences: choose zeros or circular"),
        ({"padding_mode": "replicate"}, r"'replicate' copies pixels .* enlarges differences: choose zeros or circular"),
        ({"padding_mode": "wrap"}, r"unknown padding_mode 'wrap': choose zeros or circular"),
        ({"padding": 0}, r'padding must keep the size of the image, .* not 0: use padding="same" or 1'),
        ({"padding": "valid"}, r"not 'valid': use padding=\"same\" or 1"),
        ({"padding": "circular"}, r"not 'circular': use .*padding_mode for the border"),
        ({"padding": 1, "kernel_size": 2}, r'not 1: use padding="same", and'),
        ({"stride": 0}, r"stride must be one or two whole numbers, at least 1, not 0"),
        ({"stride": (1, 2, 2)}, r"stride must be one or two whole numbers, at least 1, not \(1, 2, 2\)"),
        ({"kernel_size": (3, 3, 3)}, r"kernel_size must be one or two whole numbers, at least 1, not \(3, 3, 3\)"),
        ({"kernel_size": 3.0}, r"kernel_size must be one or two whole numbers, at least 1, not 3.0"),
    ),
)
def test_invalid_arguments_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        OrthogonalConv2d(**{"in_channels": 2, "out_channels": 2, "kernel_size": 3} | arguments)


@pytest.mark.parametrize(
    "arguments", ((3, 1, 1), (3, 2, 1), ((3, 3), (2, 2), (1, 1)), (5, 1, 2), (1, 1, 0), (2, 1, "same"))
)
def test_arguments_in_the_order_of_pytorch(arguments: tuple) -> None:
    """`padding` is what equals "same"."""
    layer, plain = OrthogonalConv2d(2, 4, *arguments), OrthogonalConv2d(2, 4, arguments[0], arguments[1])
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(1, 2, 6, 8)
    assert torch.equal(layer(x), plain(x))
    assert layer(x).shape == nn.Conv2d(2, 4, *arguments)(x).shape


def test_device_and_precision_in_the_constructor() -> None:
    for made in (
        OrthogonalConv2d(2, 4, 3, 1, "same", 1, 1, True, "zeros", None, torch.float64),
        OrthogonalConv1d(2, 4, 3, device="cpu", dtype=torch.float64),
        OrthogonalConvTranspose2d(2, 4, 3, device="cpu", dtype=torch.float64),
        OrthogonalLinear(2, 4, device="cpu", dtype=torch.float64),
        NormalizedLinear(2, 4, True, None, torch.float64),
    ):
        assert {parameter.dtype for parameter in made.parameters()} == {torch.float64}
    assert OrthogonalConv2d(2, 4, 3, device="meta").weight.is_meta
    with pytest.raises(InputError, match=r"dtype must be a floating-point type, .* not torch.complex64"):
        OrthogonalConv2d(2, 4, 3, dtype=torch.complex64)


def test_a_zero_kernel_is_the_zero_map_and_can_be_trained() -> None:
    layer = OrthogonalConv2d(2, 2, 3)
    nn.init.zeros_(layer.weight)
    x = torch.randn(1, 2, 6, 6)
    assert torch.equal(layer.eval()(x), torch.zeros_like(x))
    layer.train()(x).square().sum().backward()
    assert torch.isfinite(layer.weight.grad).all()
    assert largest_singular_value(dense(layer.eval(), (2, 6, 6), torch.float32)) == 0
