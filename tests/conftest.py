"""Shared by every test."""

import torch

# The tests use small matrices, often several processes at a time: more threads would only wait for each other.
torch.set_num_threads(1)
