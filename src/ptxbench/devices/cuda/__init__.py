"""The CUDA device: plans replayed in processes of their own, executed counts from CUPTI, timing in turns."""

from ptxbench.devices.cuda.bundle import Case, read_bundle, write_bundle
from ptxbench.devices.cuda.process import ExecutorProcess, Reply
from ptxbench.devices.cuda.turns import Turns, paired_ratio, take_turns

__all__ = ["Case", "ExecutorProcess", "Reply", "Turns", "paired_ratio", "read_bundle", "take_turns", "write_bundle"]
