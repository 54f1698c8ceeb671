"""Which arithmetic runs where: TF32 speeds training steps up, and never touches evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def arithmetic(tf32: bool) -> Iterator[None]:
    """Float32 products on NVIDIA GPUs in TF32 (10 bits), or as IEEE has them, whatever the caller had set.

    PyTorch lets cuDNN use TF32 unless it is told not to: evaluation has to switch it off, not merely leave it off.
    """
    cuda: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    newer = cuda.fp32_precision, cudnn.conv.fp32_precision
    older = _older_settings(*newer)
    try:
        # The older interface sets both. "high" also lets some CPUs round operands: only a GPU is asked to.
        torch.set_float32_matmul_precision("high" if tf32 and torch.cuda.is_available() else "highest")
        cudnn.allow_tf32 = tf32
        yield
    finally:
        torch.set_float32_matmul_precision(older[0])
        cudnn.allow_tf32 = older[1]
        cuda.fp32_precision, cudnn.conv.fp32_precision = newer


def _older_settings(products: str, convolutions: str) -> tuple[str, bool]:
    """What PyTorch's older interface says of products and convolutions. It refuses to answer where the newer one, whose
    answers are given, was used to say the opposite: that tells as much."""
    try:
        matmul = torch.get_float32_matmul_precision()
    except RuntimeError:
        matmul = "highest" if products == "tf32" else "high"
    try:
        cudnn = torch.backends.cudnn.allow_tf32
    except RuntimeError:
        cudnn = convolutions != "tf32"
    return matmul, cudnn


@contextmanager
def evaluating() -> Iterator[None]:
    """No gradients, no autocast, IEEE arithmetic."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad(), torch.autocast(device, enabled=False), arithmetic(tf32=False):
        yield
