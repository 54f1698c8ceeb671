"""Model folders that somebody wrote by hand, with a valid checksum: each is refused in a sentence, or its bounds hold.

    python tests/falsification/hand_made.py 10000

`folder(seed)` takes a frozen module, or makes one up, changes settings and tensors, and computes the checksum as a
forger would. `judge` loads it and compares what is proved with the singular values of the dense Jacobian. Exit code 1
if a bound is too small, if anything but an `InputError` is raised, or if a folder takes more than 30 seconds or 4 GB.
"""

import hashlib
import json
import math
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from trees import tree

from lotnet import (
    Abs,
    AveragePool,
    Centering,
    ChannelShift,
    Concatenation,
    ConvexResidual,
    FrozenModel,
    FullSort,
    GlobalAveragePool,
    GlobalNormPool,
    GroupSort,
    Householder,
    InvertibleDownsampling,
    InvertibleUpsampling,
    LayerCentering,
    MaxMin,
    MaxPool,
    Normalize,
    NormPool,
    OrthogonalConv1d,
    OrthogonalConv2d,
    OrthogonalLinear,
    freeze,
)
from lotnet.errors import InputError
from workers import arguments, limited_memory, limited_time, peak_memory, spread, versions

Description = dict[str, Any]


@dataclass
class Folder:
    """The content of a model folder."""

    stages: list[Description]
    tensors: dict[str, Tensor]
    shape: list[Any]
    precision: str = "float32"

    def write(self, path: Path) -> None:
        """Write the folder with a checksum that matches, as long as the tensors are numbers."""
        digest = hashlib.sha256(json.dumps(self.stages).encode())
        kept = {"float32": torch.float32, "float64": torch.float64}[self.precision]
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name}{list(tensor.shape)}".encode())
            digest.update(tensor.to(kept).double().contiguous().numpy().tobytes())
        settings = {"input_shape": self.shape, "checksum": digest.hexdigest()}
        config: Description = {"format": 3, "precision": self.precision, "settings": settings, "stages": self.stages}
        config["sha256"] = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
        (path / "config.json").write_text(json.dumps(config))
        save_file(
            {name: tensor.clone().contiguous() for name, tensor in self.tensors.items()}, path / "model.safetensors"
        )


# Modules to start from.


def _convolution(rng: random.Random) -> nn.Module:
    kind = rng.choice(("lot", "soc", "cayley", "bcop", "spectral"))
    padding = rng.choice(("zeros", "circular"))
    return OrthogonalConv2d(2, rng.choice((2, 3)), rng.choice((1, 2, 3)), padding_mode=padding, parametrization=kind)


LAYERS: list[Callable[[random.Random], nn.Module]] = [
    _convolution,
    lambda rng: Normalize([0.1, 0.2], [rng.uniform(0.1, 1), 0.5]),
    lambda rng: Centering(2),
    lambda rng: Householder(2, order=rng.choice((1, 2))),
    lambda rng: MaxMin(),
    lambda rng: rng.choice((AveragePool, MaxPool, InvertibleDownsampling))(2),
    lambda rng: ConvexResidual(OrthogonalConv2d(2, 2, 3), rng.uniform(0.1, 0.9)),
    lambda rng: nn.Sequential(nn.Flatten(), OrthogonalLinear(2 * 16, 3)),
    lambda rng: OrthogonalConv2d(2, 4, rng.choice((2, 3)), groups=2, parametrization=rng.choice(("lot", "soc"))),
    lambda rng: OrthogonalConv2d(2, 2, 2, dilation=2, padding_mode=rng.choice(("zeros", "circular"))),
    lambda rng: rng.choice((GroupSort(2), FullSort(), Abs(0.5), nn.ReLU(), nn.LeakyReLU(0.3), nn.Hardtanh())),
    lambda rng: rng.choice((NormPool(2), GlobalAveragePool(), GlobalNormPool(), LayerCentering(2))),
    lambda rng: Concatenation(OrthogonalConv2d(2, 2, 3), MaxMin()),
    lambda rng: nn.Sequential(OrthogonalConv2d(2, 4, 3), InvertibleUpsampling(2)),
    lambda rng: nn.Sequential(OrthogonalConv2d(2, 9, 3), ChannelShift(3, rng.choice(("zeros", "circular")))),
    lambda rng: rng.choice((nn.ChannelShuffle(2), nn.ZeroPad2d((1, 0, 2, 0)))),
]


