"""95 % intervals of accuracies: how far a share of so many images may be from the share of all images like them."""

import math

Interval = tuple[float, float]
_Z = 1.959963984540054  # the normal distribution has 95 % of its mass within this many standard deviations


def wilson(share: float, images: int) -> Interval:
    """Wilson's score interval of a share of independent images. It stays within [0, 1], also for shares of 0 and 1.

    >>> low, high = wilson(0.8, 100)
    >>> f"{low:.3f} to {high:.3f}"
    '0.711 to 0.867'
    """
    if images < 1:
        return 0.0, 1.0
    shrink = 1 + _Z**2 / images
    center = (share + _Z**2 / (2 * images)) / shrink
    half = _Z / shrink * math.sqrt(share * (1 - share) / images + (_Z / (2 * images)) ** 2)
    return max(0.0, center - half), min(1.0, center + half)


def in_words(interval: Interval) -> str:
    """An interval in percent.

    >>> in_words((0.711, 0.867))
    '71.1 to 86.7%'
    """
    low, high = interval
    return f"{100 * low:.1f} to {high:.1%}"
