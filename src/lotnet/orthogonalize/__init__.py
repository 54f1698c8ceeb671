"""Orthogonalisation of all layers of a model together."""
