"""Choices that depend on the hardware: the only module that chooses an algorithm by a tensor's device.

Other modules call these functions by purpose. `streams` and the places named in tests/test_imports.py ask for hardware
for other reasons, such as recording it.
"""

import torch
from torch import Tensor

from lotnet.kernels import chebyshev, householder, plain


def reading_synchronizes(x: Tensor) -> bool:
    """Whether reading a value of `x` makes Python wait for all work queued before it."""
    return x.is_cuda


def products_are_cheap(x: Tensor) -> bool:
    """Whether many matrix products take less time than one eigendecomposition of the same matrices."""
    return x.is_cuda


def can_be_recorded(x: Tensor) -> bool:
    """Whether work on `x` can be recorded as a CUDA graph."""
    return x.is_cuda


def recording(x: Tensor) -> bool:
    """Whether work on `x` is being recorded as a CUDA graph just now, so that no value can be read."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def operations_per_byte(x: Tensor) -> float:
    """Operations that a device does while it sends and receives one byte.

    An H200 does 3e14 a second in half precision, and NVLink moves 2e11 bytes. A CPU core does 2e10, and processes of
    one machine exchange 1e9 bytes.
    """
    return 1500.0 if x.is_cuda else 20.0


def permutes_in_one_pass(x: Tensor) -> bool:
    """Whether one permuted copy of `x` is fast. A CPU takes half the time in two copies that each move whole rows."""
    return x.is_cuda


def tensor_cores_allowed(x: Tensor) -> bool:
    """Whether `x` is float32 on a GPU, and TF32 products are enabled (`torch.set_float32_matmul_precision`)."""
    allowed = torch.backends.cuda.matmul.fp32_precision == "tf32"  # unlike `allow_tf32`, readable whichever API set it
    return x.is_cuda and x.dtype == torch.float32 and allowed


def reflect(x: Tensor, normals: Tensor) -> Tensor:  # b c ..., order 2 c/2
    """Householder activation: `z - 2 v relu(v.z)` on the pairs z of channels i and i + c/2, for each v in turn."""
    fused = x.is_cuda and x.dtype == torch.float32
    return householder.reflect(x, normals) if fused else plain.reflect(x, normals.to(x.dtype))


def chebyshev_update(s: Tensor, before: Tensor, k: Tensor, product: Tensor, momentum: float, gain: float) -> Tensor:
    """`s + momentum (s - before) + gain (k - product + product*)`: see `plain.chebyshev_update`."""
    update = chebyshev.chebyshev_update if s.is_cuda else plain.chebyshev_update
    return update(s, before, k, product, momentum, gain)
