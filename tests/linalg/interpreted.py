"""Imported before Triton kernels are: where there is no GPU they run under Triton's interpreter, or not at all."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is defined
pytest.importorskip("triton", reason="Triton is not installed here")
