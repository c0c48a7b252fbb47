"""The main flow: candidate in, verdict out."""

from ptxbench.evaluate.batch import evaluate_all
from ptxbench.evaluate.doctor import Check, diagnose
from ptxbench.evaluate.pipeline import LocalEvaluator
from ptxbench.evaluate.source import make_candidate, read_candidate
from ptxbench.evaluate.trials import SCHEDULES, simulator_trials

__all__ = [
    "SCHEDULES", "Check", "LocalEvaluator", "diagnose", "evaluate_all", "make_candidate", "read_candidate",
    "simulator_trials",
]
