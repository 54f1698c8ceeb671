"""Orthogonalisation of all layers of a model together, and training steps as CUDA graphs."""

from lotnet.orthogonalize.block import orthogonalized
from lotnet.orthogonalize.captured import CapturedGradients

__all__ = ["CapturedGradients", "orthogonalized"]
