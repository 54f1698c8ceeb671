"""Where a training step of LOT spends its time on a GPU: by batch of polar factors, and by kernel.

    python benchmarks/profile_step.py [--depth 5] [--channels 128] [--kind lot]

The times of the batches are those of each alone, as a CUDA graph. In a step, batches run side by side. `gpu.py` calls
this for each network that missed its goal.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity
from torch.profiler import profile as record

from lotnet import CapturedGradients
from lotnet.linalg import polar_planes
from lotnet.linalg.complex_layout import adjoint
from lotnet.linalg.polar import gradient_sigma_min, sigma_min
from lotnet.linalg.polynomials import schedule
from lotnet.linalg.sylvester import steps
from lotnet.orthogonalize.block import known_layers
from lotnet.orthogonalize.grouping import with_settings
from lotnet.parametrizations import LOT
from lotnet.parametrizations.lot import parts
from lotnet.training.precision import arithmetic
from speed_rows import BATCH, KINDS, Bench, Network, gradients, lipconvnet
from timing import Timer


def profile(net: Network, kind: str, bench: Bench) -> str:
    """A text: the step beside the plain one, each batch of polar factors, and the kernels that take most."""
    model, plain = net.build(bench, kind), net.build(bench, "plain")
    images, labels = bench.batch(BATCH, net.side)

    def ordinary(images: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(plain(images), labels)
        loss.backward()
        return loss.detach()

    with arithmetic(tf32=True):
        compute = gradients(model, 1)
        captured = CapturedGradients(compute, model, measure_every=None)
        captured(images, labels)
        whole = bench.timer.ms(lambda: captured(images, labels))
        captured.reset()
        recorded = CapturedGradients(ordinary, plain)
        base = bench.timer.ms(lambda: recorded(images, labels))
        lines = [f"{net.name}, {kind}: {whole:.2f} ms a step, plain {base:.2f}, ratio {whole / base:.2f}"]
        found = batches(model) if bench.device.type == "cuda" else []  # Triton's kernels, which a trial cannot run
        described = [describe(lot, v, bench.timer) for lot, v in found]
        lines += [line for line, _, _ in described]
        forward, backward = sum(f for _, f, _ in described), sum(b for _, _, b in described)
        lines.append(f"forward {forward:.2f} ms and backward {backward:.2f} ms in all, if one after another")
        model.zero_grad()
        lines += kernels(lambda: compute(images, labels), bench.device)
    return "\n".join(lines)


def batches(model: nn.Module) -> list[tuple[LOT, Tensor]]:
    """The matrices that a step orthogonalises together, short side first, with their settings."""
    found: dict[object, list[Tensor]] = defaultdict(list)
    for layer in known_layers(model):
        lot, weight, geometry = with_settings(*layer)
        for v in parts(weight.detach(), geometry):
            found[lot, v.shape[1:]].append(v if v.shape[2] <= v.shape[3] else adjoint(v))
    return [(key[0], torch.cat(members)) for key, members in found.items()]  # type: ignore[index]


def describe(lot: LOT, v: Tensor, timer: Timer) -> tuple[str, float, float]:
    """A line about one batch of matrices, and the milliseconds of its forward and backward pass."""
    f, p, m, n = v.shape
    lower = sigma_min(m, lot.condition)
    polynomials, inverse = schedule(lower, lot.tolerance), m < n
    x, w, size, largest, kept = polar_planes.polar_factor(v, polynomials, inverse, torch.float16)
    planes, g = polar_planes.planes(w, torch.ones_like(size), torch.float16), torch.randn_like(w)
    forward = timer.ms(timer.recorded(lambda: polar_planes.polar_factor(v, polynomials, inverse, torch.float16)))
    backward = timer.ms(timer.recorded(lambda: polar_planes.pullback(x, planes, size, largest, kept, g, lower)))
    count = steps(gradient_sigma_min(m, lower), 1e-2)
    unit = 2 * (1 if p == 1 else 4) * f * m * m  # operations for each column
    done_forward = len(polynomials) * 1.5 * unit * n + (len(polynomials) - 1) * (1 + inverse) * unit * m / 2
    done_backward = (2.5 + inverse) * unit * n + (count - 1 + inverse) * unit * m
    kind = "real" if p == 1 else "complex"
    line = (
        f"{f:4d} {kind:7s} {m:4d} x {n:<4d} polynomials {len(polynomials)} steps {count:2d} | "
        f"forward {forward:6.2f} ms {done_forward / forward / 1e9:4.0f} TFLOP/s | "
        f"backward {backward:6.2f} ms {done_backward / backward / 1e9:4.0f} TFLOP/s"
    )
    return line, forward, backward


def kernels(step: Callable[[], object], device: torch.device) -> Iterator[str]:
    """The dozen kernels that take most of an eager step."""
    step()
    with record(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] * (device.type == "cuda"))]) as found:
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    rows: dict[str, list[float]] = defaultdict(list)
    for event in found.events() or ():
        if device.type == "cpu" or event.device_type == torch.autograd.DeviceType.CUDA:
            spent = event.self_cpu_time_total if device.type == "cpu" else event.device_time
            rows[event.name[:60]].append(spent / 1e3)
    for name, times in sorted(rows.items(), key=lambda row: -sum(row[1]))[:12]:
        yield f"{sum(times):7.3f} ms {len(times):4d} x {name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--kind", choices=KINDS[1:], default="lot")
    options = parser.parse_args()
    bench = Bench(Timer(torch.device("cuda"), repeats=7))
    print(profile(lipconvnet(options.depth, options.channels), options.kind, bench))


if __name__ == "__main__":
    main()
