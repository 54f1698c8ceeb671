"""`lotnet attack`."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rich.table import Table

from lotnet.attacks import (
    PGD_LINF,
    AttackLoss,
    AttackReport,
    AttackSettings,
    Budget,
    attack_report,
    require_auto_attack,
)
from lotnet.cli.arguments import Parser
from lotnet.cli.options import (
    OUT,
    add_batch_size,
    add_split,
    check_counts,
    check_split,
    open_model,
    output_file,
    parse_radius,
    say,
)
from lotnet.data import UnitImages
from lotnet.device import choose_device
from lotnet.errors import InputError
from lotnet.load_model import MODEL, LoadedModel
from lotnet.paper.linf_table import LInfAttack, attack_models, count_images, paper_row
from lotnet.paper.tables import Row
from lotnet.progress import progress_bar
from lotnet.runs.attacks import FILE, LINF_FILE, LInfRecord, write_attacks, write_linf
from lotnet.runs.certificates import images_in_words
from lotnet.runs.data import split_subset
from lotnet.terminal import Console

LINF_TABLE = "Table of l-infinity attacks"
"""Title in --help."""
BROKEN = 1
"""Exit code when a certificate is broken: a bug in lotnet, and the file says how to repeat it."""


def main(arguments: list[str]) -> int:
    options = _parser().read(arguments)
    check_split(options.split)
    check_counts(options, batch_size=1, steps=1, restarts=1)
    radius, linf_radius = parse_radius(options.radius), parse_radius(options.linf)
    if options.table is not None:
        if options.autoattack:
            raise InputError("--table linf is about the l-infinity attack alone: leave --autoattack out")
        if options.out is not None:
            raise InputError("--table linf writes one file for each run: leave --out out")
        if not 0 < options.step_size <= 2:
            raise InputError(
                f"--step_size is {options.step_size}: give a part of the radius, more than 0 and at most 2"
            )
        return _linf_table(options)
    if (options.loss, options.step_size) != (PGD_LINF.loss, PGD_LINF.step_size):
        raise InputError("--loss and --step_size are about the l-infinity attack alone: add --table linf")
    if len(options.models) > 1:
        raise InputError("a full report is of one model: attack them one by one, or compare them with --table linf")
    if options.autoattack:
        require_auto_attack()
    console = Console(stderr=options.json)
    device = choose_device(options.device)
    opened = open_model(options.models[0], console)
    path = output_file(options.out, opened.folder, FILE)  # before the attacks, which take long
    dataset = opened.dataset()
    split = split_subset(dataset, options.split, options.limit)
    report = attack_report(
        opened.model.to(device),
        UnitImages(split.pixels),
        split.labels,
        AttackSettings(
            radius=radius,
            linf_radius=linf_radius,
            steps=options.steps,
            restarts=options.restarts,
            auto_attack=options.autoattack,
            budget=Budget(auto_attack=options.autoattack),
            batch_size=options.batch_size,
            seed=options.seed,
        ),
        progress=lambda stage: console.print(f"{stage} ...", highlight=False),
    )
    write_attacks(path, report, opened.data)
    if options.json:
        print(json.dumps({"written": str(path), "data": opened.data, **report.without_pixels()}))
    else:
        about = images_in_words(report.images, len(getattr(dataset, options.split)), options.split)
        _show(console, report, about, options.radius, options.linf)
        say(console, f"Written to {path}")
    return BROKEN if report.counterexamples else 0


def _parser() -> Parser:
    parser = Parser(
        "lotnet attack",
        "Attack a model at a fixed radius, and every certificate at exactly its radius. Exit code 1: one was broken.",
        (
            "lotnet attack runs/digits --limit 100",
            "lotnet attack lipconvnet5-cifar10 --radius 72/255 --autoattack",
            "lotnet attack --table linf runs/digits lipconvnet5-cifar10",
        ),
    )
    parser.add_argument("models", type=str, nargs="+", metavar="MODEL", help=f"{MODEL} With --table, one or several.")
    parser.add_argument(
        "--table",
        type=Literal["linf"] | None,
        default=None,
        help="Run only the l-infinity attack, and show the results beside the paper's rows.",
        group=LINF_TABLE,
    )
    parser.add_argument("--out", type=str | None, default=None, metavar="FILE", help=f"The file; {OUT}")
    add_split(parser)
    parser.add_argument("--radius", type=str, default="36/255", metavar="R", help="Radius of the l2 attacks.")
    parser.add_argument("--linf", type=str, default="8/255", metavar="R", help="Radius of the l-infinity attack.")
    parser.add_argument("--steps", type=int, default=50, help="Steps of each projected gradient attack.")
    parser.add_argument("--restarts", type=int, default=1, help="Random starts of each attack.")
    parser.add_argument(
        "--loss",
        type=AttackLoss,
        default="margin",
        help="Loss that the attack increases. LOT's authors use cross-entropy.",
        group=LINF_TABLE,
    )
    parser.add_argument(
        "--step_size",
        type=float,
        default=PGD_LINF.step_size,
        help="Step of the attack, as a part of its radius.",
        group=LINF_TABLE,
    )
    parser.add_argument(
        "--autoattack",
        action="store_true",
        help="Also run AutoAttack in l2, at --radius and on each certificate at exactly its radius (extra `attacks`).",
    )
    add_batch_size(parser)
    parser.add_common("limit", "device", "seed", "json")
    return parser


@dataclass(frozen=True)
class TableRow:
    """A model in the table of l-infinity attacks. Accuracies are in [0, 1], those of the paper's row in percent."""

    model: str
    written: str | None
    """The file with this row; None for a model that is not a run."""
    data: str
    images: int
    clean: float
    attacked: float
    paper: Row | None


