"""Imported by tests of Triton kernels, which run under its interpreter where there is no GPU (see conftest.py)."""

import pytest

pytest.importorskip("triton", reason="Triton is not installed here")
