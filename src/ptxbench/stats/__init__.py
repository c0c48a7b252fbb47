"""Statistical definitions, each with a worked example."""

from ptxbench.stats.intervals import paired_ratio_interval, wilson_interval

__all__ = ["paired_ratio_interval", "wilson_interval"]
