"""The results of self-training as tables on the console."""

from statistics import fmean

from rich.console import Console
from rich.table import Table

from lotnet.certification.plain import in_255ths
from lotnet.selftraining.results import Results, SeedResult, spread

_SHARES = {
    "teacher_error": "teacher wrong (held-out labels)",
    "worst_class_error": "... in its worst class",
    "disagreement": "student and teacher disagree (unlabeled)",
    "inconsistency": "label not proved constant within {ball}",
    "wrong_pseudo_labels": "pseudo-labels wrong (hidden labels)",
}


def show(results: Results, console: Console) -> None:
    """Print the accuracies, the quantities that the theorems are about, and what the theorems say."""
    console.print(_accuracies(results))
    console.print(_shares(results.seeds))
    for sentence, seeds in _sentences(results.seeds).items():
        of = "" if len(seeds) == len(results.seeds) else f" (seed {', '.join(map(str, seeds))})"
        console.print(f"{sentence}{of}", soft_wrap=True, highlight=False, markup=False)


def _accuracies(results: Results) -> Table:
    first, comparison = results.seeds[0], results.compare()
    count = len(results.seeds)
    seeds = f"mean ± standard deviation of {count} seeds" if count > 1 else f"seed {first.seed}"
    table = Table(title=f"Certified accuracy in % of {first.images.test} test images, claim B", caption=seeds)
    table.add_column("")
    for heading in comparison.columns:
        table.add_column(heading, justify="right")
    for who, means in comparison.mean.items():
        sign = "+" if who == "difference" else ""
        *accuracies, radius = zip(means, comparison.spread[who], strict=True)
        table.add_row(who, *(_percent(*cell, sign) for cell in accuracies), _with_spread(*radius, 4, sign))
    return table


def _shares(seeds: tuple[SeedResult, ...]) -> Table:
    table = Table(title="Quantities of the theorems, in % of the images counted")
    table.add_column("")
    table.add_column("images", justify="right")
    table.add_column("share", justify="right")
    for name, words in _SHARES.items():
        counted = [share for result in seeds if (share := result.measured.counts()[name]) is not None]
        if len(counted) == len(seeds):
            ball = in_255ths(seeds[0].measured.ball)
            totals = " to ".join(map(str, sorted({share.among for share in counted})))
            values = tuple(share.value for share in counted)
            table.add_row(words.format(ball=ball), totals, _percent(fmean(values), spread(values)))
    return table


def _sentences(seeds: tuple[SeedResult, ...]) -> dict[str, list[int]]:
    """The sentences of all seeds without repetition, each with its seeds."""
    found: dict[str, list[int]] = {}
    for statements in zip(*(result.theorems for result in seeds), strict=True):
        for result, statement in zip(seeds, statements, strict=True):
            found.setdefault(statement.sentence, []).append(result.seed)
    return found


def _percent(mean: float, spread: float | None, sign: str = "") -> str:
    """With a spread, one digit after the point: 80 columns have no room for more, and no more are certain."""
    if spread is None:
        return _with_spread(100 * mean, None, 2, sign)
    return _with_spread(100 * mean, 100 * spread, 1, sign)


def _with_spread(mean: float, spread: float | None, digits: int, sign: str) -> str:
    return f"{mean:{sign}.{digits}f}" + ("" if spread is None else f"±{spread:.{digits}f}")
