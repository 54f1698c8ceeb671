"""Operations of the polar factors of a model and of their gradients, counted from the shapes of its layers."""

from torch import nn

from lotnet.linalg.polar import gradient_sigma_min, sigma_min
from lotnet.linalg.polynomials import schedule
from lotnet.linalg.sylvester import steps
from lotnet.orthogonalize import schedules
from lotnet.orthogonalize.block import known_layers


def polar_operations(model: nn.Module) -> dict[str, float | int]:
    """Floating-point operations of a step in TFLOP, and the most polynomials and steps of any layer.

    A product of matrices m x k and k x n takes 2 m k n operations, four times as many for complex ones; products that
    are Hermitian take half. The forward pass has P polynomials: X X* and its square, both Hermitian, and a product with
    X. If m < n it also multiplies the inverse. The gradient has H = X W*, M = G W*, K - 1 steps of one product (two,
    of which half is computed), and products with W, and, if m < n, with the inverse.
    """
    total, most, longest = 0.0, 0, 0
    for layer, geometry in known_layers(model):
        lot = schedules.settings(layer, geometry)
        m, n = sorted((geometry.out_channels, geometry.in_channels))
        lower = sigma_min(m, lot.condition)
        p, k = len(schedule(lower, lot.tolerance)), steps(gradient_sigma_min(m, lower), 1e-2)
        points = 1 if geometry.kernel_size == 1 else 2 * geometry.grid.rows * geometry.grid.columns
        square, oblong, wide = 2 * points * m**3, 2 * points * m * m * n, m < n
        forward = p * 1.5 * oblong + (p - 1) * (1 + wide) * square / 2
        backward = (2.5 + wide) * oblong + (k - 1 + wide) * square
        total += forward + backward
        most, longest = max(most, k), max(longest, p)
    return {"polar_tflop": total / 1e12, "polynomials": longest, "gradient_steps": most}
