"""How long does certification take? LipConvnet-5 on CIFAR-sized images, beside float32 evaluation, and the audit.

    python benchmarks/certify.py --images 10000

The weights are random: run time does not depend on what the network has learnt.
"""

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from lotnet import FrozenModel, freeze
from lotnet.certification import AuditRow, audit, certify
from lotnet.models import ImageSpec, LipConvnet

CIFAR = ImageSpec(3, 32, 32, 10, (0.4914, 0.4822, 0.4465), 0.2507)
T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def frozen(depth: int) -> FrozenModel:
    torch.manual_seed(0)
    model = LipConvnet(depth=depth, start="random").build(CIFAR)
    seconds, result = timed(lambda: freeze(model, 32))
    print(f"LipConvnet-{depth}, frozen in {seconds:.1f} s")
    return result


@torch.no_grad()
def evaluate(model: FrozenModel, images: torch.Tensor, batch_size: int) -> torch.Tensor:
    return torch.cat([model(batch).argmax(dim=1) for batch in images.split(batch_size)])


def show(rows: list[AuditRow]) -> None:
    for row in rows:
        if row.kind in ("Spectrum", "Kernel", "Dense", "Series", "Linear"):
            error = "" if row.orthogonality_error is None else f"   orthogonality {row.orthogonality_error:.1e}"
            print(f"  {row.name:<14} {row.kind:<9} bound 1 {row.lipschitz_bound - 1:+.1e}   {row.seconds:.2f} s{error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--images", type=int, default=1000, help="how many to certify (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=250, help="default: %(default)s")
    parser.add_argument("--deep", type=int, default=20, help="depth of the second audit (default: %(default)s)")
    settings = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {settings.images} images of 3 x 32 x 32")

    model = frozen(5)
    images = torch.rand(settings.images, 3, 32, 32)
    warm = images[: settings.batch_size]
    evaluate(model, warm, settings.batch_size)
    plain, labels = timed(lambda: evaluate(model, images, settings.batch_size))
    wide = model.astype(torch.float64)
    evaluate(wide, warm.double(), settings.batch_size)
    double, _ = timed(lambda: evaluate(wide, images.double(), settings.batch_size))
    seconds, certificates = timed(lambda: certify(model, images, labels, batch_size=settings.batch_size))
    proofs, rows = timed(lambda: list(audit(wide)))
    print(f"  float32 evaluation   {plain:8.2f} s   {1e3 * plain / settings.images:.2f} ms an image")
    print(f"  float64 evaluation   {double:8.2f} s   {double / plain:.1f} times that")
    print(f"  certification        {seconds:8.2f} s   {seconds / plain:.1f} times that, proofs included")
    print(f"  proofs (audit)       {proofs:8.2f} s   once for a model")
    print(f"  radii > 0            {(certificates.radii['float'] > 0).double().mean():8.1%}")
    show(rows)

    deep = frozen(settings.deep)
    seconds, rows = timed(lambda: list(audit(deep)))
    print(f"  audit                {seconds:8.2f} s")
    show(rows)


if __name__ == "__main__":
    main()