def _sequences(rng: random.Random) -> nn.Module:
    kind, padding = rng.choice(("lot", "soc")), rng.choice(("zeros", "circular"))
    return OrthogonalConv1d(2, 4, rng.choice((1, 2, 3)), rng.choice((1, 2)), padding_mode=padding, parametrization=kind)


def _frozen(rng: random.Random) -> Folder:
    shape = (2, 4, 4)
    layers = [rng.choice(LAYERS)(rng)]
    if isinstance(layers[0], Normalize | Householder | MaxMin) and rng.random() < 0.5:
        layers.append(_convolution(rng))
    if rng.random() < 0.1:
        shape, layers = (2, 8), [_sequences(rng)]
    model = freeze(nn.Sequential(*layers), shape, rng.choice((torch.float32, torch.float64)))
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        stages = json.loads((Path(folder) / "config.json").read_text())["stages"]
    precision = str(model.precision).removeprefix("torch.")
    return Folder(stages, dict(model.state_dict()), list(shape), precision)


def _leaf(kind: str, settings: Description, tensors: dict[str, Tensor], shape: list[int]) -> Folder:
    stage = {"kind": kind, "settings": settings, "tensors": sorted(tensors), "children": []}
    return Folder([stage], {f"stages.0.{name}": tensor for name, tensor in tensors.items()}, shape)


