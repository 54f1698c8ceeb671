"""Every plot of the project: its axes have labels, its text is readable 600 pixels wide, and it names no file."""

import re
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from matplotlib.text import Text

import beyond_figure
import curves
import paper_figure
import speed_report
from lotnet.analysis import features, landscape, newton, tightness
from lotnet.analysis.plotting import SMALL, WIDTH, round_levels, shades

RESULTS = Path(__file__).parents[2] / "results"
NAMES = ["LOT", "SOC", "LOT, no residual connections"]
COMMON = "LipConvnet-20 with 16 channels, offset cross-entropy, last-layer normalisation, circular padding, CIFAR-10"


def draw_newton(_: Path) -> None:
    steps = newton.Convergence((0.5, 0.9, 1.0), (0.1, 0.5, 1.0))
    layers = [newton.LayerConvergence(f"{n}.x", (4, 8), 3, 9.0, steps, (9.0, 1.0, None), steps) for n in range(21)]
    newton.draw(layers, COMMON)


def draw_landscape(_: Path) -> None:
    bowl = landscape.Landscape((-1.0, 0.0, 1.0), ((2.0, 1.0, 2.0), (1.0, 0.0, 1.0), (2.0, 1.0, 2.0)))
    landscape.draw(dict.fromkeys(NAMES, bowl), COMMON)


def draw_features(_: Path) -> None:
    images = torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    item = features.Features(3, tuple(range(16)), (0.0,) * 16, (1.0,) * 16, images)
    features.draw(dict.fromkeys(NAMES, item), COMMON)


def draw_tightness(_: Path) -> None:
    stages = [tightness.Stage(str(n), "Spectrum", (8, 4, 4), 0.9, 0.9 ** (20 - n)) for n in range(20)]
    found = tightness.Tightness(stages, 0.12, (0.1, 0.2))
    subjects: dict[str, Any] = {f"runs/{name}": SimpleNamespace(name=name, method=name[:3].lower()) for name in NAMES}
    tightness.draw(subjects, dict.fromkeys(subjects, found), COMMON)


PLOTS: dict[str, Callable[[Path], None]] = {
    "newton": draw_newton,
    "landscape": draw_landscape,
    "features": draw_features,
    "tightness": draw_tightness,
    "curves": lambda folder: curves.main(["cifar10-lipconvnet20-lot-emma", "cifar10-lipconvnet20-lot-creg-hh"], folder),
    "beyond": lambda folder: beyond_figure.main(["cifar10-lipconvnet20-lot-emma"], folder),
    "paper": paper_figure.main,
    "speed": lambda folder: speed_report.main(folder / "speed.json"),
}


@pytest.mark.parametrize("plot", PLOTS)
def test_a_plot_is_readable_and_labeled(plot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    drawn: list[tuple[Figure, BytesIO]] = []
    save = Figure.savefig

    def saved(figure: Figure, file: BytesIO, **more: Any) -> None:
        save(figure, file, **more)
        drawn.append((figure, file))

    monkeypatch.setattr(Figure, "savefig", saved)
    PLOTS[plot](tmp_path)
    assert drawn
    for figure, file in drawn:
        check_contents(figure)
        check_margins(Image.open(file))


def check_margins(picture: Image.Image) -> None:
    """Nothing is cut off: the outermost pixels to the left and to the right are white."""
    pixels = np.asarray(picture.convert("L"))
    assert pixels[:, :2].min() == 255 and pixels[:, -2:].min() == 255


def check_contents(figure: Figure) -> None:
    assert figure.get_size_inches()[0] <= WIDTH
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert all(text.get_fontsize() >= SMALL for text in texts)
    assert not any(re.search(r"runs/|_|\.json", text.get_text()) for text in texts)
    shared = bool(figure.get_supxlabel()) and bool(figure.get_supylabel())
    for axes in figure.axes:
        if axes.axison and axes.lines:
            assert shared or axes.get_xlabel()
        if axes.patches:
            assert axes.get_xscale() == axes.get_yscale() == "linear", "bars start at zero, which a log axis has not"


def test_shades_keep_their_order_in_grey() -> None:
    lightness = [0.3 * r + 0.59 * g + 0.11 * b for r, g, b, _ in shades(9)]
    assert lightness == sorted(lightness) and len(set(lightness)) == 9 and len(shades(1)) == 1


@pytest.mark.parametrize(("low", "high"), [(0.703, 2.216), (1.0, 1.0), (-3e-4, 2e-4), (17, 4100)])
def test_levels_are_round_and_cover_the_values(low: float, high: float) -> None:
    levels = round_levels(low, high, 16)
    step = levels[1] - levels[0]
    digits = f"{step:.6e}".split("e")[0].rstrip("0").rstrip(".")
    assert digits in ("1", "2", "2.5", "5")
    assert levels[0] <= low + 1e-9 * step and levels[-1] >= high - 1e-9 * step and 2 <= len(levels) <= 19
