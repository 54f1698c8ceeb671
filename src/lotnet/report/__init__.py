"""The report: one self-contained HTML page about certified runs."""

from lotnet.report.collect import RunData, collect
from lotnet.report.page import render

__all__ = ["RunData", "collect", "render"]
