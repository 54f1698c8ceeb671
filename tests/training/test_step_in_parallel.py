"""The training step of several processes equals the one of a single process, recorded as CUDA graphs or not.

On one GPU, two processes communicate over gloo, and one process over NCCL with itself.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from lotnet import CapturedGradients, orthogonalized
from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.config import RunConfig
from lotnet.models import ImageSpec
from lotnet.orthogonalize import sharing
from lotnet.training.optim import make_optimizer
from lotnet.training.precision import arithmetic
from lotnet.training.step import TrainingStep

STEPS = 20
IMAGES = ImageSpec(3, 16, 16, 10, (0.5, 0.5, 0.5), 0.25)
DEVICES = (pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu))
# TF32 products have 11 bits: a different order of summation turns some of them, and training makes them grow.
TOLERANCES = {"double": 1e-9, "tf32": 5e-2}


def config(precision: str) -> RunConfig:
    small = {"model.depth": 10, "model.channels": 8, "model.activation": "hh1", "loss.kind": "emma"}
    optimizer = {"optimizer.name": "sgd", "optimizer.lr": 0.1, "optimizer.clip": 1.0, "optimizer.schedule": "constant"}
    return RunConfig.from_recipe("digits/default", {**small, **optimizer, "trainer.precision": precision})


def batch(n: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(n)
    images = torch.rand(16, 3, 16, 16, generator=g, dtype=torch.float64)
    return images.to(device, dtype), torch.randint(0, 10, (16,), generator=g).to(device)


def make_step(precision: str, device: str) -> TrainingStep:
    torch.manual_seed(0)
    settings = config(precision)
    dtype = torch.float64 if precision == "double" else torch.float32
    fabric: Any = SimpleNamespace(device=torch.device(device))
    return TrainingStep(settings, settings.model.build(IMAGES), batch(0, device, dtype)[0][:1], fabric)


def trained(
    precision: str, device: str, rank: int = 0, processes: int = 1, measure_again: bool = True
) -> dict[str, Tensor]:
    step = make_step(precision, device)
    step.begin_epoch(resumed=False)
    dtype = next(step.model.parameters()).dtype
    for n in range(STEPS):
        if measure_again and n == STEPS // 2:
            step.begin_epoch(resumed=False)
        images, labels = batch(n, device, dtype)
        step(images[rank::processes], labels[rank::processes], n / STEPS)
    return {name: tensor.cpu() for name, tensor in step.model.state_dict().items()}


def run_process(rank: int, processes: int, folder: str, backend: str, device: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{folder}/{backend}", rank=rank, world_size=processes)
    rule = sharing.pays
    for share in (True, False):
        sharing.pays = lambda *_, share=share: share
        for precision in TOLERANCES if device == "cuda" else ("double",):
            torch.save(trained(precision, device, rank, processes), Path(folder) / f"{precision}-{share}-{rank}.pt")
    sharing.pays = rule
    dist.destroy_process_group()


@pytest.mark.parametrize(("backend", "processes"), [("gloo", 2), ("nccl", 1)])
@pytest.mark.parametrize("device", DEVICES)
def test_processes_equal_one(device: str, backend: str, processes: int, tmp_path: Path) -> None:
    if device == "cpu" and backend == "nccl":
        pytest.skip("NCCL is for GPUs")
    mp.spawn(run_process, (processes, str(tmp_path), backend, device), nprocs=processes)
    files = sorted(tmp_path.glob("*.pt"))
    assert len(files) == processes * 2 * (2 if device == "cuda" else 1)
    for precision in {file.name.partition("-")[0] for file in files}:
        alone = trained(precision, device)
        for file in tmp_path.glob(f"{precision}-*.pt"):
            found = torch.load(file)
            for name, expected in alone.items():
                error = (found[name] - expected).norm() / max(1e-6, float(expected.norm()))
                assert error <= TOLERANCES[precision], f"{file.name}: {name} differs by {error:.1e}"


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("device", DEVICES)
def test_an_own_loop_takes_the_same_steps(device: str, precision: str) -> None:
    expected = trained(precision, device, measure_again=False)  # an own loop does so after 500 steps
    step = make_step(precision, device)  # for its model
    model, settings = step.model.train(), config(precision)
    lipschitz = pixel_lipschitz(model)

    def gradients(images: Tensor, labels: Tensor, progress: float | Tensor) -> Tensor:
        with orthogonalized(model):
            logits = model(images)
            pairwise = pairwise_constants(model[-1], logits.shape[1], logits)
            loss = settings.loss(logits, labels, lipschitz, pairwise, progress)
            loss.backward()
        return loss.detach()

    captured = CapturedGradients(gradients, model)
    optimizer = make_optimizer(settings.optimizer, model)
    with arithmetic(tf32=precision == "tf32"):
        for n in range(STEPS):
            captured(*batch(n, device, next(model.parameters()).dtype), n / STEPS)
            nn.utils.clip_grad_norm_(model.parameters(), settings.optimizer.clip)
            optimizer.step()
    for name, value in expected.items():
        error = (model.state_dict()[name].cpu() - value).norm() / max(1e-6, float(value.norm()))
        assert error <= TOLERANCES[precision], f"{name} differs by {error:.1e}"
