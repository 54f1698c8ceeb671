"""The version, the changelog and the citation agree, and GitHub can read the citation."""

import datetime
import re

import yaml

import lotnet
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