def _linf_table(options: Any) -> int:
    """Print one row per model with its accuracy under the l-infinity attack. Nothing is certified."""
    console, device = Console(stderr=options.json), choose_device(options.device)
    settings = replace(
        PGD_LINF, steps=options.steps, restarts=options.restarts, step_size=options.step_size, loss=options.loss
    )
    attack = LInfAttack(
        radius=parse_radius(options.linf),
        settings=settings,
        split=options.split,
        limit=options.limit,
        batch_size=options.batch_size,
        seed=options.seed,
    )
    models = [open_model(name, console) for name in options.models]
    rows = []
    with progress_bar(console) as progress:
        task = progress.add_task("attacking images", total=count_images(models, attack))
        records = attack_models(models, attack, device, lambda count: progress.update(task, advance=count))
        for name, loaded, record in zip(options.models, models, records, strict=True):
            written, theirs = _keep(record, loaded), paper_row(loaded, attack)
            rows.append(TableRow(name, written, loaded.data, record.images, record.clean, record.attacked, theirs))
    if options.json:
        about = {"linf": attack.radius, "split": attack.split, "seed": attack.seed, **asdict(settings)}
        print(json.dumps({**about, "rows": [asdict(row) for row in rows]}))
    else:
        _show_rows(rows, options, console)
    return 0


def _show_rows(rows: list[TableRow], options: Any, console: Console) -> None:
    steps = f"{options.steps} step{'s' if options.steps > 1 else ''} of {options.step_size:g} of the radius"
    about = f"l-infinity PGD on the {options.loss} within {options.linf}: {steps}, pixels in [0, 1], float64"
    table = Table(title=about)
    table.add_column("model", overflow="fold")
    compared = any(row.paper for row in rows)
    for heading in ("images", "clean", "attacked", *(("paper: clean", "attacked") if compared else ())):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = () if row.paper is None else (f"{row.paper.clean:.2f}%", f"{row.paper.pgd_linf:.2f}%")
        table.add_row(row.model, str(row.images), f"{row.clean:.2%}", f"{row.attacked:.2%}", *cells)
    console.print(table)
    for row in rows:
        if row.written is not None:
            say(console, f"Written to {row.written}")


def _keep(record: LInfRecord, loaded: LoadedModel) -> str | None:
    """Write a run's row for `lotnet record`, and return the file. Models that are no runs have none."""
    if loaded.run is None:
        return None
    path = output_file(None, loaded.folder, LINF_FILE)
    write_linf(path, record)
    return str(path)


def _show(console: Console, report: AttackReport, images: str, radius: str, linf: str) -> None:
    table = Table("", "accuracy", title=f"{images}, by the float64 program")
    table.add_row("clean", f"{report.clean:.2%}")
    for name, share in report.attacked.items():
        table.add_row(f"{name} at {linf if name == 'pgd_linf' else radius}", f"{share:.2%}")
    table.add_row(f"certified at {radius} (claim B)", f"{report.certified:.2%}")
    console.print(table)
    if not report.counterexamples:
        console.print(f"{report.checked} certificates attacked at exactly their radius: none broken.")
        return
    console.print(f"{len(report.counterexamples)} CERTIFICATES BROKEN. This is a bug in lotnet: please report it.")
    for example in report.counterexamples[:5]:
        say(console, str(example))
