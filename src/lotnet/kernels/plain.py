"""Plain PyTorch versions of the fused kernels: used on a CPU, and as the reference in tests of the kernels."""

import torch
import torch.nn.functional as F
from torch import Tensor


def reflect(x: Tensor, normals: Tensor) -> Tensor:  # b c ..., order 2 c/2
    """`z - 2 v relu(v.z)` on the pairs z of channels i and i + c/2, for each v in turn."""
    a, b = x.chunk(2, dim=1)
    extra = (1,) * (x.ndim - 2)
    for v, w in normals:
        v, w = v.view(-1, *extra), w.view(-1, *extra)
        reach = 2 * F.relu(v * a + w * b)
        a, b = a - v * reach, b - w * reach
    return torch.cat((a, b), dim=1)


def chebyshev_update(s: Tensor, before: Tensor, k: Tensor, product: Tensor, momentum: float, gain: float) -> Tensor:
    """`s + momentum (s - before) + gain (k - product + product*)`.

    Matrices are real (m x m), or complex with stacked real and imaginary parts (2m x m).
    """
    m = s.shape[-1]
    adjoint = product.reshape(-1, product.shape[-2] // m, m, m).mT.clone()
    adjoint[:, 1:].neg_()  # imaginary parts
    return s + momentum * (s - before) + gain * (k - product + adjoint.reshape(s.shape))
