"""Verdicts for people: terminal tables, progress and the self-contained web page."""

from ptxbench.report.page import verdict_page
from ptxbench.report.progress import Say, batch_display, stage_display
from ptxbench.report.terminal import style_of, summary, summary_svg, verdict_view

__all__ = [
    "Say",
    "batch_display",
    "stage_display",
    "style_of",
    "summary",
    "summary_svg",
    "verdict_page",
    "verdict_view",
]
