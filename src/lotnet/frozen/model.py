"""A frozen model: a tree of frozen modules with the shape it was frozen for, saved and loaded without pickle."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from lotnet.errors import InputError
from lotnet.files import atomic_write
from lotnet.frozen.activations import FrozenGroupSort, FrozenHardtanh, FrozenLeakyReLU
from lotnet.frozen.base import FrozenModule, FrozenSequential, Shape
from lotnet.frozen.branches import FrozenConcatenation, FrozenResidual
from lotnet.frozen.centering import FrozenLayerCentering
from lotnet.frozen.convolution import FrozenDense, FrozenKernel, FrozenSeries, FrozenSpectrum
from lotnet.frozen.direct_sum import FrozenDilated, FrozenGrouped
from lotnet.frozen.moves import (
    FrozenChannelShift,
    FrozenChannelShuffle,
    FrozenFromColumn,
    FrozenToColumn,
    FrozenUpsampling,
    FrozenZeroPad,
)
from lotnet.frozen.pointwise import (
    FrozenAveragePool,
    FrozenDownsampling,
    FrozenFlatten,
    FrozenHouseholder,
    FrozenLinear,
    FrozenMaxMin,
    FrozenMaxPool,
    FrozenNormalize,
    FrozenShift,
)
from lotnet.frozen.pooling import FrozenGlobalAveragePool, FrozenNormPool
from lotnet.records import Between, convert, parse_json

FORMAT = 3
_FORMATS = (2, FORMAT)
"""Format 2 has no digest of config.json, so a changed class name was not noticed."""
_HASHED_AT_ONCE = 2**15  # numbers, which fit in a processor's cache as float64
_DEEPEST = 32  # levels of modules within modules; a residual network has three

FROZEN: dict[str, type[FrozenModule]] = {
    "sequential": FrozenSequential,
    "residual": FrozenResidual,
    "spectrum": FrozenSpectrum,
    "dense": FrozenDense,
    "kernel": FrozenKernel,
    "series": FrozenSeries,
    "normalize": FrozenNormalize,
    "shift": FrozenShift,
    "householder": FrozenHouseholder,
    "average_pool": FrozenAveragePool,
    "linear": FrozenLinear,
    "max_min": FrozenMaxMin,
    "max_pool": FrozenMaxPool,
    "downsampling": FrozenDownsampling,
    "flatten": FrozenFlatten,
    "group_sort": FrozenGroupSort,
    "leaky_relu": FrozenLeakyReLU,
    "hardtanh": FrozenHardtanh,
    "global_average_pool": FrozenGlobalAveragePool,
    "norm_pool": FrozenNormPool,
    "layer_centering": FrozenLayerCentering,
    "concatenation": FrozenConcatenation,
    "channel_shift": FrozenChannelShift,
    "channel_shuffle": FrozenChannelShuffle,
    "zero_pad": FrozenZeroPad,
    "upsampling": FrozenUpsampling,
    "to_column": FrozenToColumn,
    "from_column": FrozenFromColumn,
    "grouped": FrozenGrouped,
    "dilated": FrozenDilated,
}
_KIND = {form: name for name, form in FROZEN.items()}


@dataclass(frozen=True)
class ModelSpec:
    """Settings of a model. The checksum covers its stages, and the digest of `config.json` these settings too."""

    input_shape: tuple[Annotated[int, Between(1, 2**20)], ...]
    checksum: str = ""
    classes: tuple[str, ...] = ()
    data: str = ""


class FrozenModel(FrozenSequential):
    """A frozen model: a sequence of frozen modules. `spec` holds the input's shape, the checksum and the class names.

    Certificates are about the float64 program `astype(torch.float64)`: the same stored numbers, computed in float64.

    >>> from lotnet import OrthogonalConv2d, freeze
    >>> model = freeze(torch.nn.Sequential(OrthogonalConv2d(3, 8, 3)), image_size=16)
    >>> model.astype(torch.float64).checksum() == model.checksum()
    True
    """

    Spec = ModelSpec
    spec: ModelSpec

    @property
    def input_shape(self) -> Shape:
        return self.spec.input_shape

    def name_classes(self, classes: Sequence[str], data: str = "") -> None:
        """Store the names of the classes, and of the data set if it is given. The checksum does not cover them.

        >>> from lotnet import OrthogonalLinear, freeze
        >>> model = freeze(torch.nn.Sequential(torch.nn.Flatten(), OrthogonalLinear(4, 2)), (1, 2, 2))
        >>> model.name_classes(["cat", "dog"])
        >>> model.spec.classes
        ('cat', 'dog')
        """
        outputs = self.output_shape(self.input_shape)[0]
        if len(classes) != outputs:
            raise InputError(f"the model has {outputs} outputs, not {len(classes)}: give one class name for each")
        if (twice := _repeated(classes)) is not None:
            raise InputError(f"two classes have the name {twice!r}: rename one of them")
        self._set(classes=list(classes), data=data or self.spec.data)

    def _set(self, **changes: Any) -> None:
        """Change settings. Those that are empty are left out, as in files of earlier versions."""
        self.settings = {name: value for name, value in (self.settings | changes).items() if value}
        self.spec = convert(ModelSpec, self.settings)

    def checksum(self) -> str:
        """SHA-256 of the stages, their settings and their numbers. A float32 model and its float64 copy agree."""
        digest = hashlib.sha256(json.dumps([_describe(stage) for stage in self]).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name}{list(tensor.shape)}".encode())
            for part in tensor.cpu().contiguous().view(-1).split(_HASHED_AT_ONCE):
                digest.update(part.double().numpy())
        return digest.hexdigest()

    def is_intact(self) -> bool:
        """Whether stages and tensors are unchanged since freezing, and the input's shape fits them."""
        return self.checksum() == self.spec.checksum and self.fits(self.input_shape)

    def astype(self, dtype: torch.dtype) -> "FrozenModel":
        """The same stored numbers, computed in `dtype`.

        If the model has that dtype already, return the model itself, with its cached bounds.
        """
        if dtype == self.precision:
            return self
        if dtype != torch.float64:
            raise InputError("a frozen model can be widened to float64 only: freeze the model again for less precision")
        stages = [_build(_describe(stage), stage.state_dict(), "", dtype) for stage in self]
        model = FrozenModel(dtype, dict(self.settings), {}, *stages)
        if self._of_float64 is not None and self._of_float64[0] == model.checksum():
            model.adopt(self._of_float64[1])
        return model

    _of_float64: tuple[str, Mapping[str, float]] | None = None
    """A checksum, and the proofs of the float64 program that has it."""

    def adopt_for_float64(self, checksum: str, proofs: Mapping[str, float]) -> None:
        """Take over proofs of a float64 program with this checksum, for every `astype(torch.float64)` that has it."""
        self._of_float64 = (checksum, dict(proofs))

    def save(self, folder: str | Path) -> None:
        """Write `model.safetensors` and `config.json` into `folder`, each atomically."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "model.safetensors", save(dict(self.state_dict())))
        config = {
            "format": FORMAT,
            "precision": str(self.precision).removeprefix("torch."),
            "settings": self.settings,
            "stages": [_describe(stage) for stage in self],
        }
        content = json.dumps(config | {"sha256": _digest(config)}, indent=1)
        atomic_write(folder / "config.json", content.encode())

    @staticmethod
    def load(folder: str | Path) -> "FrozenModel":
        folder = Path(folder)
        try:
            config = parse_json((folder / "config.json").read_text())
            state = load_file(folder / "model.safetensors")
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{folder} holds no frozen model: `lotnet certify RUN` writes one to RUN/model") from None
        except OSError as error:
            raise InputError(f"cannot read the frozen model in {folder}: {error.strerror or error}") from None
        except (SafetensorError, ValueError):
            raise _damaged(folder) from None
        if not isinstance(config, dict):
            raise _damaged(folder)
        if config.get("format") not in _FORMATS:
            known = " and ".join(map(str, _FORMATS))
            raise InputError(f"{folder} has format {config.get('format')}, this lotnet reads {known}: freeze it again")
        try:
            dtype = {"float32": torch.float32, "float64": torch.float64}[config["precision"]]
            stages = [_build(spec, state, f"stages.{n}.", dtype) for n, spec in enumerate(config["stages"])]
            model = FrozenModel(dtype, config["settings"], {}, *stages)
            whole = config["format"] == 2 or config.get("sha256") == _digest(config)
            intact = whole and len(model.input_shape) in (2, 3) and model.is_intact()
            named = intact and len(model.spec.classes) in (0, *model.output_shape(model.input_shape)[:1])
        except InputError as error:
            raise _damaged(folder, f" ({error})") from None
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError):
            raise _damaged(folder) from None
        if not intact:
            raise InputError(f"the model in {folder} is not the one that was frozen: freeze it again")
        if not named:
            raise _damaged(folder)
        if (twice := _repeated(model.spec.classes)) is not None:
            raise InputError(
                f"the model in {folder} has two classes of the name {twice!r}: save it again with another name for one"
            )
        return model


def assemble(stages: list[FrozenModule], input_shape: Shape, dtype: torch.dtype) -> FrozenModel:
    """Make a model of these stages and store its checksum. Refuses stages that do not fit together."""
    for stage in stages:
        if type(stage) not in _KIND:
            raise InputError(f"a {type(stage).__name__} is no frozen module: use those of lotnet.frozen.FROZEN")
        if stage.precision != dtype:
            raise InputError(f"a stage is stored in {stage.precision}, not in {dtype}: freeze all in one precision")
    model = FrozenModel(dtype, {"input_shape": list(input_shape)}, {}, *stages)
    if not model.fits(tuple(input_shape)):
        raise InputError(f"the stages do not fit together on inputs of shape {tuple(input_shape)}: freeze them for it")
    model._set(checksum=model.checksum())
    return model


def _repeated(names: Sequence[str]) -> str | None:
    """A name that occurs more than once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _digest(config: dict[str, Any]) -> str:
    """SHA-256 of the content of config.json beside the digest itself: stages, input shape, class names and data set."""
    rest = {key: value for key, value in config.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _damaged(folder: Path, reason: str = "") -> InputError:
    return InputError(f"the frozen model in {folder} is damaged: write it again with `lotnet certify RUN`{reason}")


def largest_input_norm(shape: Shape) -> float:
    """Upper bound of the l2 norm of an image with pixels in [0, 1]."""
    return math.nextafter(math.sqrt(math.prod(shape)), math.inf)


def _describe(module: FrozenModule) -> dict[str, Any]:
    return {
        "kind": _KIND[type(module)],
        "settings": module.settings,
        "tensors": sorted(dict(module.named_buffers(recurse=False))),
        "children": [_describe(child) for child in module.parts()],
    }


def _build(
    spec: dict[str, Any], state: dict[str, Tensor], prefix: str, dtype: torch.dtype, depth: int = 0
) -> FrozenModule:
    form = FROZEN[spec["kind"]]
    if depth > _DEEPEST:
        raise InputError(f"its modules are nested more than {_DEEPEST} levels deep")
    pairs = zip(spec["children"], form.part_names(len(spec["children"])), strict=True)
    children = [_build(child, state, f"{prefix}{name}.", dtype, depth + 1) for child, name in pairs]
    tensors = {name: state[prefix + name] for name in spec["tensors"]}
    if any(tensor.dtype not in (torch.float32, torch.float64) for tensor in tensors.values()):
        raise InputError(f"a tensor of {prefix} is stored in neither float32 nor float64")
    return form(dtype, spec["settings"], tensors, *children)


def require_frozen(model: object, participle: str) -> None:
    """Refuse what is not frozen. `participle` says what was to be done with it, as in "certified"."""
    if not isinstance(model, FrozenModel):
        name = type(model).__name__
        raise InputError(f"a {name} cannot be {participle}: freeze it first with lotnet.freeze(model, image_size)")
