"""Comparisons among measured results: ablations, seeds, self-training, and the l-infinity attack."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

from lotnet.config import SelfTrainingConfig
from lotnet.paper.results import Result, StudentResult, is_result_of, unlabeled
from lotnet.paper.tables import ACCURACIES, Row, rows

Percentages = dict[str, float]


@dataclass(frozen=True)
class AblationPair:
    """Two networks that differ in one respect: as in the paper's main tables, and changed."""

    usual: Row
    changed: Row
    ours: tuple[Result, Result]

    def differences(self) -> tuple[Percentages, Percentages]:
        """Accuracy gain of the usual network over the changed one: the paper's figures, and ours."""
        usual, changed = (result.percentages() for result in self.ours)
        paper = {key: getattr(self.usual, key) - getattr(self.changed, key) for key in ACCURACIES}
        return paper, {key: usual[key] - changed[key] for key in ACCURACIES}


def ablations(results: list[Result]) -> list[AblationPair]:
    """The paper's ablations of which we have both networks with the same epochs; the longest runs of them."""
    found = []
    for table, is_usual in (("abl-residual", _residual), ("abl-padding", _zero)):
        mine = [row for row in rows() if row.table == table]
        for conv in dict.fromkeys(row.conv for row in mine):
            usual, changed = sorted((row for row in mine if row.conv == conv), key=is_usual, reverse=True)
            pair = _longest_pair(results, usual, changed)
            if pair is not None:
                found.append(AblationPair(usual, changed, pair))
    return found


def _residual(row: Row) -> bool:
    return bool(row.residual)


def _zero(row: Row) -> bool:
    return row.padding == "zero"


def _longest_pair(results: list[Result], one: Row, other: Row) -> tuple[Result, Result] | None:
    runs = [{r.epochs: r for r in results if is_result_of(r, row) and r.run_config.seed == 0} for row in (one, other)]
    common = runs[0].keys() & runs[1].keys()
    return (runs[0][max(common)], runs[1][max(common)]) if common else None


@dataclass(frozen=True)
class Seeds:
    """Runs that differ only in their seed."""

    results: tuple[Result, ...]

    def mean(self) -> Percentages:
        return mean_of(self.results)

    def spread(self) -> Percentages:
        """Sample standard deviations."""
        return {key: stdev(result.percentages()[key] for result in self.results) for key in ACCURACIES}


def mean_of(results: Iterable[Result]) -> Percentages:
    """Means of accuracies in percent."""
    found = [result.percentages() for result in results]
    return {key: fmean(percentages[key] for percentages in found) for key in ACCURACIES}


def repeated(results: list[Result]) -> list[Seeds]:
    """Every setting that was run with two or more seeds."""
    groups: dict[tuple[str, SelfTrainingConfig | None], list[Result]] = {}
    for result in results:
        learned = None if result.selftraining is None else result.selftraining.settings
        settings = result.run_config.override({"seed": 0}).fingerprint()
        groups.setdefault((settings, learned), []).append(result)
    return [Seeds(tuple(group)) for group in groups.values() if len({r.run_config.seed for r in group}) > 1]


@dataclass(frozen=True)
class SelfTrained:
    """A student beside the network that was trained on the same labels alone."""

    student: Result
    learned: StudentResult
    images: int
    """Unlabeled images that the student has learned from."""
    baseline: Percentages
    about_baseline: str
    """What the baseline is, in words."""

    def differences(self) -> Percentages:
        """Accuracy gain over the baseline, in points."""
        found = self.student.percentages()
        return {key: found[key] - self.baseline[key] for key in ACCURACIES}


def selftrained(results: list[Result]) -> list[SelfTrained]:
    """Every student of self-training that has something to be compared with, by network and number of images."""
    found = []
    for student in results:
        if (learned := student.selftraining) is None:
            continue
        baseline = _supervised(student, learned, results) if learned.settings.labeled is None else _teacher(learned)
        if baseline is not None:
            found.append(SelfTrained(student, learned, unlabeled(student), *baseline))
    return sorted(found, key=lambda item: (item.student.run_config.model.layers, item.images))


def with_all_labels(found: list[SelfTrained]) -> list[SelfTrained]:
    """The students that know all labels, as the paper's."""
    return [item for item in found if item.learned.settings.labeled is None]


def _teacher(learned: StudentResult) -> tuple[Percentages, str]:
    """The teacher, which is trained on the labels that are not hidden."""
    return learned.teacher_percentages(), f"its teacher, on {learned.settings.labeled:.0%} of the labels"


def _supervised(student: Result, learned: StudentResult, results: list[Result]) -> tuple[Percentages, str] | None:
    """The same network trained without unlabeled images for about as many steps: the mean over its seeds."""
    alike = _fingerprint(student)
    runs = [r for r in results if r.selftraining is None and _fingerprint(r) == alike]
    if not runs:
        return None
    epochs = min((r.epochs for r in runs), key=lambda n: (abs(n - _equal_epochs(student, learned)), n))
    chosen = [r for r in runs if r.epochs == epochs]
    seeds = f", mean of {len(chosen)} seeds" if len(chosen) > 1 else ""
    return mean_of(chosen), f"supervised, {epochs} epochs{seeds}"


def _fingerprint(result: Result) -> str:
    """The fingerprint of a run's settings apart from its seed and its number of epochs."""
    return result.run_config.override({"seed": 0, "trainer.epochs": 1}).fingerprint()


def _equal_epochs(student: Result, learned: StudentResult) -> float:
    """Epochs in which supervised training takes as many steps as the student did."""
    if learned.settings.unlabeled_share is not None:
        return student.epochs / (1 - learned.settings.unlabeled_share)
    return student.epochs * (1 + learned.images.learned_from / learned.images.labeled)


def paper_gain(student: Result) -> Percentages | None:
    """Accuracy gain of the paper's student over its supervised network, in points; None if the paper has no student."""
    mine = next((row for row in rows() if is_result_of(student, row)), None)
    if mine is None:
        return None
    name, same = mine.table.replace("ssl", "sup"), (mine.dataset, mine.model, mine.conv)
    other = next(row for row in rows() if row.table == name and (row.dataset, row.model, row.conv) == same)
    return {key: getattr(mine, key) - getattr(other, key) for key in ACCURACIES}
