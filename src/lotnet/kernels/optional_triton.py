"""Triton where it is installed: it comes with CUDA builds of PyTorch.

Without it the kernels of this package can still be imported, so no import has to be delayed. They cannot be launched.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

_Kernel = Callable[..., Any]


def _load() -> tuple[Any, Any, Callable[[_Kernel], Any]]:
    try:
        import triton
        import triton.language
    except ImportError:  # kernels name `tl.constexpr` in their signatures
        return None, SimpleNamespace(constexpr=None), lambda kernel: kernel
    return triton, triton.language, triton.jit


triton, tl, jit = _load()
