"""The default data set: handwritten digits of 8 x 8 pixels, which come with the package.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998 (doi 10.24432/C50P49, CC BY 4.0), the 1797 images that scikit-learn ships. Images have one channel.
Grey levels 0..16 are scaled to 0..255 and rounded. A stratified fifth of the images (seed 0) is the test split.
`tests/data/test_digits.py` rebuilds the file from scikit-learn and compares it with the stored one.
"""

from __future__ import annotations

from pathlib import Path

from lotnet.data import cache
from lotnet.data.dataset import Augmentation, Dataset
from lotnet.data.source import Source

FILE = Path(__file__).with_name("digits.safetensors")


def read(_: str = "") -> Dataset:
    """Read the data set from the package. The argument is ignored."""
    return cache.read(FILE)


SOURCE = Source(
    about="1797 handwritten digits, grey, 8 x 8, 10 classes, part of the package",
    read=read,
    # A mirrored 2 is not a digit, and a shift by 4 is too much for 8 pixels.
    augmentation=Augmentation(padding=1, flip=False),
)
