"""`freeze`: it computes the same function, refuses modules without a bound, and saves and loads files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from layer_cases import BUFFERS, PARAMETERS, randomize
from safetensors.torch import load_file
from torch import Tensor, nn

from lotnet import (
    AveragePool,
    Centering,
    ConvexResidual,
    FrozenModel,
    Householder,
    InvertibleDownsampling,
    MaxMin,
    MaxPool,
    Normalize,
    NormalizedLinear,
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalLinear,
    freeze,
)
from lotnet.certification import certify
from lotnet.errors import InputError
from lotnet.frozen.convolution import FrozenDense, FrozenKernel, FrozenSeries, FrozenSpectrum
from lotnet.frozen.model import FORMAT
from lotnet.parametrizations import PARAMETRIZATIONS

FORMS = {
    "lot": "spectrum",
    "cayley": "spectrum",
    "soc": "series",
    "bcop": "kernel",
    "eco": "kernel",
    "spectral": "kernel",
    "rko": "kernel",
}


def everything(name: str = "lot", side: int = 8) -> nn.Sequential:
    """A model with every layer type, at random weights."""

    def convolution(*args: int, **kwargs: str) -> OrthogonalConv2d:
        return OrthogonalConv2d(*args, parametrization=name, **kwargs)

    inner = nn.Sequential(convolution(8, 8, 3), Centering(8), Householder(8, order=2))
    model = nn.Sequential(
        Normalize([0.4, 0.5, 0.6], 0.25),
        convolution(3, 8, 3),
        MaxMin(),
        ConvexResidual(inner, 0.3, trainable=True),
        nn.Identity(),
        nn.Sequential(convolution(8, 8, 2, 2), Householder(8)),
        ConvexResidual(convolution(8, 12, 1), shortcut=convolution(8, 12, 1)),
        MaxPool(1),
        AveragePool(2),
        nn.Flatten(),
        OrthogonalLinear(12 * (side // 4) ** 2, 10, parametrization=name),
        NormalizedLinear(10, 4),
    )
    randomize(model)
    with torch.no_grad():
        inner[1].running_mean.normal_(generator=torch.Generator().manual_seed(1))
    return model.eval()


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    return everything()


@pytest.fixture(scope="module")
def frozen(model: nn.Sequential) -> FrozenModel:
    return freeze(model, 8)


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_equals_evaluation(name: str, dtype: torch.dtype) -> None:
    model = everything(name)
    x = torch.rand(5, 3, 8, 8)
    expected = model(x)
    found = freeze(model, 8, dtype)(x.to(dtype))
    assert found.dtype == dtype
    error = (found - expected).norm(dim=1)
    assert (error <= 1e-4 * x.flatten(1).norm(dim=1)).all()


def test_a_frozen_model_has_no_parameters_and_no_parametrizations(frozen: FrozenModel) -> None:
    assert not list(frozen.parameters())
    assert not any(hasattr(module, "parametrization") for module in frozen.modules())
    assert frozen.input_shape == (3, 8, 8)
    assert not frozen(torch.rand(1, 3, 8, 8)).requires_grad


def test_freezing_leaves_the_model_alone(model: nn.Sequential) -> None:
    model.train()
    model[3].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    freeze(model, 8)
    assert model.training and not model[3].training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.eval()


@pytest.mark.parametrize("size", ((1, 1), (2, 2), (3, 5), (4, 4), (7, 9), (16, 16)))
def test_convolutions_freeze_at_any_size(size: tuple[int, int]) -> None:
    layers = [OrthogonalConv2d(2, 4, 3), MaxMin(), OrthogonalConv2d(4, 4, 3), AveragePool(1)]
    model = randomize(nn.Sequential(*layers)).eval()
    frozen = freeze(model, size)
    x = torch.rand(2, 2, *size)
    assert (frozen(x) - model(x)).norm() <= 1e-4 * x.norm()
    assert frozen.lipschitz_bound() <= 1 + 1e-6


def test_image_size_in_three_spellings(model: nn.Sequential, frozen: FrozenModel) -> None:
    for size in ((8, 8), (3, 8, 8), [3, 8, 8]):
        assert freeze(model, size).checksum() == frozen.checksum()
    with pytest.raises(InputError, match=r"pass image_size as \(channels, height, width\)"):
        freeze(nn.Sequential(MaxMin()), 8)
    for first in (nn.Flatten(), InvertibleDownsampling(2)):  # later layers do not determine the image size
        with pytest.raises(InputError, match=r"pass image_size as \(channels, height, width\)"):
            freeze(nn.Sequential(first, OrthogonalConv2d(12, 12, 3)), 8)
    for size in ("8", 8.0, -8, (0, 8)):
        with pytest.raises(InputError, match=r"pass whole numbers of at least 1"):
            freeze(model, size)
    assert freeze(nn.Sequential(MaxMin()), (2, 8, 8)).input_shape == (2, 8, 8)


# --- what it refuses


class OwnResidual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = OrthogonalConv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Doubling(OrthogonalConv2d):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class OwnSequence(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class OwnIdentity(nn.Identity):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


@pytest.mark.parametrize(
    ("foreign", "kind"),
    (
        (OwnResidual(), "OwnResidual"),
        (Doubling(3, 3, 3), "Doubling"),
        (OwnSequence(OrthogonalConv2d(3, 3, 3)), "OwnSequence"),
        (OwnIdentity(), "OwnIdentity"),
        (nn.Unflatten(1, (3, 1)), "Unflatten"),
    ),
)
def test_foreign_modules_are_refused_by_name(foreign: nn.Module, kind: str) -> None:
    sentence = f"model.1 is a {kind}, for which lotnet has no proved bound: build the model from nn.Sequential"
    with pytest.raises(InputError, match=sentence):
        freeze(nn.Sequential(OrthogonalConv2d(3, 3, 3), foreign), 8)
    with pytest.raises(InputError, match=f"residual block is a {kind}"):
        freeze(nn.Sequential(OrthogonalConv2d(3, 3, 3), ConvexResidual(foreign)), 8)


@pytest.mark.parametrize(
    ("foreign", "replacement"),
    (
        (nn.Conv2d(3, 3, 3), "use OrthogonalConv2d"),
        (nn.Linear(3, 3), "use OrthogonalLinear"),
        (nn.Flatten(2), "use nn.Flatten()"),
        (nn.Flatten(1, 2), "use nn.Flatten()"),
        (nn.GELU(), "use MaxMin, Householder"),
        (nn.SiLU(), "use MaxMin, Householder"),
        (nn.Mish(), "use MaxMin, Householder"),
        (nn.ReLU(inplace=True), "without inplace=True"),
        (nn.LeakyReLU(1.1), "slope from -1 to 1"),
        (nn.Hardtanh(0.1, 1.0), "interval that contains zero"),
        (nn.BatchNorm2d(3), "use Centering"),
        (nn.LayerNorm((3, 8, 8)), "use LayerCentering"),
        (nn.MaxPool2d(3, 2), "MaxPool(size)"),
        (nn.MaxPool2d(2, padding=1), "MaxPool(size)"),
        (nn.MaxPool2d((2, 1)), "MaxPool(size)"),
        (nn.AvgPool2d(2), "use AveragePool"),
        (nn.AdaptiveAvgPool2d(1), "use GlobalAveragePool"),
        (nn.PReLU(3, init=-1.5), "clamp its slopes to [-1, 1]"),
        (nn.PReLU(2), "one for each channel"),
        (nn.Conv1d(3, 3, 3), "use OrthogonalConv1d"),
        (nn.AvgPool1d(2), "use AveragePool"),
        (nn.MaxPool1d(2), "disjoint square ones"),  # on images
        (nn.MultiheadAttention(4, 2), "multiplies parts of its input"),
        (nn.Softmax(1), "leave it out"),
        (nn.Hardshrink(), "it may jump"),
        (nn.Upsample(scale_factor=2), "InvertibleUpsampling"),
        (nn.ReflectionPad2d(1), "use nn.ZeroPad2d"),
        (nn.ZeroPad2d(-1), "borders of zero or more"),
        (nn.Conv3d(3, 3, 3), "images and sequences only"),
    ),
)
def test_a_refusal_names_the_replacement(foreign: nn.Module, replacement: str) -> None:
    name = type(foreign).__name__
    with pytest.raises(InputError, match=f"model.0 is a {name}, for which lotnet has no proved bound: ") as caught:
        freeze(nn.Sequential(foreign), (3, 8, 8))
    assert replacement in str(caught.value) and "\n" not in str(caught.value)


def test_plain_modules_that_are_frozen_as_they_are() -> None:
    layers = (nn.Dropout(0.5), nn.Dropout2d(0.3), nn.PixelUnshuffle(2), nn.ReLU(), nn.PixelShuffle(2), nn.MaxPool2d(2))
    model = nn.Sequential(OrthogonalConv2d(3, 3, 3), *layers, nn.MaxPool2d((2, 2), stride=(2, 2))).eval()
    frozen = freeze(model, 8)
    assert len(list(frozen)) == 6, "Dropout is nothing in a frozen model"
    x = torch.rand(2, 3, 8, 8)
    assert torch.allclose(frozen(x), model(x), atol=1e-5)
    with pytest.raises(InputError, match=r"model.0 \(PixelShuffle\) does not take inputs of shape \(3, 8, 8\)"):
        freeze(nn.Sequential(nn.PixelShuffle(2)), (3, 8, 8))


def test_plain_modules_that_move_entries_of_images_and_sequences() -> None:
    images = nn.Sequential(nn.ZeroPad2d((1, 2, 0, 3)), nn.ChannelShuffle(2), OrthogonalConv2d(4, 4, 3, stride=2))
    sequences = nn.Sequential(nn.ZeroPad1d((0, 3)), nn.ChannelShuffle(2), nn.MaxPool1d(2), OrthogonalConv1d(4, 2, 3))
    for model, shape in ((images, (4, 5, 7)), (sequences, (4, 5))):
        frozen = freeze(model.eval(), shape)
        x = torch.rand(2, *shape)
        assert torch.allclose(frozen(x), model(x), atol=1e-5)
        assert float(frozen.lipschitz_bound()) < 1 + 1e-6


@pytest.mark.parametrize("slopes", (1, 3))
def test_trained_slopes_are_frozen_as_they_are(slopes: int) -> None:
    model = nn.Sequential(OrthogonalConv2d(3, 3, 3), nn.PReLU(slopes))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([-1.0, 0.4, 0.9])[:slopes])
    x = torch.randn(2, 3, 5, 5)
    assert torch.allclose(freeze(model.eval(), 5)(x), model(x), atol=1e-5)


def test_a_subclass_that_keeps_the_forward_is_not_foreign() -> None:
    class Renamed(OrthogonalConv2d):
        """Nothing changed."""

    assert freeze(nn.Sequential(Renamed(3, 3, 3)), 8).lipschitz_bound() <= 1 + 1e-6


@pytest.mark.parametrize(
    ("layers", "shape"),
    (
        ((MaxMin(), nn.Flatten(), OrthogonalLinear(64, 3)), (3, 4, 4)),  # 3 channels would broadcast to 4
        ((Centering(4), nn.Flatten(), OrthogonalLinear(64, 3)), (1, 4, 4)),
        ((Householder(8), nn.Flatten(), OrthogonalLinear(128, 3)), (2, 4, 4)),
        ((Normalize([0.0] * 3, 0.5), nn.Flatten(), OrthogonalLinear(48, 3)), (1, 4, 4)),
        ((OrthogonalLinear(4, 3),), (3, 4, 4)),  # not flattened, but the last side happens to fit
        ((NormalizedLinear(5, 3),), (3, 4, 4)),
        ((InvertibleDownsampling(2),), (1, 5, 5)),
        ((MaxPool(5),), (1, 4, 4)),
    ),
)
def test_broadcasting_that_no_bound_covers_is_refused(layers: tuple[nn.Module, ...], shape: tuple[int, ...]) -> None:
    model = nn.Sequential(*layers)
    sentence = r"does not take inputs of shape|not a tensor of shape"
    with pytest.raises(InputError, match=sentence):
        freeze(model, shape)
    with pytest.raises((InputError, RuntimeError)):  # the model itself refuses them too
        model.eval()(torch.zeros(1, *shape))


def test_invalid_precisions_are_refused(model: nn.Sequential, frozen: FrozenModel) -> None:
    with pytest.raises(InputError, match=r"float32 or float64, not torch\.float16"):
        freeze(model, 8, torch.float16)
    with pytest.raises(InputError, match="widened to float64 only"):
        frozen.astype(torch.float64).astype(torch.float32)


# --- forms


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_the_form_is_recorded(name: str, tmp_path: Path) -> None:
    freeze(nn.Sequential(OrthogonalConv2d(3, 4, 3, parametrization=name)), 8).save(tmp_path)
    stages = json.loads((tmp_path / "config.json").read_text())["stages"]
    assert [stage["kind"] for stage in stages] == [FORMS[name]]
    assert (stages[0]["settings"]["height"], stages[0]["settings"]["width"]) == (8, 8)


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
def test_the_form_is_a_function_of_the_shape_alone(padding_mode: str) -> None:
    def form(side: int, seed: int, channels: int) -> type:
        layer = OrthogonalConv2d(channels, channels, 3, padding_mode=padding_mode)
        return type(randomize(layer, seed).frozen((channels, side, side), torch.float32))

    forms = {side: {form(side, seed, channels) for seed in (0, 1) for channels in (2, 5)} for side in range(3, 9)}
    assert all(len(kinds) == 1 for kinds in forms.values())
    assert forms[8] == {FrozenSpectrum}
    # The dense matrix has (h w)^2 entries for a pair of channels, the real blocks four for each frequency.
    padded = 2 if padding_mode == "zeros" else 0
    for side, kinds in forms.items():
        frequencies = (side + padded) * ((side + padded) // 2 + 1)
        assert kinds == {FrozenDense if side**4 <= 4 * frequencies else FrozenSpectrum}


@pytest.mark.parametrize("padding_mode", ("zeros", "circular"))
@pytest.mark.parametrize(("size", "k"), (((1, 1), 3), ((2, 2), 3), ((2, 2), 2), ((1, 2), 3), ((2, 1), 5), ((2, 3), 2)))
def test_the_dense_matrix_is_the_operator(size: tuple[int, int], k: int, padding_mode: str) -> None:
    if padding_mode == "circular" and k > min(size):
        pytest.skip("the kernel does not fit")
    layer = randomize(OrthogonalConv2d(3, 5, k, padding_mode=padding_mode, bias=False), 0)
    frozen = layer.frozen((3, *size), torch.float64)
    x = torch.randn(4, 3, *size, dtype=torch.float64)
    assert (frozen(x) - layer.frozen_operator(*size).apply(x)).abs().max() < 1e-13


def test_forms_of_small_images_and_1x1_kernels() -> None:
    assert isinstance(OrthogonalConv2d(2, 2, 3).frozen((2, 2, 2), torch.float32), FrozenDense)
    assert isinstance(OrthogonalConv2d(2, 2, 1).frozen((2, 8, 8), torch.float32), FrozenKernel)
    series = OrthogonalConv2d(2, 2, 3, parametrization="soc").frozen((2, 8, 8), torch.float32)
    assert isinstance(series, FrozenSeries)


# --- precision and identity of the numbers


def test_widening_keeps_the_numbers(frozen: FrozenModel) -> None:
    wide = frozen.astype(torch.float64)
    assert wide.precision == torch.float64
    assert wide.checksum() == frozen.checksum() and wide.is_intact()
    for name, tensor in frozen.state_dict().items():
        assert torch.equal(tensor.double(), wide.state_dict()[name])
    x = torch.rand(2, 3, 8, 8)
    assert torch.allclose(wide(x.double()).float(), frozen(x), atol=1e-4)


def test_changed_tensors_are_noticed(model: nn.Sequential) -> None:
    frozen = freeze(model, 8)
    assert frozen.is_intact()
    next(frozen.buffers()).data[0] += 1e-6
    assert not frozen.is_intact()
    with pytest.raises(InputError, match="changed after freezing: freeze it again"):
        certify(frozen, torch.rand(1, 3, 8, 8))


def test_a_bound_is_proved_again_when_a_tensor_changes() -> None:
    frozen = freeze(nn.Sequential(OrthogonalConv2d(2, 2, 3)), 8)
    before = frozen.lipschitz_bound()
    frozen.stages[0].real.mul_(2)
    frozen.stages[0].imaginary.mul_(2)
    assert float(frozen.lipschitz_bound()) == pytest.approx(2 * float(before))


def test_torch_conversions_after_use() -> None:
    frozen = freeze(randomize(nn.Sequential(OrthogonalConv2d(2, 2, 3))), 8)
    x = torch.rand(1, 2, 8, 8)
    y = frozen(x)
    assert torch.allclose(frozen.double()(x.double()).float(), y, atol=1e-5)
    other = freeze(randomize(nn.Sequential(OrthogonalConv2d(2, 2, 3)), seed=3), 8, torch.float64)
    frozen.load_state_dict(other.state_dict())
    assert torch.allclose(frozen(x.double()), other(x.double()))


INFERENCE_FIRST = """
import torch
from torch import nn
from lotnet import MaxMin, OrthogonalConv2d, OrthogonalLinear, freeze
from lotnet.certification import certify

