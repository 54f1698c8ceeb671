"""Which arithmetic runs where: TF32 speeds training steps up, and never touches evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def arithmetic(tf32: bool) -> Iterator[None]:
    """Float32 products on NVIDIA GPUs in TF32 (10 bits), or as IEEE has them, whatever the caller had set.

    PyTorch lets cuDNN use TF32 unless it is told not to: evaluation has to switch it off, not merely leave it off.
    """
    products = torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32
    try:
        # "high" also lets some CPUs round operands: only a GPU is asked to.
        torch.set_float32_matmul_precision("high" if tf32 and torch.cuda.is_available() else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


@contextmanager
def evaluating() -> Iterator[None]:
    """No gradients, no autocast, IEEE arithmetic."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad(), torch.autocast(device, enabled=False), arithmetic(tf32=False):
        yield
