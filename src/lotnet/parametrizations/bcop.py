"""BCOP, block convolution orthogonal parametrization: an orthogonal kernel of finite size."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lotnet.linalg.polar import accurate_polar, polar
from lotnet.operators import Kernel, Operator
from lotnet.parametrizations.base import Geometry, Parametrization


@dataclass(frozen=True)
class BCOP(Parametrization):
    """An orthogonal matrix, then k - 1 steps along the rows and k - 1 along the columns.

    A step is `P + (I - P) z` with a projector P and z the shift by one pixel: half of the channels, in a
    basis of its own, moves on. Each step is orthogonal, and so is their product, a k x k kernel. Where a
    source is singular, P is only between 0 and I; then `|p + (1 - p) z| <= 1` for each eigenvalue p, so the
    law holds.

    The weight holds c x c sources, c the larger number of channels: the matrix, then a row and a column
    projector for each step. Their polar factors count, and of a projector's the first columns, which it
    projects on. Ranks alternate between `c // 2` and `c - c // 2`, so that a step can undo the one before.

    >>> import torch
    >>> from lotnet import OrthogonalConv2d
    >>> layer = OrthogonalConv2d(4, 4, 3, parametrization=BCOP())
    >>> layer(torch.randn(2, 4, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def weight_shape(self, out_channels: int, in_channels: int, kernel_size: int) -> tuple[int, ...]:
        c = max(out_channels, in_channels)
        return (2 * kernel_size - 1, c, c)

    def initial_weight(self, out_channels: int, in_channels: int, kernel_size: int) -> Tensor:
        """Orthogonal sources: random; if the channels are equal, such that two steps move all by one pixel.

        That is the identity for odd k; for even k the last step has no partner, and the second half of the
        channels is shifted by one pixel along both axes.
        """
        weight = torch.empty(self.weight_shape(out_channels, in_channels, kernel_size))
        for source in weight:
            nn.init.orthogonal_(source)
        if out_channels == in_channels:
            eye = torch.eye(out_channels)
            weight[0] = eye
            for step in range(kernel_size - 1):
                # Reversed, the first columns are those that the step before did not project on.
                weight[1 + 2 * step : 3 + 2 * step] = eye.flip(1) if step % 2 else eye
        return weight

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        matrix, *sources = (accurate_polar if frozen else polar)(weight).unbind()
        kernel = matrix[:, : geometry.in_channels].expand(1, 1, -1, -1)  # kh kw c i
        for index, source in enumerate(sources):
            step, axis = divmod(index, 2)
            rank = (len(source) + step % 2) // 2
            kernel = _step(kernel, source[:, :rank], axis)
        return Kernel(kernel[:, :, : geometry.out_channels].permute(2, 3, 0, 1).contiguous(), geometry.padding_mode)


def _step(kernel: Tensor, basis: Tensor, axis: int) -> Tensor:
    """`(P + (I - P) z) kernel`, z the shift along `axis`; P projects on the columns of `basis`."""
    staying = basis @ (basis.mT @ kernel)
    before = [0] * 8
    after = [0] * 8
    before[6 - 2 * axis], after[7 - 2 * axis] = 1, 1  # F.pad counts axes from the last
    return F.pad(staying, after) + F.pad(kernel - staying, before)
