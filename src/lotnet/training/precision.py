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
    before, older = [part.fp32_precision for part in _PARTS], _older_settings()
    try:
        # The older interface sets both. "high" also lets some CPUs round operands: only a GPU is asked to.
        torch.set_float32_matmul_precision("high" if tf32 and torch.cuda.is_available() else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        yield
    finally:
        torch.set_float32_matmul_precision(older[0])
        torch.backends.cudnn.allow_tf32 = older[1]
        for part, precision in zip(_PARTS, before, strict=True):
            part.fp32_precision = precision


_CUDA: Any = torch.backends.cuda
_CUDNN: Any = torch.backends.cudnn
_MKLDNN: Any = torch.backends.mkldnn
_PARTS = (_CUDA.matmul, _CUDNN.conv, _CUDNN.rnn, _MKLDNN.matmul)
"""What the older interface changes, by the newer one, which has a setting for each."""


def _older_settings() -> tuple[str, bool]:
    """What the older interface says of products and convolutions.

    It refuses to answer where the newer one was used to say something else. Then the newer one's answers tell what the
    older one's must have been.
    """
    try:
        products = torch.get_float32_matmul_precision()
    except RuntimeError:
        products = "high" if _CUDA.matmul.fp32_precision == _MKLDNN.matmul.fp32_precision == "ieee" else "highest"
    try:
        convolutions = torch.backends.cudnn.allow_tf32
    except RuntimeError:
        convolutions = _CUDNN.conv.fp32_precision != "tf32"
    return products, convolutions


@contextmanager
def evaluating() -> Iterator[None]:
    """No gradients, no autocast, IEEE arithmetic."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad(), torch.autocast(device, enabled=False), arithmetic(tf32=False):
        yield
