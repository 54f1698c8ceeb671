"""Triton kernels, their plain PyTorch equivalents, and the choice between them."""
