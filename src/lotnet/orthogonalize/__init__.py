"""Orthogonalises all layers of a model together."""
