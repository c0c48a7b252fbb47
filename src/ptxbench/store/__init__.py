"""Content-addressed verdicts and the folders of runs, readable without the code that wrote them."""

from ptxbench.store.runs import RunFolder, find_runs
from ptxbench.store.verdicts import VerdictKey, VerdictStore, read_verdict, write_atomically

__all__ = ["RunFolder", "VerdictKey", "VerdictStore", "find_runs", "read_verdict", "write_atomically"]
