"""The data of a report, read from run directories and checked."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lotnet.certification.plain import in_255ths
from lotnet.certification.summary import FORMAT
from lotnet.config import RunConfig
from lotnet.errors import InputError
from lotnet.paper.results import command_of, row_of_run
from lotnet.paper.tables import Row
from lotnet.runs.directory import FORMAT as RUN_FORMAT
from lotnet.runs.directory import Run


@dataclass(frozen=True, eq=False)
class RunData:
    """One certified run. Arrays have one entry per image, in the order of the certificates."""

    name: str
    config: RunConfig
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]
    certificates: dict[str, Any]
    """certificates.json without its images."""
    classes: tuple[str, ...]
    predictions: np.ndarray
    labels: np.ndarray
    margins: np.ndarray
    radii: np.ndarray
    """By claim B."""
    attacks: dict[str, Any] | None
    paper: Row | None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def right(self) -> np.ndarray:
        return self.predictions == self.labels

    @property
    def clean(self) -> float:
        return float(self.right.mean())

    def certified(self, radius: float) -> float:
        """Share of images that are classified correctly with a radius larger than `radius`."""
        return float((self.right & (self.radii > radius)).mean())

    @property
    def mean_radius(self) -> float:
        """Mean over all images, with radius zero for misclassified ones."""
        return float(np.where(self.right, self.radii, 0.0).mean())

    @property
    def about(self) -> str:
        """The images, in words. Radii of images of different sizes cannot be compared."""
        shape = " x ".join(str(self.environment["images"][key]) for key in ("channels", "height", "width"))
        return f"{self.certificates['data']}, {self.certificates['split']}, {shape}"

    @property
    def session(self) -> dict[str, Any]:
        """Where the training was started."""
        return self.environment["sessions"][0]


def collect(paths: list[Path]) -> list[RunData]:
    """Collect runs in the given order. They must be certified on the same data, so that accuracies are comparable."""
    if not paths:
        raise InputError("a report needs at least one run: name its folder, as in `lotnet report runs/demo`")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError("the same run is given twice: name each run once")
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    runs = [_collect(path, name) for path, name in zip(paths, names, strict=True)]
    for path, run in zip(paths[1:], runs[1:], strict=True):
        if run.about != runs[0].about or run.classes != runs[0].classes:
            raise InputError(
                f"{path} is certified on other data ({run.about}) than {paths[0]} ({runs[0].about}): "
                "make a page for each"
            )
    return runs


def _collect(path: Path, name: str) -> RunData:
    run = Run.open(path)
    certify = f"`lotnet certify {path}`"
    if not (path / "certificates.json").exists():
        raise InputError(f"{path} has no certificates yet: make them with {certify}")
    again = f"delete it, and `lotnet train --resume {path}` writes it again"
    environment = _read(path / "environment.json", again, _environment)
    classes = tuple(environment["classes"])
    with_images = _read(path / "certificates.json", f"make it again with {certify}", _certificates)
    run.check_certified(with_images)
    images = with_images.pop("images")
    if max(int(images["label"].max()), int(images["prediction"].max())) >= len(classes):
        raise InputError(f"{path / 'certificates.json'} has classes that the run has not: make it again with {certify}")
    return RunData(
        name=name,
        config=run.config,
        environment=environment,
        metrics=_read(path / "metrics.jsonl", "train the run again", lambda text: _metrics(text, run.config)),
        certificates=with_images,
        classes=classes,
        predictions=images["prediction"],
        labels=images["label"],
        margins=images["margin"],
        radii=images["radius_float"],
        attacks=_attacks(path, with_images["checksum"], len(classes)),
        paper=row_of_run(run.config, environment["sessions"][0]["command"]),
    )


def _attacks(path: Path, checksum: str, classes: int) -> dict[str, Any] | None:
    """What the model that is certified withstood, if it was attacked."""
    file = path / "attacks.json"
    if not file.exists():
        return None
    remedy = f"delete it, or make it again with `lotnet attack {path}`"
    found = _read(file, remedy, lambda text: _attack_content(text, classes))
    if found.get("checksum", checksum) != checksum:
        raise InputError(f"{file} is about another model than the certificates: {remedy}")
    return found


def _read(file: Path, remedy: str, parse: Callable[[str], Any]) -> Any:
    """A file that lotnet wrote, checked as far as the page needs it."""
    try:
        return parse(file.read_text())
    except OSError as error:
        raise InputError(f"cannot read {file} ({error.strerror}): {remedy}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
        raise InputError(f"{file} is damaged or of another version: {remedy}") from None


def _certificates(text: str) -> dict[str, Any]:
    content = json.loads(text)
    _expect(content["format"] == FORMAT and content["images"])
    types = {"prediction": np.int64, "label": np.int64, "margin": np.float64, "radius_float": np.float64}
    images = {key: np.array([image[key] for image in content["images"]], dtype=kind) for key, kind in types.items()}
    _expect(min(images["prediction"].min(), images["label"].min(), images["radius_float"].min()) >= 0)
    _expect(all(isinstance(content[key], str) for key in ("data", "split", "checksum", "device")))
    content["evaluation_seconds"] = float(content["evaluation_seconds"])
    summary = content["summary"]
    _expect(isinstance(summary["precision"], str) and float(summary["lipschitz_bound"]) > 0)
    for shares in summary["certified"].values():
        _expect(len(shares) == len(summary["radii"]) and all(0 <= float(share) <= 1 for share in shares))
    for row in content["audit"]:
        row["seconds"] = float(row["seconds"])
        _expect(isinstance(row["name"], str) and isinstance(row["kind"], str) and float(row["lipschitz_bound"]) >= 0)
    return content | {"images": images}


def _environment(text: str) -> dict[str, Any]:
    content = json.loads(text)
    _expect(content["format"] == RUN_FORMAT and content["sessions"] and isinstance(content["parameters"], int))
    _expect(all(isinstance(name, str) for name in content["classes"]))
    _expect({"channels", "height", "width"} <= content["images"].keys())
    for session in content["sessions"]:
        session["command"] = command_of(session["command"])
        _expect(isinstance(session["started"], str) and isinstance(session["commit"], str | None))
        _expect({"device", "processes", "processor", "cores"} <= session["hardware"].keys())
        _expect(session["versions"].keys())
    return content


def _metrics(text: str, config: RunConfig) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in text.splitlines()]
    for record in records:
        numbers = (record[key] for key in ("epoch", "loss", "clean", "seconds"))
        _expect(all(isinstance(number, int | float) for number in (*numbers, *record["certified"].values())))
        _expect(in_255ths(config.trainer.radius) in record["certified"])
    _expect(records)
    return records


def _attack_content(text: str, classes: int) -> dict[str, Any]:
    content = json.loads(text)
    for share in (content["clean"], content["certified"], *content["attacked"].values()):
        _expect(0 <= float(share) <= 1)
    _expect(float(content["radius"]) >= 0 and float(content["linf_radius"]) >= 0)
    _expect(all(isinstance(content[key], int) for key in ("images", "checked")))
    content["counterexamples"] = len(content["counterexamples"])
    for example in content.setdefault("nearest", []):
        example["perturbed"] = np.frombuffer(base64.b64decode(example["perturbed"], validate=True), "<f4")
        example["distance"] = float(example["distance"])
        _expect(0 <= example["index"] < content["images"] and 0 <= example["after"] < classes)
    return content


def _expect(condition: Any) -> None:
    if not condition:
        raise ValueError
