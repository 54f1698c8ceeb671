"""What self-training came to, over its seeds: teacher against student, and the theorems' quantities."""

from statistics import fmean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

from lotnet.certification.plain import in_255ths

Result = dict[str, Any]
"""Of one seed, as selftraining.json has it."""

_SHARES = {
    "teacher_error": "teacher wrong (held-out labels)",
    "worst_class_error": "... in its worst class",
    "disagreement": "student and teacher disagree (unlabelled)",
    "inconsistency": "label not proved constant within {ball}",
    "wrong_pseudo_labels": "pseudo-labels wrong (hidden labels)",
}


def over_seeds(results: list[Result]) -> dict[str, Any]:
    """Mean and spread, the sample standard deviation, of each column: clean, certified at each radius, mean radius.

    The spread of one seed is none. Differences are taken seed by seed.
    """
    rows = {who: [_columns(result[who]) for result in results] for who in ("teacher", "student")}
    rows["difference"] = [
        [s - t for s, t in zip(student, teacher, strict=True)]
        for student, teacher in zip(rows["student"], rows["teacher"], strict=True)
    ]
    return {
        "columns": ["clean", *map(in_255ths, results[0]["radii"]), "mean radius"],
        "mean": {who: [fmean(column) for column in zip(*seeds, strict=True)] for who, seeds in rows.items()},
        "spread": {who: [_spread(list(column)) for column in zip(*seeds, strict=True)] for who, seeds in rows.items()},
    }


def show(results: list[Result], console: Console) -> None:
    first, summary = results[0], over_seeds(results)
    seeds = f"mean ± standard deviation of {len(results)} seeds" if len(results) > 1 else f"seed {first['seed']}"
    table = Table(title=f"Certified accuracy in % of {first['images']['test']} test images, claim B", caption=seeds)
    table.add_column("")
    for heading in summary["columns"]:
        table.add_column(heading, justify="right")
    for who, means in summary["mean"].items():
        sign = "+" if who == "difference" else ""
        *accuracies, radius = zip(means, summary["spread"][who], strict=True)
        table.add_row(who, *(_percent(*cell, sign) for cell in accuracies), _with_spread(*radius, 4, sign))
    console.print(table)
    table = Table(title="What the theorems speak of, in % of so many images")
    table.add_column("")
    table.add_column("images", justify="right")
    table.add_column("share", justify="right")
    for name, words in _SHARES.items():
        shares = [result["measured"]["shares"][name] for result in results]
        if None not in shares:
            ball = in_255ths(first["measured"]["ball"])
            among = " to ".join(map(str, sorted({result["measured"][name]["among"] for result in results})))
            table.add_row(words.format(ball=ball), among, _percent(fmean(shares), _spread(shares)))
    console.print(table)
    for sentence, said_of in _sentences(results).items():
        of = "" if len(said_of) == len(results) else f" (seed {', '.join(map(str, said_of))})"
        console.print(f"{sentence}{of}", soft_wrap=True, highlight=False, markup=False)


def _sentences(results: list[Result]) -> dict[str, list[int]]:
    """What the theorems say, each sentence once, with the seeds it is about."""
    found: dict[str, list[int]] = {}
    for place in range(len(results[0]["theorems"])):
        for result in results:
            statement = result["theorems"][place]
            found.setdefault(statement["sentence"], []).append(result["seed"])
    return found


def _columns(figures: dict[str, Any]) -> list[float]:
    return [figures["clean"], *figures["certified"], figures["mean_radius"]]


def _spread(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _percent(mean: float, spread: float | None, sign: str = "") -> str:
    """With a spread, one digit after the point: 80 columns have no room for more, and no more are certain."""
    if spread is None:
        return _with_spread(100 * mean, None, 2, sign)
    return _with_spread(100 * mean, 100 * spread, 1, sign)


def _with_spread(mean: float, spread: float | None, digits: int, sign: str) -> str:
    return f"{mean:{sign}.{digits}f}" + ("" if spread is None else f"±{spread:.{digits}f}")
