"""The precision settings, and that they are restored, whichever of PyTorch's two interfaces a program uses."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lotnet.training.precision import arithmetic, evaluating

CUDA, CUDNN, MKLDNN = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.mkldnn


def newer(products: str, convolutions: str) -> None:
    CUDA.fp32_precision, CUDNN.conv.fp32_precision = products, convolutions


def older(products: str, convolutions: bool) -> None:
    torch.set_float32_matmul_precision(products)
    CUDNN.allow_tf32 = convolutions


def on_cpus(precision: str) -> None:
    MKLDNN.matmul.fp32_precision = precision


SETTINGS: dict[str, Callable[[], None]] = {
    "older, fast": lambda: older("high", True),
    "older, faster": lambda: older("medium", True),
    "older, exact": lambda: older("highest", False),
    "newer, fast": lambda: newer("tf32", "tf32"),
    "newer, exact": lambda: newer("ieee", "ieee"),
    "newer, mixed": lambda: newer("tf32", "ieee"),
    "newer, for CPUs": lambda: on_cpus("bf16"),
    "older, then newer": lambda: (older("high", True), newer("ieee", "ieee"), on_cpus("ieee"))[0],
}
PARTS = (CUDA, CUDNN.conv, CUDNN.rnn, MKLDNN.matmul)


def state() -> tuple[str, ...]:
    """Every setting that can be read, with "refused" where PyTorch raises."""
    said = [part.fp32_precision for part in PARTS]
    for ask in (torch.get_float32_matmul_precision, lambda: str(CUDNN.allow_tf32)):
        try:
            said.append(ask())
        except RuntimeError:
            said.append("refused")
    return tuple(said)


@pytest.fixture(autouse=True)
def _reset_precision() -> Iterator[None]:
    """Reset the settings to those of a fresh process, before and after each test."""
    fresh = "highest", True, ["none", "tf32", "tf32", "none"]
    for turn in range(2):
        older(*fresh[:2])
        for part, precision in zip(PARTS, fresh[2], strict=True):
            part.fp32_precision = precision
        if turn == 0:
            yield


def test_the_fixture_resets_to_the_state_of_a_fresh_process() -> None:
    code = "from test_precision import state; print(*state())"
    found = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert found.stdout.split() == list(state()), found.stderr


def test_the_settings_of_a_fresh_process_are_restored() -> None:
    before = state()
    with evaluating():
        assert state() != before
    assert state() == before


@pytest.mark.parametrize("setting", SETTINGS)
def test_evaluation_is_exact_and_restores_the_settings(setting: str) -> None:
    SETTINGS[setting]()
    before = state()
    for _ in range(2):
        with evaluating():
            assert CUDA.fp32_precision == "ieee" and CUDNN.conv.fp32_precision != "tf32"
            assert torch.get_float32_matmul_precision() == "highest" and not CUDNN.allow_tf32
        assert state() == before
        with arithmetic(tf32=True):
            assert CUDNN.allow_tf32
            assert (torch.get_float32_matmul_precision() == "high") == torch.cuda.is_available()
        assert state() == before


def test_an_error_restores_the_settings_too() -> None:
    newer("tf32", "tf32")
    before = state()
    with pytest.raises(ZeroDivisionError), arithmetic(tf32=False):
        _ = 1 / 0
    assert state() == before
