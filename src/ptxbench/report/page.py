"""The self-contained web page of a set of verdicts: one HTML file, no scripts, no external resources."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptxbench.core import Outcome, Verdict
from ptxbench.report.terminal import matrix_report, number, style_of, worst_error


def verdict_page(verdicts: Sequence[Verdict], *, title: str, made: str, command: str) -> str:
    """The page as HTML text. ``made`` is a date and time for people, ``command`` what produced the verdicts.

    Everything that came from a candidate (names, messages) is escaped.
    """
    environment = Environment(
        loader=PackageLoader("ptxbench.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    counts = {outcome: sum(v.outcome is outcome for v in verdicts) for outcome in Outcome}
    return environment.get_template("page.html.j2").render(
        title=title,
        made=made,
        command=command,
        verdicts=verdicts,
        counts={outcome.value: count for outcome, count in counts.items() if count},
        versions=verdicts[0].versions if verdicts else {},
        device=verdicts[0].device if verdicts else {},
        number=number,
        style_of=style_of,
        worst_error=worst_error,
        matrix_report=matrix_report,
    )