def _spectrum(rng: random.Random) -> Folder:
    """One matrix per frequency of the padded image; with a negative padding, of an image that is folded."""
    height, width = rng.choice((4, 6, 8)), rng.choice((4, 6, 8))
    padding = rng.choice((-3, -2, -1, 0, 1, 2))
    rows, columns = height + 2 * padding, width + 2 * padding
    frequencies = max(1, (rows // 2 + 1) * columns)
    o, i = rng.randint(1, 2), rng.randint(1, 2)
    whole = torch.linalg.svd(torch.randn(frequencies, o, i, dtype=torch.complex64), full_matrices=False)
    w = whole.U @ whole.Vh
    if rng.random() < 0.3:
        w = torch.eye(o, i, dtype=torch.complex64).expand(frequencies, o, i)
    tensors = {"real": w.real.contiguous(), "imaginary": w.imag.contiguous(), "bias": torch.randn(o)}
    return _leaf("spectrum", {"height": height, "width": width, "padding": padding}, tensors, [i, height, width])


def _kernel(rng: random.Random) -> Folder:
    """A kernel, or a series of a skew kernel, with unusual dilation, extra rows and sizes."""
    height, width = rng.randint(1, 6), rng.randint(1, 6)
    size = [rng.randint(1, 5) for _ in range(2)]
    settings: Description = {
        "height": height,
        "width": width,
        "padding_mode": rng.choice(("zeros", "circular", "circular", "reflect")),
        "dilation": [rng.choice((1, 1, 2, 3, 4, 0, -1)) for _ in range(2)],
        "extra": [rng.choice((0, 0, 1, 2, -1, -2)) for _ in range(2)],
    }
    o, i = rng.randint(1, 3), rng.randint(1, 3)
    if rng.random() < 0.5:
        kernel = torch.randn(o, i, *size) * 10.0 ** rng.randint(-3, 3)
        return _leaf("kernel", settings, {"kernel": kernel, "bias": torch.randn(o)}, [i, height, width])
    c = max(o, i)
    size = [n - (rng.random() < 0.9 and n % 2 == 0) for n in size]
    kernel = torch.randn(c, c, *size)
    kernel = (kernel - kernel.transpose(0, 1).flip(2, 3)) * rng.choice((0.01, 0.3, 3.0))
    settings |= {"terms": rng.choice((0, 1, 2, 5, 12, 40, -1)), "out_channels": o + rng.choice((0, 0, 0, 1, -1))}
    return _leaf("series", settings, {"kernel": kernel, "bias": torch.randn(o)}, [i, height, width])


def _tree(rng: random.Random) -> Folder:
    """Any modules in any containers."""
    shape = (rng.choice((1, 2, 4)), rng.choice((1, 2, 3, 4, 6)), rng.choice((1, 2, 4, 6)))
    tensors: dict[str, Tensor] = {}
    depths = rng.choice(((1,), (2,), (3,), (1, 0)))
    stages = [tree(rng, shape, depth).describe(f"stages.{n}", tensors) for n, depth in enumerate(depths)]
    return Folder(stages, tensors, list(shape), rng.choice(("float32", "float64")))


# Changes.

VALUES = (-3, -1, 0, 1, 2, 3, 5, 4096, 10**9, 10**30, 1.0, 2.5, True, None, "3", "circular", [], [1], [2, 2], [-1, 2])
VALUES = (*VALUES, [0, 0], [1, 1, 1], {}, math.nan, math.inf, -math.inf)


def _all_stages(stages: list[Description]) -> list[Description]:
    return [found for stage in stages for found in (stage, *_all_stages(_children(stage)))]


def _children(stage: Description) -> list[Description]:
    return stage["children"] if isinstance(stage.get("children"), list) else []


def _change_setting(rng: random.Random, folder: Folder) -> None:
    settings = rng.choice(_all_stages(folder.stages) or [{"settings": {}}])["settings"]
    name = rng.choice([*settings, "padding", "size"])
    if rng.random() < 0.1:
        settings.pop(name, None)
    else:
        settings[name] = rng.choice(VALUES)


def _change_structure(rng: random.Random, folder: Folder) -> None:
    stage = rng.choice(_all_stages(folder.stages) or [{"tensors": []}])
    stages, kinds = (
        folder.stages,
        ("dense", "kernel", "linear", "max_min", "flatten", "residual", "sequential", "shift"),
    )
    change = rng.randrange(6)
    if change == 0:
        stage["kind"] = rng.choice((*kinds, "forward", "", 3, None))
    elif change == 1:
        stage["children"] = rng.choice(([], json.loads(json.dumps(stages)), None, 3))
    elif change == 2:
        stage["tensors"] = rng.choice(([], ["forward"], ["spec"], "bias", [*stage["tensors"], "extra"]))
    elif change == 3:
        stages += json.loads(json.dumps(stages))
    elif change == 4:
        for _ in range(rng.choice((2, 40, 400))):
            stages[:] = [{"kind": "sequential", "settings": {}, "tensors": [], "children": list(stages)}]
            folder.tensors = {f"stages.0.{name}": tensor for name, tensor in folder.tensors.items()}
    else:
        stages.clear()


def _change_shape(rng: random.Random, folder: Folder) -> None:
    if rng.random() < 0.2:
        folder.shape = rng.choice(
            ([], [4], [2, 4, 4, 1], ["2", 4, 4], [2.0, 4, 4], [2, -4, -4], [0, 4, 4], [10**9] * 3)
        )
    else:
        folder.shape = [n if rng.random() < 0.6 else rng.choice((1, 2, 3, 4, 5, 8)) for n in folder.shape]


def _change_values(rng: random.Random, folder: Folder) -> None:
    for name in rng.sample(sorted(folder.tensors), min(1, len(folder.tensors))):
        x = folder.tensors[name].double().contiguous()
        scale = 10.0 ** rng.choice((-320, -300, -45, -6, 0, 6, 30, 37, 200, 300))
        one = x.clone()
        if x.numel():
            one.view(-1)[rng.randrange(x.numel())] = rng.choice((math.nan, math.inf, -1e30, 0.0, 1e-45, 3.4e38))
        changed = rng.choice((one, x * scale, -x, torch.zeros_like(x), torch.randn_like(x), x.abs() * 2))
        folder.tensors[name] = changed.to(rng.choice((torch.float32, torch.float64)))


def _change_form(rng: random.Random, folder: Folder) -> None:
    for name in rng.sample(sorted(folder.tensors), min(1, len(folder.tensors))):
        x = folder.tensors[name]
        rows = x if x.ndim else x[None]
        shapes = [x[None], x.flatten(), rows[:1], torch.cat((rows, rows)), rows[:0], x.mT if x.ndim > 1 else x]
        types = [x.to(t) for t in (torch.float64, torch.float16, torch.int8, torch.bool)]
        folder.tensors[name] = rng.choice(shapes + types)


CHANGES = (
    *[_change_values] * 5,
    *[_change_setting] * 2,
    _change_shape,
    _change_form,
    _change_structure,
)


def folder(seed: int) -> Folder:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    made = rng.choice((_frozen, _spectrum, _kernel, _tree))(rng)
    for _ in range(rng.choice((0, 1, 1, 2))):
        rng.choice(CHANGES)(rng, made)
    try:
        json.dumps(made.stages)
    except RecursionError:  # deeper than JSON can be written
        made.stages.clear()
    return made


# Judgement.


def judge(path: Path) -> str:
    """`refused`, `no bound` or `bounded`. Raises an `AssertionError` if a bound of the loaded model is too small."""
    try:
        model = FrozenModel.load(path)
        graph = model.astype(torch.float64)
        bound = float(graph.lipschitz_bound())
    except InputError as error:
        assert "\n" not in str(error), f"not one sentence: {error}"
        return "refused"
    shape = model.input_shape
    for x in (torch.rand(1, *shape, dtype=torch.float64), torch.zeros(1, *shape, dtype=torch.float64)):
        output, norm = graph(x), float(x.norm()) * (1 + 1e-12)
        error = float(graph.rounding_bound(0.0, norm))
        assert tuple(output.shape[1:]) == graph.output_shape(shape), "an output of another shape than declared"
        if not output.isfinite().all():
            assert error == math.inf, f"an infinite output with an error of at most {error}"
            continue
        peak = float(output.abs().max()) or 1.0
        size = peak * float((output / peak).norm())  # squares of large entries would overflow
        assert size <= (float(graph.output_norm(norm)) + error) * (1 + 1e-9), "an output larger than its bound"
        if model.precision == torch.float32:
            off = float((model(x.float()).double() - graph(x.float().double())).norm())
            assert not off > float(model.rounding_bound(0.0, norm * (1 + 1e-6))) + error, f"rounding of {off}"
        if bound < math.inf and output.numel() * x.numel() <= 2**16:
            place = x if x.any() else torch.randn_like(x) / 8  # at zero itself a norm has no derivative
            jacobian = torch.autograd.functional.jacobian(lambda z: graph(z).flatten(), place).flatten(1)
            found = float(torch.linalg.matrix_norm(jacobian, ord=2)) if jacobian.isfinite().all() else math.inf
            assert found <= bound * (1 + 1e-12) + 1e-300, f"a norm of {found}, proved to be at most {bound}"
    return "bounded" if bound < math.inf else "no bound"


def fuzz(seeds: range) -> tuple[Counter[str], list[str]]:
    """Judge the folders of these seeds, each within the limits on time and memory.

    Returns how they ended, and one line for each that went wrong.
    """
    ends: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(), limited_memory():
        warnings.simplefilter("ignore")
        for seed in seeds:
            try:
                with limited_time():
                    folder(seed).write(Path(name))
                    ends[judge(Path(name))] += 1
            except Exception as error:
                wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
    return ends, wrong


def _chunk(seeds: range) -> tuple[Counter[str], list[str], int]:
    return *fuzz(seeds), peak_memory()


def main() -> int:
    settings = arguments(__doc__.splitlines()[0], 10_000, "folders").parse_args()
    torch.set_num_threads(1)
    start, ends, wrong, peak = time.perf_counter(), Counter[str](), list[str](), 0
    chunks = [range(n, min(n + 100, settings.count)) for n in range(0, settings.count, 100)]
    for found, lines, memory in spread(_chunk, chunks, settings.workers):
        ends += found
        wrong += lines
        peak = max(peak, memory)
    print(f"{versions()}; {settings.workers} processes of one thread")
    print(f"{ends.total() + len(wrong)} hand-made modules: {dict(ends)}, {len(wrong)} wrong; ", end="")
    print(f"peak {peak / 2**20:.0f} MB, {time.perf_counter() - start:.0f} s")
    print(*wrong[:20], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
