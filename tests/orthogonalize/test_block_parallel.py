"""`orthogonalized` under DistributedDataParallel: two processes with gloo equal one, with and without `no_sync`."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lotnet import MaxMin, OrthogonalConv2d, orthogonalized
from lotnet.errors import InputError

STEPS = 20


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(
        OrthogonalConv2d(3, 8, 3), MaxMin(), OrthogonalConv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    for parameter in layers.parameters():
        nn.init.normal_(parameter, std=0.2)
    return layers.double().train()


def train(net: nn.Module, rank: int, processes: int, parts: int) -> None:
    """Steps with batches of 8 images, shared by the processes, each in `parts` micro-batches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for n in range(STEPS):
        g = torch.Generator().manual_seed(n)
        images, labels = torch.rand(8, 3, 6, 6, generator=g).double(), torch.randint(0, 8, (8,), generator=g)
        chunks = list(zip(images[rank::processes].chunk(parts), labels[rank::processes].chunk(parts), strict=True))
        optimizer.zero_grad()
        with orthogonalized(net):
            for i, (x, y) in enumerate(chunks):
                last = i == len(chunks) - 1
                quiet = nullcontext() if last or processes == 1 else net.no_sync()
                with quiet:
                    (F.cross_entropy(net(x), y) / parts).backward()
        optimizer.step()


def run_process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for parts in (1, 2):
        net = DistributedDataParallel(network())
        train(net, rank, 2, parts)
        torch.save(net.module.state_dict(), Path(folder) / f"{parts}-{rank}.pt")
    net = DistributedDataParallel(network(), find_unused_parameters=True)
    with pytest.raises(InputError, match="find_unused_parameters"), orthogonalized(net):
        pass
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path: Path) -> None:
    mp.spawn(run_process, (str(tmp_path),), nprocs=2)
    alone = network()
    train(alone, 0, 1, 1)
    for parts in (1, 2):
        for rank in (0, 1):
            found = torch.load(tmp_path / f"{parts}-{rank}.pt")
            for name, expected in alone.state_dict().items():
                assert (found[name] - expected).abs().max() <= 1e-9
