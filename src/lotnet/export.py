"""A frozen model as one file that needs no lotnet: ONNX, or a PyTorch archive.

Invariants:

* the input is `images`, a batch of any size with pixels in [0, 1]; the outputs are `logits` and a radius. The
  normalisation is part of the file;
* a float32 file has `plain_radius`, the standard certificate. It proves nothing: float32 rounding is
  not subtracted, and a runtime may compute convolutions by algorithms without a known bound of their rounding;
* a float64 file has `radius`, claim A of `lotnet.certification`. It subtracts the a-priori error bound of the whole
  graph from the margin. That bound holds in any order of summation, hence for any runtime that adds and multiplies in
  IEEE double precision;
* either radius is 0 for an image with a NaN pixel, or a pixel outside of [0, 1], because the bounds do not cover it;
* a file is written only if, loaded again and run, it agrees with the model it was made from;
* a file names no folder of the machine that wrote it.
"""

import copy
import io
import json
import logging
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lotnet.certification.certificate import certified_radii, smallest_std  # the one place for these formulas
from lotnet.certification.rounding import Bounds, bounds
from lotnet.data import public_name
from lotnet.errors import InputError
from lotnet.export_cleaning import serialized, without_stack_traces
from lotnet.files import atomic_write
from lotnet.frozen.convolution import FrozenSpectrum
from lotnet.frozen.model import FrozenModel, require_frozen
from lotnet.frozen.pointwise import FrozenAveragePool
from lotnet.prediction import predict

Format = Literal["onnx", "torch"]
Precision = Literal["float32", "float64"]
Program = Callable[[Tensor], tuple[Tensor, Tensor]]

TOLERANCE = 1e-4
"""Largest allowed difference of logits and radii from PyTorch in float32; `DeployedModel.tolerance` has float64's."""

LARGEST = 2**31 - 2**24
"""Largest size of a model in bytes: ONNX files are protobuf, which is limited to 2 GiB."""

SUFFIX: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}

PRECISIONS: dict[Precision, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}

_OPSET = 20
_RANDOM_IMAGES = 50


@dataclass(frozen=True)
class ExportedModel:
    """An exported file, and the result of checking it against PyTorch."""

    path: Path
    metadata: dict[str, str]
    checked: int
    """Number of images in the check, including random ones."""
    difference: float
    """Largest difference from PyTorch, over logits and radii."""
    predicted: int = 0
    """Number of real images on which the file was compared with `lotnet.predict`: all labels are equal."""


def export(
    model: FrozenModel,
    path: str | Path,
    to: Format = "onnx",
    precision: Precision = "float32",
    images: Tensor | None = None,
) -> ExportedModel:
    """Export a frozen model to the file `path`.

    The file is checked on random images and, if given, on `images` (b, c, h, w) with pixels in [0, 1], on which its
    labels must also be those of `lotnet.predict`.
    """
    require_frozen(model, "exported")
    if not model.is_intact():
        raise InputError("the model's tensors were changed after freezing: freeze it again")
    for value, choices in ((to, SUFFIX), (precision, PRECISIONS)):
        if value not in choices:
            raise InputError(f"there is no export to {value}: choose one of {', '.join(choices)}")
    if images is not None and tuple(images.shape[1:]) != model.input_shape:
        raise InputError(
            f"the model reads {model.input_shape}, and the images to check it on are {tuple(images.shape)}: resize them"
        )
    if to == "onnx":
        _onnx_runtime()  # before the work, not after it
    deployed = DeployedModel(model, precision)
    metadata = _metadata(model, deployed, precision)
    examples = torch.rand(_RANDOM_IMAGES, *model.input_shape, generator=torch.Generator().manual_seed(0))
    if images is not None:
        examples = torch.cat((examples, images.float().cpu()))
    examples = examples.to(deployed.precision)
    try:
        with torch.no_grad():
            program = torch.export.export(deployed, (examples[:2],), dynamic_shapes=({0: torch.export.Dim("batch")},))
        content, run = _WRITERS[to](without_stack_traces(program), metadata, deployed.output)
    except InputError:
        raise
    except Exception as error:  # whatever the exporters of PyTorch and ONNX raise, by version
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        other = "torch" if to == "onnx" else "onnx"
        raise InputError(
            f"{path} was not written: PyTorch {torch.__version__} cannot export this model ({reason}): try --to {other}"
        ) from error
    difference = _largest_difference(deployed, run, examples)
    if not difference <= deployed.tolerance:  # also where it is NaN
        raise InputError(
            f"{path} was not written: loaded again, its outputs differ from PyTorch's by {difference:.1e}, more than "
            f"{deployed.tolerance:.0e}: please report this model's configuration"
        )
    real = examples[_RANDOM_IMAGES:]
    if len(real):
        _compare_labels(model, run, real, f"{path} was not written")
    atomic_write(Path(path), content)
    return ExportedModel(Path(path), metadata, len(examples), difference, len(real))


