"""Orthogonalisation of all layers of a model together."""

from lotnet.orthogonalize.block import orthogonalized

__all__ = ["orthogonalized"]
