"""Statistical definitions, each with a worked example."""

from ptxbench.stats.comparison import holm, permutation_test, share_difference
from ptxbench.stats.definitions import (
    CORRECT,
    best_of,
    clean_at,
    correct_at,
    executed_at,
    fast_p,
    mean_pass_at_k,
    pass_at_k,
    per_solved,
    share,
    speedup_of,
    speedup_quantile,
)
from ptxbench.stats.intervals import (
    clustered_ratio_interval,
    newcombe_interval,
    paired_ratio_interval,
    wilson_interval,
)
from ptxbench.stats.resampling import Estimate

__all__ = [
    "CORRECT",
    "Estimate",
    "best_of",
    "clean_at",
    "clustered_ratio_interval",
    "correct_at",
    "executed_at",
    "fast_p",
    "holm",
    "mean_pass_at_k",
    "newcombe_interval",
    "paired_ratio_interval",
    "pass_at_k",
    "per_solved",
    "permutation_test",
    "share",
    "share_difference",
    "speedup_of",
    "speedup_quantile",
    "wilson_interval",
]
