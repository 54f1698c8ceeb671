"""The results of each analysis as a table on the console. The JSON files have more."""

from rich.table import Table

from lotnet.analysis.features import Features
from lotnet.analysis.landscape import Landscape
from lotnet.analysis.newton import OBSERVED, LayerConvergence
from lotnet.analysis.tightness import Tightness


def by_network(title: str, *headings: str) -> Table:
    """A table with one row per network. A long path is folded, not cut, because its end tells runs apart."""
    table = Table(title=title)
    table.add_column("network", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def newton_table(layers: list[LayerConvergence]) -> Table:
    """A table with one row per layer, after step `OBSERVED` of the paper's iteration. It fits 80 columns."""
    lengths = sorted({len(layer.ours.largest) - 1 for layer in layers})
    ours = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    table = Table(title=f"Singular values: {OBSERVED} of the paper's steps, and {ours} of ours")
    columns = ("\nlayer", "\ncond.", "paper's\nlargest", "its\nbound", "paper's\nsmallest")
    for heading in (*columns, "our\nlargest", "our\nsmallest"):
        table.add_column(heading, justify="left" if heading == "\nlayer" else "right")
    for layer in layers:
        condition = "singular" if layer.condition is None else f"{layer.condition:.3g}"
        bound = "infinite" if layer.bound[OBSERVED] is None else f"{layer.bound[OBSERVED]:.5g}"
        paper, end = layer.paper, layer.ours
        values = (paper.smallest[OBSERVED], end.largest[-1], end.smallest[-1])
        cells = (f"{paper.largest[OBSERVED]:.6f}", bound, *(f"{value:.6f}" for value in values))
        table.add_row(layer.name, condition, *cells)
    return table


def landscape_table(found: dict[str, Landscape]) -> Table:
    table = by_network("Loss around each network", "loss", "smallest", "largest", "local minima")
    for name, surface in found.items():
        values = [value for row in surface.loss for value in row]
        table.add_row(name, *(f"{x:.4f}" for x in (surface.center, min(values), max(values))), str(surface.minima()))
    return table


def features_table(found: dict[str, Features]) -> Table:
    table = by_network("Mean value over norm of the input", "layer", "neurons", "noise", "image")
    for name, item in found.items():
        means = (sum(values) / len(values) for values in (item.before, item.after))
        table.add_row(name, str(item.layer), str(len(item.neurons)), *(f"{mean:.3f}" for mean in means))
    return table


def tightness_table(found: dict[str, Tightness]) -> Table:
    table = by_network("Gradient of the margin over its bound", "mean", "5 %", "95 %", "smallest share at", "share")
    for name, result in found.items():
        worst = result.worst
        place = f"{worst.name} {worst.kind} {' x '.join(map(str, worst.shape))}"
        table.add_row(name, *(f"{x:.3f}" for x in (result.share, *result.spread)), place, f"{worst.kept:.3f}")
    return table
