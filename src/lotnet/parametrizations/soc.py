"""SOC (skew orthogonal convolution): the exponential of a skew-symmetric convolution is orthogonal."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lotnet.errors import InputError
from lotnet.linalg.bounds import series_bound
from lotnet.linalg.polar import power_of_two
from lotnet.operators import Kernel, Operator, Series
from lotnet.parametrizations.base import Geometry, KernelSize, Parametrization, sides

# The published code multiplies the normalised skew kernel by this, unless k = 1.
_CORRECTION = 0.7
_SQUARINGS = 4  # the norm bound exceeds the norm by at most rank^(1/64)


@dataclass(frozen=True)
class SOC(Parametrization):
    """Skew orthogonal convolution (SOC): the exponential of a skew-symmetric convolution, as a truncated series.

    The series is `I + A + ... + A^T / T!` of the skew convolution `A = V - V^T`, scaled.

    `V^T` swaps the channels and flips the taps. Zero padding keeps `A` skew: on an image it is `P^T A P`,
    where `P` embeds the image into the plane. So the full series is orthogonal with either padding. The
    truncated one is normal, with singular values `|S_T(i t)|`, t up to the norm of A: nearly one.

    As in the published code, *every* kernel is scaled to one size; small ones are scaled up:

        A = 0.7 (V - V^T) / s,    without 0.7 for k = 1,

    where `s` is the smallest spectral norm of the four unfoldings of the skew kernel into matrices. The norm of
    the convolution is at most `k s`, hence `||A|| <= 0.7 k`. The published code takes `s` from stale power
    iterations, which give lower bounds. Here it is an upper bound by Gram squaring, a few percent too large.

    >>> import torch
    >>> from lotnet import OrthogonalConv2d
    >>> layer = OrthogonalConv2d(4, 4, 3, parametrization=SOC(terms=6))
    >>> layer(torch.randn(2, 4, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    terms: int = 5
    """Terms of the series in training."""
    frozen_terms: int = 12
    """Terms of the series in evaluation."""

    orthogonal = False  # only up to the truncation

    def __post_init__(self) -> None:
        if not all(isinstance(terms, int) and terms >= 1 for terms in (self.terms, self.frozen_terms)):
            raise InputError(
                f"SOC sums a whole number of terms, at least 1, not {self.terms} and {self.frozen_terms}: the defaults "
                "are 5 and 12"
            )

    def initial_weight(self, out_channels: int, in_channels: int, kernel_size: KernelSize) -> Tensor:
        """A random kernel, for equal channels too, as published.

        The identity is `V - V^T = 0`. Because every other kernel is scaled up to one size, no continuous path leads
        away from it.
        """
        shape = self.weight_shape(out_channels, in_channels, kernel_size)
        return torch.randn(shape) / max(out_channels, in_channels) ** 0.5

    def lipschitz_bound(self, kernel_size: KernelSize, frozen: bool = False) -> float:
        """`max |S_T(i t)|` for t up to the norm of A: above one, because the series is truncated."""
        odd = math.sqrt(math.prod(k + 1 - k % 2 for k in sides(kernel_size)))
        terms = self.frozen_terms if frozen else self.terms
        return float(series_bound(_CORRECTION * odd if odd > 1 else 1.0, terms))

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        skew = _skew_kernel(weight)
        skew = skew / power_of_two(skew.flatten(1))  # exact; the scale does not matter from here on
        skew = (_CORRECTION if skew[0, 0].numel() > 1 else 1.0) * skew / _unfolding_bound(skew)
        terms = self.frozen_terms if frozen else self.terms
        return Series(Kernel(skew, geometry.padding_mode), terms, geometry.out_channels)


def _skew_kernel(weight: Tensor) -> Tensor:  # o i k k -> c c k k
    """`V - V^T`, after filling V with zeros to equal channels and odd size."""
    o, i, kh, kw = weight.shape
    # The zeros go before tap 0, so that tap (k-1)//2 stays the centre.
    square = F.pad(weight, (1 - kw % 2, 0, 1 - kh % 2, 0, 0, max(o - i, 0), 0, max(i - o, 0)))
    return square - square.transpose(0, 1).flip(-2, -1)


def _unfolding_bound(skew: Tensor) -> Tensor:  # c c k k -> ()
    """Upper bound of the smallest norm of the four unfoldings, so that `k` times it bounds the convolution's norm.

    With phases `a`, `b` of k entries of modulus one, a transfer matrix is `(I x a)^T M (I x b)` for the
    unfolding (c k) x (c k), and `M (I x a x b)` for c x (c k k): its norm is at most `k ||M||`, whatever
    the image. For k_h x k_w taps, k is the root of their product. The other two are transposes of these, up to
    order and sign, because the kernel is skew.
    """
    c, _, kh, kw = skew.shape
    # A zero kernel stays zero whatever it is divided by; a constant in its place keeps the gradient finite.
    skew = torch.where(skew.detach().any(), skew, 1)
    flat, mixed = skew.reshape(c, -1), skew.permute(0, 2, 1, 3).reshape(c * kh, c * kw)
    return torch.minimum(_norm_bound(flat), _norm_bound(mixed))


def _norm_bound(x: Tensor) -> Tensor:  # m n -> ()
    """`||(X X^T)^(2^t)||_F^(1 / 2^(t+1))`, the l_p norm of the singular values, p = 2^(t+2), t squarings."""
    gram, bound = x @ x.T, x.new_ones(())
    for t in range(_SQUARINGS + 1):
        size = torch.linalg.matrix_norm(gram)
        bound = bound * size ** (0.5 ** (t + 1))
        gram = gram / size  # norm one, so that its square can neither overflow nor vanish
        if t < _SQUARINGS:
            gram = gram @ gram
    return bound
