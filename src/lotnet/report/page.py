"""Render collected runs as one HTML file that needs no network."""

import base64
import hashlib
import math
from importlib import metadata, resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lotnet.certification.formatting import rounded_down
from lotnet.certification.plain import in_255ths
from lotnet.data import Split
from lotnet.errors import InputError
from lotnet.report import tables
from lotnet.report.chart import Chart, Series, chart
from lotnet.report.collect import RunData
from lotnet.report.gallery import KINDS, Card, gallery

_TAIL = 0.005
"""The curve and its slider end where less than this share of images is certified."""


def render(runs: list[RunData], split: Split | None, radius: float) -> str:
    """Render the page. The slider starts at `radius`.

    `split` has the certified images, or is None if they cannot be read.
    """
    # Names of runs and classes are untrusted: everything is escaped, and only this script may run.
    environment = Environment(
        loader=PackageLoader("lotnet.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": tables.percent, "in_255ths": in_255ths, "rounded_down": rounded_down}
    script, style = (_asset(name) for name in ("page.js", "page.css"))
    steps = _slider_steps(runs)
    if radius > steps / 255:
        raise InputError(f"a radius of {radius:g} is beyond the end of the curve: choose one below {steps / 255:.2f}")
    charts = {"curve": _curve(runs, steps), **{made.key: made for made in _training_charts(runs)}}
    cards = {} if split is None else {n: gallery(run, split, len(runs)) for n, run in enumerate(runs)}
    return environment.get_template("page.html").render(
        runs=runs,
        models=[_model(run) for run in runs],
        radius=radius,
        steps=steps,
        presets=sorted({0.0, radius, *runs[0].certification.summary.radii}),
        classes=[[_by_class(run, label, radius) for run in runs] for label in range(len(runs[0].classes))],
        charts=charts,
        cards=cards,
        kinds=_kinds(cards),
        largest=[float(np.where(run.correct, run.radii, 0).max()) for run in runs],
        comparison=tables.comparison(runs),
        confusions=[made for run in runs if (made := tables.confusion(run)) is not None],
        claims=[tables.claims(run, slot) for slot, run in enumerate(runs)],
        attacks=tables.attacks(runs),
        training=tables.training(runs),
        audits=[tables.audit(run, slot) for slot, run in enumerate(runs)],
        provenance=tables.provenance(runs),
        settings=tables.settings(runs),
        data={"radius": radius, "runs": [_packed(run) for run in runs], "charts": _values(charts)},
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=Markup(style),
        version=metadata.version("lotnet"),
    )


def _asset(name: str) -> str:
    return (resources.files("lotnet.report") / "templates" / name).read_text()


def _slider_steps(runs: list[RunData]) -> int:
    """Length of the slider in 255ths: to a little beyond the start of `_TAIL`, and at least to the paper's radii."""
    ends = [*tables.PAPER]
    for run in runs:
        held = np.sort(np.where(run.correct, run.radii, 0.0))
        ends.append(float(held[-1 - int(_TAIL * len(held))]))
    return math.ceil(255 * 1.04 * max(ends))


def _model(run: RunData) -> str:
    """The model in a few words."""
    model = run.config.model
    depth = f"-{model.depth}" if hasattr(model, "depth") else ""
    name = model.parametrization
    layers = name.upper() if len(name) < 5 else name.capitalize()  # LOT is an acronym, Cayley a name
    kind = f"{type(model).__name__}{depth}, {layers} layers"
    return f"{kind}, {type(run.config.loss).__name__} loss"


def _by_class(run: RunData, label: int, radius: float) -> dict[str, Any]:
    mine = run.labels == label
    count = max(1, int(mine.sum()))
    right = mine & run.correct
    return {
        "images": int(mine.sum()),
        "clean": int(right.sum()) / count,
        "certified": int((right & (run.radii > radius)).sum()) / count,
    }


def _curve(runs: list[RunData], steps: int) -> Chart:
    lines: list[Series] = []
    marks: list[Series] = []
    for slot, run in enumerate(runs):
        lines.append((slot, run.name, [(k / 255, run.certified(k / 255)) for k in range(steps + 1)]))
        if run.paper is not None:
            known = {radius: getattr(run.paper, name) for radius, name in {0.0: "clean", **tables.PAPER}.items()}
            points = [(radius, share / 100) for radius, share in known.items() if share is not None]
            marks.append((slot, f"Paper, {run.paper.model} {run.paper.conv}", points))
    end = steps / 255
    return chart("curve", "", "l2 radius, pixels in [0, 1]", lines, marks=marks, x_range=(0.0, end), percent=True)


def _training_charts(runs: list[RunData]) -> list[Chart]:
    radius = in_255ths(runs[0].config.trainer.radius)
    epochs = float(max(record.epoch for run in runs for record in run.metrics))
    wanted = {
        "loss": ("Training loss", lambda record: record.loss),
        "clean": ("Clean accuracy, validation", lambda record: math.nan if record.clean is None else record.clean),
        "certified": (
            f"Certified at {radius}, validation",
            lambda record: record.certified.get(radius, math.nan),
        ),
    }
    made = []
    for key, (title, value) in wanted.items():
        lines = [
            (slot, run.name, [(float(record.epoch), float(value(record))) for record in run.metrics])
            for slot, run in enumerate(runs)
        ]
        made.append(chart(key, title, "Epoch", lines, x_range=(0.0, epochs), percent=key != "loss"))
    return made


def _kinds(cards: dict[int, dict[str, list[Card]]]) -> dict[str, tuple[str, str]]:
    """The kinds that have images."""
    return {kind: words for kind, words in KINDS.items() if any(of_run[kind] for of_run in cards.values())}


def _packed(run: RunData) -> dict[str, Any]:
    """Data of the slider: the exact radii of the correctly classified images, class by class, smallest first."""
    of_class = [np.sort(run.radii[run.correct & (run.labels == label)]) for label in range(len(run.classes))]
    return {
        "name": run.name,
        "images": len(run),
        "classes": [[int((run.labels == label).sum()), len(held)] for label, held in enumerate(of_class)],
        "radii": base64.b64encode(np.concatenate(of_class).astype("<f8").tobytes()).decode(),
    }


def _values(charts: dict[str, Chart]) -> dict[str, Any]:
    """Values that a chart shows under the pointer. JSON has no NaN, so gaps are null."""
    return {
        key: {
            "x": made.x_range,
            "y": made.y_range,
            "percent": made.percent,
            "lines": [
                {
                    "slot": line.slot,
                    "name": line.name,
                    "points": [[x, round(y, 6) if math.isfinite(y) else None] for x, y in line.points],
                }
                for line in made.lines
            ],
        }
        for key, made in charts.items()
        if key != "curve"
    } | {"curve": {"x": charts["curve"].x_range, "y": charts["curve"].y_range}}
