"""Adapting models: data sets whose every row the judge has verified."""

from ptxbench.adapt.data.build import Built, build
from ptxbench.adapt.data.faults import FAILURES, Fault, load_faults
from ptxbench.adapt.data.files import BuildRecord, check_parquet, read_build, read_rows, rows_digest, write_data_set
from ptxbench.adapt.data.recipe import Recipe, load_recipe
from ptxbench.adapt.data.recorded import RecordedFirst, read_verdicts
from ptxbench.adapt.data.report import report_page
from ptxbench.adapt.data.rows import Message, Provenance, Row
from ptxbench.adapt.data.statistics import Statistics
from ptxbench.adapt.data.teacher import Lesson

__all__ = [
    "FAILURES",
    "BuildRecord",
    "Built",
    "Fault",
    "Lesson",
    "Message",
    "Provenance",
    "Recipe",
    "RecordedFirst",
    "Row",
    "Statistics",
    "build",
    "check_parquet",
    "load_faults",
    "load_recipe",
    "read_build",
    "read_rows",
    "read_verdicts",
    "report_page",
    "rows_digest",
    "write_data_set",
]
