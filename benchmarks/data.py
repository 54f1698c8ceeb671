"""How many augmented batches per second does `Batches` make, against a plain Python loop over the images?

    python benchmarks/data.py --device cuda

Both pad each image with 4 zeros, take a random crop, flip half of the crops and scale them to [0, 1]. The loop does so
image by image and stacks the results, as a data loader without workers would. The data are random, of CIFAR's shape.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lotnet.data import Augmentation, Batches, Split


def loop(split: Split, batch_size: int, device: str, padding: int = 4) -> Iterator[tuple[Tensor, Tensor]]:
    """The baseline for `Batches`: one image at a time, in Python."""
    order = list(range(len(split)))
    random.shuffle(order)
    for start in range(0, len(order), batch_size):
        images = []
        for sample in order[start : start + batch_size]:
            image = F.pad(split.images[sample], (padding,) * 4)
            row, column = random.randint(0, 2 * padding), random.randint(0, 2 * padding)
            image = image[:, row : row + 32, column : column + 32]
            images.append((image.flip(-1) if random.random() < 0.5 else image) / 255)
        yield torch.stack(images).to(device), split.labels[order[start : start + batch_size]].to(device)


def seconds_per_batch(batches: Iterator[tuple[Tensor, Tensor]], device: str) -> float:
    """Mean time of a batch over one epoch, including the shuffle."""
    _finish(device)
    start, count = time.perf_counter(), 0
    for _ in batches:
        count += 1
    _finish(device)
    return (time.perf_counter() - start) / count


def _finish(device: str) -> None:
    if device != "cpu":
        torch.accelerator.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--images", type=int, default=50_000, help="size of the data set for Batches")
    parser.add_argument("--loop-images", type=int, default=5_000, help="size of the part the loop goes through")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5, help="epochs of each; the fastest counts")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (args.images, 3, 32, 32), dtype=torch.uint8, generator=generator)
    split = Split(images, torch.randint(0, 10, (args.images,), generator=generator))
    part = split.select(slice(args.loop_images))
    ours = Batches(split, args.batch_size, seed=0, augmentation=Augmentation(), device=args.device, drop_last=True)

    fast = min(seconds_per_batch(ours.epoch(e), args.device) for e in range(args.repeats))
    slow = min(seconds_per_batch(loop(part, args.batch_size, args.device), args.device) for _ in range(args.repeats))

    device = torch.cuda.get_device_name() if args.device.startswith("cuda") else args.device
    table = Table(title=f"batches of {args.batch_size}, {device}, torch {torch.__version__}")
    for heading in ("", "batches/s", "ms/batch", "s/epoch of 50 000", "ratio"):
        table.add_column(heading, justify="right")
    for name, seconds in (("Python loop", slow), ("Batches", fast)):
        epoch = seconds * 50_000 / args.batch_size
        table.add_row(name, f"{1 / seconds:.0f}", f"{1e3 * seconds:.3f}", f"{epoch:.3f}", f"{slow / seconds:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
