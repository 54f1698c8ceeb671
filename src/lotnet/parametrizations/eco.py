"""ECO, explicitly constructed orthogonal convolution: a kernel orthogonal at k x k frequencies, dilated."""

from dataclasses import dataclass

from torch import Tensor

from lotnet.errors import InputError
from lotnet.linalg.fourier import Grid, full_kernel, transfer
from lotnet.linalg.polar import accurate_polar, polar
from lotnet.operators import Kernel, Operator
from lotnet.parametrizations.base import Geometry, Parametrization, sides


@dataclass(frozen=True)
class ECO(Parametrization):
    """Explicitly constructed orthogonal convolution (ECO): orthogonal at k x k frequencies, then dilated.

    The polar factors of a kernel's k x k transfer matrices are transformed back to a k x k kernel, which is dilated by
    side / k.

    On a periodic image of n pixels a side, n a multiple of k, frequency f of the dilated kernel is frequency
    f mod k of the kernel, so the operator is orthogonal at all frequencies. Zeros around the image would need
    frequencies in between, where the norm exceeds one. So `zeros` appends zeros below and right up to the next
    multiple of k, convolves that image periodically, and crops. If the sides are multiples already, `zeros` is the
    same as `circular`.

    >>> import torch
    >>> from lotnet import OrthogonalConv2d
    >>> layer = OrthogonalConv2d(4, 4, 3, parametrization=ECO())
    >>> layer(torch.randn(2, 4, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        (kh, kw), height, width = sides(geometry.kernel_size), geometry.height, geometry.width
        extra = (-height % kh, -width % kw)
        if geometry.padding_mode == "circular" and extra != (0, 0):
            raise InputError(
                f"ECO with circular padding needs sides divisible by {geometry.kernel_size}, not {height} x {width}: "
                'resize the images or use padding_mode="zeros"'
            )
        grid = Grid(kh, kw)
        kernel = full_kernel((accurate_polar if frozen else polar)(transfer(weight, grid)), grid)
        dilation = ((height + extra[0]) // kh if kh > 1 else 1, (width + extra[1]) // kw if kw > 1 else 1)
        return Kernel(kernel, "circular", dilation, extra)
