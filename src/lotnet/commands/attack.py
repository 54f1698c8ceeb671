"""`lotnet attack`."""

import json

from rich.console import Console
from rich.table import Table

from lotnet.attacks import AttackReport, attack_report
from lotnet.commands.certify import parse_radius
from lotnet.commands.opening import choose_device, open_model, tensors
from lotnet.errors import InputError
from lotnet.files import write_whole
from lotnet.parser import Parser

BROKEN = 1
"""Exit code when a certificate is broken: a bug in lotnet, and the file says how to repeat it."""


def main(arguments: list[str]) -> int:
    parser = Parser("lotnet attack", "Attack a model, and every certificate at exactly its radius.")
    parser.add_argument("model", type=str, help="A run, or a folder with a frozen model.")
    parser.add_argument("--split", type=str, default="test", help="test or train.")
    parser.add_argument("--radius", type=str, default="36/255", help="Of the l2 attacks.")
    parser.add_argument("--linf", type=str, default="8/255", help="Radius of the l-infinity attack.")
    parser.add_argument("--steps", type=int, default=50, help="Steps of each projected gradient attack.")
    parser.add_argument("--restarts", type=int, default=1, help="Random starts of each.")
    parser.add_argument("--autoattack", action="store_true", help="AutoAttack in l2 too (extra `attacks`).")
    parser.add_argument("--batch_size", type=int, default=250, help="Images at a time.")
    parser.add_common("limit", "device", "seed", "json")
    options = parser.read(arguments)
    if options.split not in ("test", "train"):
        raise InputError(f"there is no split {options.split}: choose test or train")
    console = Console(stderr=options.json)
    opened = open_model(options.model)
    images, labels = tensors(opened.split(options.split, options.limit))
    report = attack_report(
        opened.model.to(choose_device(options.device)),
        images,
        labels,
        radius=parse_radius(options.radius),
        linf_radius=parse_radius(options.linf),
        steps=options.steps,
        restarts=options.restarts,
        auto_attack=options.autoattack,
        batch_size=options.batch_size,
        seed=options.seed,
        progress=lambda stage: console.print(f"{stage} ...", highlight=False),
    )
    path = opened.folder / "attacks.json"
    write_whole(path, json.dumps({"format": 1, "data": opened.data, **report.to_dict()}, indent=1).encode())
    if options.json:
        print(json.dumps({"written": str(path), **report.to_dict()}))
    else:
        _show(console, report, options.radius, options.linf)
        console.print(f"Written to {path}", soft_wrap=True, highlight=False)
    return BROKEN if report.counterexamples else 0


def _show(console: Console, report: AttackReport, radius: str, linf: str) -> None:
    table = Table("", "accuracy", title=f"{report.images} images, by the float64 program")
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
        console.print(str(example.to_dict())[:400], soft_wrap=True, highlight=False)
