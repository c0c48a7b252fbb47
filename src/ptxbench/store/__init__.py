"""Content-addressed verdicts, readable without the code that wrote them."""

from ptxbench.store.verdicts import VerdictKey, VerdictStore, read_verdict, write_atomically

__all__ = ["VerdictKey", "VerdictStore", "read_verdict", "write_atomically"]