model = nn.Sequential(OrthogonalConv2d(3, 4, 3), MaxMin(), nn.Flatten(), OrthogonalLinear(144, 3)).eval()
x = torch.rand(2, 3, 6, 6)
with torch.inference_mode():
    y = model(x)
    assert torch.allclose(freeze(model, 6)(x), y, atol=1e-4)
    assert len(certify(freeze(model, 6), x)) == 2
frozen = freeze(model, 6)
"""


def run_in_a_fresh_process(program: str) -> None:
    """Constants are created once in a process; the mode they are created in must not matter."""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_everything_works_in_inference_mode() -> None:
    run_in_a_fresh_process(INFERENCE_FIRST)


@pytest.mark.parametrize("function", ("frozen", "model", "model.train()"))
def test_gradients_after_inference_mode(function: str) -> None:
    run_in_a_fresh_process(f"{INFERENCE_FIRST}\n{function}(x.requires_grad_()).sum().backward()")


def test_state_is_what_is_documented(model: nn.Sequential) -> None:
    model(torch.rand(1, 3, 8, 8))
    assert {name.rsplit(".", 1)[-1] for name, _ in model.named_parameters()} <= PARAMETERS
    assert {name.rsplit(".", 1)[-1] for name in model.state_dict()} <= PARAMETERS | BUFFERS
    other = everything()
    randomize(other, seed=4)
    other.load_state_dict(model.state_dict())
    x = torch.rand(1, 3, 8, 8)
    assert torch.equal(other(x), model(x))


# --- files


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_saved_and_loaded_bit_for_bit(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    frozen = freeze(everything(name), 8, dtype)
    frozen.save(tmp_path / "model")
    loaded = FrozenModel.load(tmp_path / "model")
    x = torch.rand(3, 3, 8, 8, dtype=dtype)
    assert torch.equal(loaded(x), frozen(x))
    assert float(loaded.lipschitz_bound()) == float(frozen.lipschitz_bound())
    assert loaded.precision == dtype and loaded.settings == frozen.settings


def test_the_files_are_safetensors_and_json_and_nothing_else(frozen: FrozenModel, tmp_path: Path) -> None:
    frozen.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["format"] == FORMAT and config["precision"] == "float32"
    assert set(load_file(tmp_path / "model.safetensors")) == set(frozen.state_dict())
    header = (tmp_path / "model.safetensors").read_bytes()[8:]
    assert header.startswith(b"{") and not header.startswith(b"PK") and b"__reduce__" not in header


@pytest.fixture(scope="module")
def stored(frozen: FrozenModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "model"
    frozen.save(folder)
    return folder


def test_a_truncated_file_is_refused(stored: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"is damaged: write it again with `lotnet certify RUN`"):
        FrozenModel.load(folder)


@pytest.mark.parametrize(
    "content",
    (b"\xff\xfe\x00", b"{", b"[]", b'{"format": %d}' % FORMAT, b'{"format": %d, "precision": "int"}' % FORMAT),
)
def test_a_damaged_config_is_refused(stored: Path, tmp_path: Path, content: bytes) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    (folder / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=r"is damaged: write it again with `lotnet certify RUN`"):
        FrozenModel.load(folder)


def test_one_flipped_bit_of_a_tensor_is_noticed(stored: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="is not the one that was frozen: freeze it again"):
        FrozenModel.load(folder)


def test_one_changed_setting_of_a_stage_is_noticed(stored: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    config["stages"][0]["settings"]["height"] = 1  # would make the bound of the mean too small
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="is not the one that was frozen"):
        FrozenModel.load(folder)


@pytest.mark.parametrize("change", [{"classes": ["b", "a"]}, {"data": "other"}])
def test_changed_class_and_data_names_are_noticed(tmp_path: Path, change: dict[str, object]) -> None:
    model = freeze(nn.Sequential(nn.Flatten(), OrthogonalLinear(4, 2)), (1, 2, 2))
    model.name_classes(["a", "b"], "one")
    model.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["settings"] |= change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="is not the one that was frozen"):
        FrozenModel.load(tmp_path)
    del config["sha256"]  # format 2, which had no digest of the names, still opens
    (tmp_path / "config.json").write_text(json.dumps(config | {"format": 2}))
    assert FrozenModel.load(tmp_path).settings.items() >= change.items()


def test_two_classes_of_one_name_are_refused(tmp_path: Path) -> None:
    """A prediction has its logits by class name, so one of the two classes would be lost."""
    model = freeze(nn.Sequential(nn.Flatten(), OrthogonalLinear(4, 3)), (1, 2, 2))
    with pytest.raises(InputError, match="two classes have the name 'cat': rename one"):
        model.name_classes(["cat", "dog", "cat"])
    assert model.spec.classes == ()
    model._set(classes=["cat", "dog", "cat"])  # as an earlier version stored them
    model.save(tmp_path)
    with pytest.raises(InputError, match="has two classes of the name 'cat': save it again with another name"):
        FrozenModel.load(tmp_path)


def test_another_format_and_a_missing_folder_are_refused(stored: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(stored, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"format": 1}))
    with pytest.raises(InputError, match=f"has format 1, this lotnet reads 2 and {FORMAT}"):
        FrozenModel.load(folder)
    for place in (tmp_path / "nothing", folder / "config.json"):
        with pytest.raises(InputError, match=r"holds no frozen model: `lotnet certify RUN` writes one"):
            FrozenModel.load(place)
