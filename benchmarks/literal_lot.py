"""LOT as the paper prints it (Algorithm 1): the baseline to beat, and an oracle for the tests.

Full complex FFT, each matrix divided by ||V V*||_F^(1/2), ten coupled Newton steps, autograd through all of it. Only
the padding and the alignment are ours: k//2 zeros on each side (the paper pads k) and tap (k-1)//2 as the centre.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def newton_polar(v: Tensor, steps: int = 10) -> Tensor:  # (..., m, n)
    """`(V V*)^(-1/2) V` by coupled Newton iteration: Z tends to the inverse square root."""
    v = v / torch.linalg.matrix_norm(v @ v.mH, keepdim=True).sqrt()
    eye = torch.eye(v.shape[-2], dtype=v.dtype, device=v.device)
    y, z = v @ v.mH, eye
    for _ in range(steps):
        t = (3 * eye - z @ y) / 2
        y, z = y @ t, t @ z
    return z @ v


def literal_transfers(weight: Tensor, rows: int, columns: int, steps: int = 10) -> Tensor:
    """Orthogonalised matrices at all frequencies.  o i k k -> rows columns o i"""
    kh, kw = weight.shape[-2:]
    padded = F.pad(weight, (0, columns - kw, 0, rows - kh)).roll((-((kh - 1) // 2), -((kw - 1) // 2)), dims=(-2, -1))
    # Conjugated, because a layer correlates: y[p] is the sum of V[t] x[p + t].
    return newton_polar(torch.fft.fft2(padded).conj().permute(2, 3, 0, 1), steps)


def literal_lot(x: Tensor, weight: Tensor, padding_mode: str = "zeros", steps: int = 10) -> Tensor:  # b i h w
    height, width = x.shape[-2:]
    p = weight.shape[-1] // 2 if padding_mode == "zeros" else 0
    spectrum = torch.fft.fft2(F.pad(x, (p, p, p, p))).permute(2, 3, 1, 0)  # rows columns i b
    product = literal_transfers(weight, *spectrum.shape[:2], steps) @ spectrum
    y = torch.fft.ifft2(product.permute(3, 2, 0, 1))
    return y[..., p : p + height, p : p + width].real


class LiteralLOT(nn.Module):
    """The same as a layer, with the signature of `OrthogonalConv2d`; it iterates in evaluation too."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding_mode: str = "zeros",
        bias: bool = True,
        steps: int = 10,
    ) -> None:
        super().__init__()
        self.stride, self.padding_mode, self.steps = stride, padding_mode, steps
        fan_in = in_channels * stride**2
        self.weight = nn.Parameter(torch.randn(out_channels, fan_in, kernel_size, kernel_size) / fan_in**0.5)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = literal_lot(F.pixel_unshuffle(x, self.stride), self.weight, self.padding_mode, self.steps)
        return y if self.bias is None else y + self.bias[:, None, None]
