"""A sanitizer: runs a kernel under many schedules and lists what is wrong with it, without a task and without truth."""

from ptxbench.check.adapter import Adapted, adapt
from ptxbench.check.buffers import Contents
from ptxbench.check.declaration import Launcher, Notes, find_launcher, read_notes
from ptxbench.check.expressions import evaluate, parse_sizes, parse_values
from ptxbench.check.findings import Finding, Report
from ptxbench.check.ptx_launch import PtxLaunch, choose_kernel, read_ptx_launch
from ptxbench.check.running import Check, Checked, check_plan, refused, report_of
from ptxbench.check.sarif import sarif
from ptxbench.check.shapes import Shape, parse_shapes

__all__ = [
    "Adapted",
    "Check",
    "Checked",
    "Contents",
    "Finding",
    "Launcher",
    "Notes",
    "PtxLaunch",
    "Report",
    "Shape",
    "adapt",
    "check_plan",
    "choose_kernel",
    "evaluate",
    "find_launcher",
    "parse_shapes",
    "parse_sizes",
    "parse_values",
    "read_notes",
    "read_ptx_launch",
    "refused",
    "report_of",
    "sarif",
]