class DeployedModel(nn.Module):
    """The exported graph: from images to logits and a radius, with the invariants of this module."""

    pairs: Tensor
    logit_error: Tensor

    def __init__(self, model: FrozenModel, precision: Precision) -> None:
        super().__init__()
        double = model.astype(torch.float64).to("cpu")
        self.limits = bounds(double)
        if not self.limits.lipschitz < float("inf"):
            raise InputError("no Lipschitz bound of this model can be proved: train and freeze it again")
        self.precision = PRECISIONS[precision]
        self.proved = precision == "float64"
        self.output = "radius" if self.proved else "plain_radius"
        self.network = _portable(double if self.proved else model.astype(self.precision).to("cpu"))
        self.std = smallest_std(double)
        self.register_buffer("pairs", self.limits.pairs.to(self.precision))
        self.register_buffer("logit_error", self.limits.logit_error.to(self.precision))

    @property
    def tolerance(self) -> float:
        """In float64, a tenth of the error bound that is subtracted from every radius, at least.

        True rounding is far smaller. A graph that lost the subtraction, or computes some step in float32, exceeds it.
        """
        if not self.proved:
            return TOLERANCE
        of_logits = 2 * float(self.limits.logit_error.min() / self.limits.pairs.max().clamp_min(1))
        return (self.limits.feature_error + of_logits) / self.limits.lipschitz / 10

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(images)
        known = self.limits
        limits = Bounds(known.lipschitz, self.pairs, known.feature_error, self.logit_error, known.max_radius)
        with _TensorScalars(self.precision):
            _, _, plain, real, _ = certified_radii(logits, limits, self.std)
        radius = real if self.proved else plain
        pixels = images.flatten(1)
        # The error bounds hold for pixels in [0, 1]; with NaN both comparisons are false.
        known_there = ((pixels >= 0) & (pixels <= 1)).all(dim=1)
        return logits, torch.where(known_there, radius, torch.zeros_like(radius))


class _TensorScalars(TorchFunctionMode):
    """Turn Python floats into tensors: the ONNX exporter would round them to float32, and so 1 - 16u to 1."""

    _ARITHMETIC: ClassVar = {"add", "sub", "mul", "div", "rsub", "clamp"}

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "").strip("_") in self._ARITHMETIC:
            args = tuple(torch.tensor(a, dtype=self.dtype) if isinstance(a, float) else a for a in args)
        return func(*args, **(kwargs or {}))


class _WindowSums(nn.Module):
    """`FrozenAveragePool` written as sums: ONNX Runtime has no AveragePool in float64.

    n - 1 additions and a division by a rounded root, n at most k^2: fewer roundings than the k^2 + 2 that the frozen
    module's bound allows for.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        k = self.size
        if x.ndim == 3:
            b, c, n = x.shape
            return x[..., : n // k * k].reshape(b, c, n // k, k).sum(dim=3) / torch.tensor(math.sqrt(k), dtype=x.dtype)
        b, c, h, w = x.shape
        windows = x[..., : h // k * k, : w // k * k].reshape(b, c, h // k, k, w // k, k)
        return windows.sum(dim=(3, 5)) / k


def _portable(model: FrozenModel) -> nn.Module:
    """A copy that every runtime can compute: the same function in real arithmetic, with its caches filled."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, FrozenAveragePool):
            model.set_submodule(name, _WindowSums(module.spec.size))
    with torch.no_grad():
        model(torch.zeros(2, *model.input_shape, dtype=model.precision))
    for module in model.modules():
        if isinstance(module, FrozenSpectrum):
            del module.real, module.imaginary  # the cached blocks hold the same numbers
    return model


