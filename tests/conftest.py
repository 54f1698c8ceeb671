"""Shared by every test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported, which lotnet does

from lotnet import AveragePool, FrozenModel, MaxMin, Normalize, NormalizedLinear, OrthogonalConv2d, freeze

# The matrices are small, and several test processes often run at a time: more threads would only wait for each other.
torch.set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU where there is none. With `-m gpu` they run, and fail, instead."""
    if torch.cuda.is_available() or config.option.markexpr == "gpu":
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: make gpu"))


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Frozen copies of shipped models and prepared data sets go to a temporary folder, also from other processes."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        if "LOTNET_DATA" not in os.environ:
            patch.setenv("LOTNET_DATA", str(folder))
        yield folder


@pytest.fixture(scope="session")
def model() -> FrozenModel:
    """A small untrained model for digits, with a spectrum, an average pool and a last layer with normalised rows.

    Its class names look like markup, and must be printed unchanged.
    """
    torch.manual_seed(0)
    layers = (OrthogonalConv2d(1, 4, 3), MaxMin(), AveragePool(4), nn.Flatten(), NormalizedLinear(16, 10))
    model = freeze(nn.Sequential(Normalize((0.3,), 0.37), *layers), (1, 8, 8))
    model.name_classes([f"[digit {n}]" for n in range(10)], "digits")
    return model


@pytest.fixture
def folder(model: FrozenModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new folder for each test, with the saved model."""
    path = tmp_path_factory.mktemp("models") / "model"
    model.save(path)
    return path


CHROMIUM = shutil.which("chromium")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""A browser that asks nobody for anything by itself."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright. One at a time, because Playwright's event loop cannot be nested."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[dev]")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()
