"""The version, the changelog and the citation agree, and GitHub can read the citation."""

import datetime
import re

import yaml

import lotnet
from lotnet.paper import results
from lotnet.paper import tables as paper
from pages import ROOT


def test_version_and_date_are_those_of_the_changelog_and_the_citation() -> None:
    newest = re.search(r"^## (\S+), (\d{4}-\d{2}-\d{2})$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert newest is not None
    assert lotnet.__version__ == newest[1] == str(citation["version"])
    assert citation["date-released"] == datetime.date.fromisoformat(newest[2])


def test_the_citation_has_what_github_needs() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    paper = citation["preferred-citation"]
    assert paper["type"] == "conference-paper" and paper["year"] == 2022
    for entry in (citation, paper):
        assert entry["title"] and all("name" in author or "family-names" in author for author in entry["authors"])
    assert paper["title"] in " ".join((ROOT / "README.md").read_text().replace("\n> ", " ").split())


def test_the_results_table_of_the_readme_is_measured_and_published() -> None:
    ours = {
        "LipConvnet-5, LOT, CReg: lotnet": "cifar10-lipconvnet5-lot-creg-hh",
        "LipConvnet-20, LOT, CReg: lotnet": "cifar10-lipconvnet20-lot-creg-hh",
        "LipConvnet-20, LOT, EMMA: lotnet": "cifar10-lipconvnet20-lot-emma",
    }
    recorded = {result.name: result for result in results.load_all(ROOT / "results")}
    published = yaml.safe_load((ROOT / "benchmarks" / "leaders.yaml").read_text())
    leaders = {entry["name"].split(" with ")[0]: entry["accuracy"] for entry in published}
    text = (ROOT / "README.md").read_text()
    table = re.findall(r"^\| (\D.+?) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", text, re.MULTILINE)
    assert len(table) == 8
    row = None
    for name, *cells in table:
        if name in ours:
            percentages, row = recorded[ours[name]].percentages(), results.paper_row(recorded[ours[name]])
            expected = [percentages[key] for key in paper.ACCURACIES]
        elif name == "the same in the paper":
            expected = [getattr(row, key) for key in paper.ACCURACIES]
        else:
            expected = leaders[name.split(" (")[0]]
        assert all(abs(float(cell) - value) < 0.0501 for cell, value in zip(cells, expected, strict=True)), name
