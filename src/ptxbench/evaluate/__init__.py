"""The main flow: candidate in, verdict out."""

from ptxbench.evaluate.source import make_candidate, read_candidate

__all__ = ["make_candidate", "read_candidate"]
