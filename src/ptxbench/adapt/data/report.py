"""The report of a data set: one self-contained HTML page with charts, and the same numbers as JSON."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptxbench.adapt.data.charts import bars, grid, histogram
from ptxbench.adapt.data.files import BuildRecord


def report_page(record: BuildRecord) -> str:
    """The page as HTML text, without scripts or external resources."""
    environment = Environment(
        loader=PackageLoader("ptxbench.adapt.data", "pages"), undefined=StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    s = record.statistics
    return environment.get_template("report.html.j2").render(
        record=record,
        s=s,
        bars=bars,
        histogram=histogram,
        grid=grid,
        operators=sorted(s.operators.items(), key=lambda entry: (entry[1].topic, entry[0])),
        shown=sum(operator.bases >= 3 for operator in s.operators.values()),
    )
