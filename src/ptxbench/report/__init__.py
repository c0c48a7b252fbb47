"""Verdicts and runs for people: terminal tables, progress and the self-contained web page."""

from ptxbench.report.page import verdict_page
from ptxbench.report.progress import Say, batch_display, stage_display
from ptxbench.report.runs import Run, read_run
from ptxbench.report.runs_comparison import Comparison, compare
from ptxbench.report.runs_measures import Row, as_csv, measures
from ptxbench.report.runs_published import Published, published
from ptxbench.report.runs_terminal import comparison_view, published_view, run_view
from ptxbench.report.terminal import style_of, summary, summary_svg, verdict_view

__all__ = [
    "Comparison",
    "Published",
    "Row",
    "Run",
    "Say",
    "as_csv",
    "batch_display",
    "compare",
    "comparison_view",
    "measures",
    "published",
    "published_view",
    "read_run",
    "run_view",
    "stage_display",
    "style_of",
    "summary",
    "summary_svg",
    "verdict_page",
    "verdict_view",
]
