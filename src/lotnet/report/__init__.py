"""Run directories to one self-contained HTML page."""

from lotnet.report.collect import RunData, collect
from lotnet.report.page import render

__all__ = ["RunData", "collect", "render"]
