"""Where a training step of LOT spends its time on a GPU: by batch of polar factors, and by kernel.

    python benchmarks/profile_step.py [--depth 5] [--channels 128] [--kind lot]

The times of the batches are those of each alone, as a CUDA graph. In a step, batches run side by side.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from gpu import DEVICE, KINDS, gradients, lipconvnet, median
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


def batches(model: nn.Module) -> list[tuple[LOT, Tensor]]:
    """The matrices that a step orthogonalises together, short side first, with their settings."""
    found: dict[object, list[Tensor]] = defaultdict(list)
    for layer in known_layers(model):
        lot, weight, geometry = with_settings(*layer)
        for v in parts(weight.detach(), geometry):
            found[lot, v.shape[1:]].append(v if v.shape[2] <= v.shape[3] else adjoint(v))
    return [(key[0], torch.cat(members)) for key, members in found.items()]  # type: ignore[index]


def recorded_ms(call: Callable[[], object]) -> float:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return median(graph.replay, 5)


def describe(lot: LOT, v: Tensor) -> tuple[float, float]:
    f, p, m, n = v.shape
    lower = sigma_min(m, lot.condition)
    polynomials, inverse = schedule(lower, lot.tolerance), m < n
    x, w, size, largest, kept = polar_planes.polar_factor(v, polynomials, inverse, torch.float16)
    planes, g = polar_planes.planes(w, torch.ones_like(size), torch.float16), torch.randn_like(w)
    forward = recorded_ms(lambda: polar_planes.polar_factor(v, polynomials, inverse, torch.float16))
    backward = recorded_ms(lambda: polar_planes.pullback(x, planes, size, largest, kept, g, lower))
    count = steps(gradient_sigma_min(m, lower), 1e-2)
    unit = 2 * (1 if p == 1 else 4) * f * m * m  # operations for each column
    done_forward = len(polynomials) * 1.5 * unit * n + (len(polynomials) - 1) * (1 + inverse) * unit * m / 2
    done_backward = (2.5 + inverse) * unit * n + (count - 1 + inverse) * unit * m
    kind = "real" if p == 1 else "complex"
    print(
        f"{f:4d} {kind:7s} {m:4d} x {n:<4d} polynomials {len(polynomials)} steps {count:2d}",
        f"forward {forward:6.2f} ms {done_forward / forward / 1e9:4.0f} TFLOP/s",
        f"backward {backward:6.2f} ms {done_backward / backward / 1e9:4.0f} TFLOP/s",
        sep=" | ",
    )
    return forward, backward


def kernels(step: Callable[[], object]) -> None:
    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        step()
        torch.cuda.synchronize()
    rows: dict[str, list[float]] = defaultdict(list)
    for event in found.events() or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            rows[event.name[:60]].append(event.device_time / 1e3)
    for name, times in sorted(rows.items(), key=lambda row: -sum(row[1]))[:12]:
        print(f"{sum(times):7.3f} ms {len(times):4d} x {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--kind", choices=KINDS[1:], default="lot")
    options = parser.parse_args()
    net = lipconvnet(options.depth, options.channels)
    model = net.build(options.kind)
    images, labels = torch.rand(256, 3, 32, 32, device=DEVICE), torch.randint(0, 10, (256,), device=DEVICE)
    with arithmetic(tf32=True):
        captured = CapturedGradients(gradients(model, 1), model, measure_every=None)
        captured(images, labels)
        step = median(lambda: captured(images, labels), 7)
        captured.reset()
        plain = net.build("plain")

        def ordinary(images: Tensor, labels: Tensor) -> Tensor:
            loss = F.cross_entropy(plain(images), labels)
            loss.backward()
            return loss.detach()

        recorded = CapturedGradients(ordinary, plain)
        base = median(lambda: recorded(images, labels), 7)
        print(f"{net.name}, {options.kind}: {step:.2f} ms a step, plain {base:.2f}, ratio {step / base:.2f}")
        times = [describe(lot, v) for lot, v in batches(model)]
        forward, backward = (sum(column) for column in zip(*times, strict=True))
        print(f"forward {forward:.2f} ms and backward {backward:.2f} ms in all, if one after another")
        model.zero_grad()
        compute = gradients(model, 1)
        kernels(lambda: compute(images, labels))


if __name__ == "__main__":
    main()
