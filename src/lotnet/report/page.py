"""Render collected runs as one HTML file that needs no network."""

import base64
import hashlib
from importlib import metadata, resources

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lotnet.certification.formatting import rounded_down
from lotnet.certification.plain import in_255ths
from lotnet.data import Split
from lotnet.errors import InputError
from lotnet.frozen.model import FrozenModel
from lotnet.palette import Style, styles
from lotnet.paper.titles import data_title
from lotnet.report import classes, curves, layers, tables
from lotnet.report.acronyms import expanded
from lotnet.report.collect import RunData
from lotnet.report.gallery import KINDS, OVERVIEW, Card, gallery
from lotnet.report.perturbation import strip


def render(runs: list[RunData], split: Split | None, radius: float, model: FrozenModel | None = None) -> str:
    """Render the page. The slider starts at `radius`.

    `split` has the certified images, or is None if they cannot be read. `model` is the frozen model of the first run;
    without it the example of a perturbation is a random one.
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
    script = _asset("web/theme.js") + _asset("report/templates/page.js")
    steps = curves.slider_steps(runs)
    if radius > steps / 255:
        raise InputError(f"a radius of {radius:g} is beyond the end of the curve: choose one below {steps / 255:.2f}")
    charts = [curves.certified_curve(runs, steps), *curves.training_charts(runs)]
    cards = {} if split is None else {n: gallery(run, split, len(runs)) for n, run in enumerate(runs)}
    settings = tables.settings(runs)
    return environment.get_template("page.html").render(
        runs=runs,
        data_title=data_title(runs[0].certification.data),
        radius=radius,
        steps=steps,
        presets=sorted({0.0, radius, *runs[0].certification.summary.radii}),
        classes=[[classes.by_class(run, label, radius) for run in runs] for label in range(len(runs[0].classes))],
        charts={made.key: made for made in charts},
        acronyms=expanded([run.title for run in runs]),
        what_to_see=curves.what_to_see(runs),
        strip=None if split is None else strip(runs[0], split, model),
        cards=cards,
        kinds=_kinds(cards),
        overview=OVERVIEW,
        largest=[float(np.where(run.correct, run.radii, 0).max()) for run in runs],
        comparison=tables.comparison(runs),
        differences=tables.differences(settings),
        confusions=[classes.confusion(run, radius) for run in runs],
        confused_pairs=[classes.confused_pairs(run, radius) for run in runs],
        claims=[tables.claims(run, slot) for slot, run in enumerate(runs)],
        attacks=tables.attacks(runs),
        training=tables.training(runs),
        audits=[layers.audit(run, slot) for slot, run in enumerate(runs)],
        multiplied=[layers.multiplied(run) for run in runs],
        residuals=any(map(layers.has_residuals, runs)),
        concatenations=any(map(layers.has_concatenations, runs)),
        provenance=tables.provenance(runs),
        settings=settings,
        data={"radius": radius, "runs": [classes.packed(run) for run in runs], "charts": curves.values(charts)},
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=Markup(_asset("web/style.css") + _colors(runs)),
        version=metadata.version("lotnet"),
    )


def _asset(path: str) -> str:
    return (resources.files("lotnet") / path).read_text()


def _colors(runs: list[RunData]) -> str:
    """The style of each run's lines and numbers: the color of its method, or of its loss."""
    drawn = styles([(run.config.model.parametrization, run.loss) for run in runs])
    return "".join(_rule(slot, style) for slot, style in enumerate(drawn))


def _rule(slot: int, style: Style) -> str:
    dash = " ".join(f"{2.25 * length:g}px" for length in style.dash) or "none"
    return f".s{slot} {{ --c: light-dark({style.light}, {style.dark}); --dash: {dash}; }}\n"


def _kinds(cards: dict[int, dict[str, list[Card]]]) -> dict[str, tuple[str, str]]:
    """The kinds that have images."""
    return {kind: words for kind, words in KINDS.items() if any(of_run[kind] for of_run in cards.values())}
