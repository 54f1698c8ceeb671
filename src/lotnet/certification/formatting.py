"""Rounding of proved numbers for display: radii are rounded down, bounds are rounded up."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def rounded_down(value: float, digits: int) -> Decimal:
    return Decimal(value).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_FLOOR)


def rounded_up(bound: float, digits: int = 9) -> str:
    if not math.isfinite(bound):
        return "none"
    return str(Decimal(bound).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING))
