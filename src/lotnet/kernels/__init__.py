"""What runs where: Triton kernels, and the choice between them and plain PyTorch."""
