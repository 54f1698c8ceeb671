"""What arithmetic is set to, and that it is put back, whichever of PyTorch's two interfaces a program uses."""

from collections.abc import Callable, Iterator

import pytest
import torch

from lotnet.training.precision import arithmetic, evaluating

CUDA, CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn


def newer(products: str, convolutions: str) -> None:
    CUDA.fp32_precision, CUDNN.conv.fp32_precision = products, convolutions


def older(products: str, convolutions: bool) -> None:
    torch.set_float32_matmul_precision(products)
    CUDNN.allow_tf32 = convolutions


SETTINGS: dict[str, Callable[[], None]] = {
    "as it comes": lambda: None,
    "older, fast": lambda: older("high", True),
    "older, faster": lambda: older("medium", True),
    "older, exact": lambda: older("highest", False),
    "newer, fast": lambda: newer("tf32", "tf32"),
    "newer, exact": lambda: newer("ieee", "ieee"),
    "newer, mixed": lambda: newer("tf32", "ieee"),
    "older, then newer": lambda: (older("high", True), newer("ieee", "ieee"))[0],
}


def state() -> tuple[str, ...]:
    """All that can be asked, with refusals."""
    said = [CUDA.fp32_precision, CUDNN.conv.fp32_precision]
    for ask in (torch.get_float32_matmul_precision, lambda: str(CUDNN.allow_tf32)):
        try:
            said.append(ask())
        except RuntimeError:
            said.append("refused")
    return tuple(said)


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    with arithmetic(tf32=False):
        yield


@pytest.mark.parametrize("setting", SETTINGS)
def test_evaluation_is_exact_and_leaves_no_trace(setting: str) -> None:
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


def test_a_failure_inside_leaves_no_trace_either() -> None:
    newer("tf32", "tf32")
    before = state()
    with pytest.raises(ZeroDivisionError), arithmetic(tf32=False):
        _ = 1 / 0
    assert state() == before
