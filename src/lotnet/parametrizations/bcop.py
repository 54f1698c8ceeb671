"""BCOP, block convolution orthogonal parametrization: an orthogonal kernel of finite size."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lotnet.linalg.polar import accurate_polar, polar
from lotnet.operators import Kernel, Operator
from lotnet.parametrizations.base import Geometry, KernelSize, Parametrization, sides


@dataclass(frozen=True)
class BCOP(Parametrization):
    """Block convolution orthogonal parametrization (BCOP): a k x k kernel that is a product of small orthogonal steps.

    An orthogonal matrix comes first, then k - 1 steps along the rows and k - 1 along the columns.

    A step is `P + (I - P) z` with a projector P and the shift z by one pixel: it moves half of the channels, in
    some basis, by one pixel. Each step is orthogonal, and so is their product, a k x k kernel. If a source is
    singular, P is only between 0 and I. Then `|p + (1 - p) z| <= 1` for each of its eigenvalues p, so the largest
    singular value is still at most one.

    The weight holds c x c source matrices, with c the larger number of channels: one for the orthogonal matrix, then
    one for a row and one for a column projector of each step. Only their polar factors matter. A projector projects
    on the first columns of its polar factor. Ranks alternate between `c // 2` and `c - c // 2`, so that a step can
    undo the one before.

    >>> import torch
    >>> from lotnet import OrthogonalConv2d
    >>> layer = OrthogonalConv2d(4, 4, 3, parametrization=BCOP())
    >>> layer(torch.randn(2, 4, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def weight_shape(self, out_channels: int, in_channels: int, kernel_size: KernelSize) -> tuple[int, ...]:
        c = max(out_channels, in_channels)
        return (1 + len(_steps(kernel_size)), c, c)

    def initial_weight(self, out_channels: int, in_channels: int, kernel_size: KernelSize) -> Tensor:
        """Orthogonal sources. They are random, unless the channels are equal.

        For equal channels, every two steps move all channels by one pixel. The operator is the identity for odd k. For
        even k the last step has no partner, so the second half of the channels is shifted by one pixel along both axes.
        """
        weight = torch.empty(self.weight_shape(out_channels, in_channels, kernel_size))
        for source in weight:
            nn.init.orthogonal_(source)
        if out_channels == in_channels:
            eye = torch.eye(out_channels)
            weight[0] = eye
            for index, (step, _) in enumerate(_steps(kernel_size)):
                # Reversed, the first columns are the ones that the step before did not project on.
                weight[1 + index] = eye.flip(1) if step % 2 else eye
        return weight

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        matrix, *sources = (accurate_polar if frozen else polar)(weight).unbind()
        kernel = matrix[:, : geometry.in_channels].expand(1, 1, -1, -1)  # kh kw c i
        for source, (step, axis) in zip(sources, _steps(geometry.kernel_size), strict=True):
            rank = (len(source) + step % 2) // 2
            kernel = _step(kernel, source[:, :rank], axis)
        return Kernel(kernel[:, :, : geometry.out_channels].permute(2, 3, 0, 1).contiguous(), geometry.padding_mode)


def _steps(kernel_size: KernelSize) -> list[tuple[int, int]]:
    """The number and the axis of each step: rows and columns take turns, as long as both are left."""
    sizes = sides(kernel_size)
    return [(step, axis) for step in range(max(sizes) - 1) for axis in (0, 1) if step < sizes[axis] - 1]


def _step(kernel: Tensor, basis: Tensor, axis: int) -> Tensor:
    """`(P + (I - P) z) kernel`, z the shift along `axis`; P projects on the columns of `basis`."""
    staying = basis @ (basis.mT @ kernel)
    before = [0] * 8
    after = [0] * 8
    before[6 - 2 * axis], after[7 - 2 * axis] = 1, 1  # F.pad counts axes from the last
    return F.pad(staying, after) + F.pad(kernel - staying, before)