def _metadata(model: FrozenModel, deployed: DeployedModel, precision: Precision) -> dict[str, str]:
    claim = {
        "float32": "none: plain_radius trusts every layer to be exactly 1-Lipschitz and float32 to be exact; "
        "`lotnet certify` proves radii, and an export with --precision float64 carries claim A",
        "float64": "A: in real arithmetic the function of the stored tensors keeps its label for every input closer "
        "than radius (l2); all rounding of the logits and of the radius is subtracted, for any runtime that computes "
        "in IEEE double precision, in any order of summation",
    }[precision]
    classes = model.spec.classes or [str(n) for n in range(len(deployed.pairs))]
    return {
        "producer": "lotnet",
        "classes": json.dumps(list(classes)),
        "input_shape": json.dumps(list(model.input_shape)),
        "input_range": "[0, 1]",
        "precision": precision,
        "outputs": json.dumps(["logits", deployed.output]),
        "lipschitz_bound": repr(deployed.limits.lipschitz),
        "lipschitz_bound_of": "the features before the last layer, l2, in pixels of [0, 1]; proved",
        "claim": claim,
        "checksum": model.spec.checksum,
        "data": public_name(model.spec.data or "not recorded"),
    }


def _largest_difference(deployed: DeployedModel, run: Program, images: Tensor) -> float:
    with torch.no_grad():
        wanted = deployed(images)
    # Run all images at once, then the first alone: the batch size must be free.
    runs = ((wanted, run(images)), (tuple(t[:1] for t in wanted), run(images[:1])))
    return max(float((a - b).abs().max()) for expected, found in runs for a, b in zip(expected, found, strict=True))


def _compare_labels(model: FrozenModel, run: Program, images: Tensor, said: str) -> None:
    """Compare labels with `lotnet.predict`, except where its two best logits are as near as `TOLERANCE`."""
    found = run(images)[0].argmax(dim=1).tolist()
    for n, (prediction, label) in enumerate(zip(predict(model, images.double()), found, strict=True)):
        best, second, *_ = sorted(prediction.logits.values(), reverse=True)
        if prediction.index != label and best - second > 2 * TOLERANCE:
            raise InputError(
                f"{said}: its label of image {n} is not that of `lotnet predict`: please report this model"
            )


def _as_torch(program: torch.export.ExportedProgram, metadata: dict[str, str], _: str) -> tuple[bytes, Program]:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"metadata.json": json.dumps(metadata, indent=1)})
    content = buffer.getvalue()
    return content, torch.export.load(io.BytesIO(content)).module()


def _as_onnx(program: torch.export.ExportedProgram, metadata: dict[str, str], radius: str) -> tuple[bytes, Program]:
    runtime = _onnx_runtime()
    size = sum(t.nbytes for t in (*program.state_dict.values(), *program.constants.values()) if isinstance(t, Tensor))
    if size > LARGEST:
        raise InputError(f"the model's {size / 2**30:.1f} GiB exceed the 2 GiB of an ONNX file: use --to torch")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision is missing, which is not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = torch.onnx.export(
            program,
            input_names=["images"],
            output_names=["logits", radius],
            dynamic_shapes=({0: "batch"},),  # the program's batch size is dynamic already; this names it in the file
            opset_version=_OPSET,
            # The optimiser simplifies x * (1 - 16u) and x - 1e-11 to x. That is correct in float32, but would void
            # claim A in float64.
            optimize=radius == "plain_radius",
            dynamo=True,
            verbose=False,
        )
    made.model.metadata_props.update(metadata)
    content = serialized(made.model_proto)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(images: Tensor) -> tuple[Tensor, Tensor]:
        logits, radii = session.run(["logits", radius], {"images": images.numpy()})
        return torch.from_numpy(logits), torch.from_numpy(radii)

    return content, run


_WRITERS: dict[Format, Callable[..., tuple[bytes, Program]]] = {"onnx": _as_onnx, "torch": _as_torch}


def _onnx_runtime() -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime reads this on import
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        needed = "`pip install onnx onnxscript onnxruntime`"
        raise InputError(f"an ONNX export needs more packages: {needed}, or use --to torch") from None
    return onnxruntime
