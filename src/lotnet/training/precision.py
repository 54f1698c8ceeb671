"""Arithmetic of training and evaluation. TF32 makes training steps faster; evaluation never uses it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def arithmetic(tf32: bool) -> Iterator[None]:
    """Compute float32 products on NVIDIA GPUs in TF32 (10 bits) or IEEE arithmetic. The exit restores the settings.

    By default, PyTorch lets cuDNN use TF32. So evaluation has to switch it off.
    """
    before, older = [part.fp32_precision for part in _PARTS], _older_settings()
    try:
        # PyTorch's older interface also sets the newer one. "high" would let some CPUs round operands too, so it is
        # only set if there is a GPU.
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
"""The settings of PyTorch's newer interface that its older interface changes."""


def _older_settings() -> tuple[str, bool]:
    """The older interface's settings for matrix products and convolutions.

    The older interface raises a RuntimeError if the newer one was set to something that contradicts it. Then its
    settings follow from those of the newer one.
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
    """Evaluate without gradients and autocast, in IEEE arithmetic."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad(), torch.autocast(device, enabled=False), arithmetic(tf32=False):
        yield
