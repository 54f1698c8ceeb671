"""`lotnet certify`."""

import json
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from lotnet.certification.formatting import rounded_down, rounded_up
from lotnet.certification.intervals import in_words
from lotnet.certification.plain import RADII, in_255ths
from lotnet.certification.summary import CLAIM_TITLES, CLAIMS
from lotnet.certify_run import add_radii, certify_split, known_certification
from lotnet.cli.arguments import Parser
from lotnet.cli.options import add_batch_size, add_split, check_counts, check_split, parse_radius, say
from lotnet.device import choose_device
from lotnet.load_model import MODEL, load_model
from lotnet.runs.certificates import Certification, certificates_path
from lotnet.terminal import Console

_HEADING = ("model", "data", "split", "total", "checksum", "checkpoint", "evaluation_seconds", "device")
"""Fields of the record that --json prints beside the summary."""
_MISTAKES = 5


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet certify",
        "Prove, for each image, an l2 radius within which the prediction cannot change.",
        ("lotnet certify runs/digits", "lotnet certify lipconvnet5-cifar10 --limit 100 --radii 0.25 0.5"),
    )
    parser.add_argument("model", type=str, help=MODEL)
    add_split(parser)
    parser.add_argument(
        "--radii",
        type=str,
        nargs="+",
        default=None,
        metavar="R",
        help="Add these radii to 36/255, 72/255 and 108/255 in the table. Earlier certificates are kept.",
    )
    parser.add_argument(
        "--out",
        type=str | None,
        default=None,
        metavar="DIR",
        help="Folder for certificates.json; by default the run or model folder.",
    )
    add_batch_size(parser)
    parser.add_common("limit", "device", "json")
    options = parser.read(arguments)
    check_split(options.split)
    check_counts(options, batch_size=1)
    asked = [parse_radius(text) for text in options.radii or ()]
    console = Console(stderr=options.json)
    device = choose_device(options.device)
    loaded = load_model(options.model)
    out = Path(options.out) if options.out else loaded.folder
    split = loaded.split(options.split, options.limit)
    known = known_certification(loaded, out, options.split, split)
    radii = sorted({*RADII, *asked, *(known.summary.radii if known else ())})
    if known is not None and asked:
        record = add_radii(loaded, known, radii, out)
        say(console, f"Kept the {len(record.images):,} certificates that are there, and added radii to the table.")
    else:
        record = certify_split(loaded, options.split, split, radii, device, console, options.batch_size, out)
    path = certificates_path(out, record)
    if options.json:
        about = {name: getattr(record, name) for name in _HEADING}
        summary = {**asdict(record.summary), "intervals_95": asdict(record.summary.intervals())}
        print(json.dumps({"written": str(path), **about, "notes": record.notes, "summary": summary}))
        return 0
    _show(console, record)
    for note in record.notes:
        say(console, f"note: {note}")
    say(console, f"One certificate for each image: {path}")
    return 0


def _show(console: Console, record: Certification) -> None:
    summary, between = record.summary, record.summary.intervals()
    names = [in_255ths(radius) for radius in summary.radii]
    table = Table(title=f"Certified accuracy on {record.images_in_words()}, clean {summary.clean:.2%}")
    for heading in ("certificate", *(f"at {name}" for name in names), "mean radius"):
        first = heading == "certificate"
        table.add_column(heading, justify="left" if first else "right", no_wrap=first)
    for claim in CLAIMS:
        at = (f"{share:.2%}" for share in summary.certified[claim])
        table.add_row(CLAIM_TITLES[claim], *at, str(rounded_down(summary.mean_radius[claim], 4)))
    console.print(table)
    floats = zip(names, map(in_words, between.certified["float"]), strict=True)
    parts = [f"clean {in_words(between.clean)}", *(f"{words} at {name}" for name, words in floats)]
    say(console, f"95% intervals, claim B: {', '.join(parts)}")
    if len(summary.classes) <= 20:
        table = Table(title="By class, claim B")
        for heading in ("class", "images", "clean", *(f"at {name}" for name in names)):
            table.add_column(heading, justify="left" if heading == "class" else "right")
        for item in summary.classes:
            table.add_row(item.name, str(item.images), *item.in_words())
        console.print(table)
    if mistakes := summary.mistakes()[:_MISTAKES]:
        said = (f"{m.true} taken for {m.predicted} ({m.count} of {m.images})" for m in mistakes)
        say(console, f"Most frequent mistakes: {', '.join(said)}")
    table = Table(title="Layers: proved bound of the largest singular value of the stored tensors")
    for heading in ("layer", "kind", "bound", "orthogonality error", "seconds"):
        table.add_column(heading, justify="left" if heading in ("layer", "kind") else "right")
    for row in record.audit:
        error = "" if row.orthogonality_error is None else f"{row.orthogonality_error:.1e}"
        table.add_row(row.name, row.kind, rounded_up(row.lipschitz_bound, 9), error, f"{row.seconds:.2f}")
    console.print(table)
    notes = [
        f"Lipschitz bound of the features, in pixels: {rounded_up(summary.lipschitz_bound, 6)}",
        f"Implied mean radii: l-infinity {rounded_down(summary.linf_mean_radius, 5)}, "
        f"l1 {rounded_down(summary.l1_mean_radius, 4)}",
        f"Evaluation of all images by the float32 model: {record.evaluation_seconds:.2f} s",
    ]
    if summary.not_finite:
        notes.append(f"{summary.not_finite} images have NaN or infinite pixels: their radius is 0")
    for note in notes:
        say(console, note)
