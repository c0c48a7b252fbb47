"""The main flow: candidate in, verdict out."""

from ptxbench.evaluate.batch import evaluate_all
from ptxbench.evaluate.doctor import Check, diagnose
from ptxbench.evaluate.pipeline import LocalEvaluator
from ptxbench.evaluate.replay import Replay, replay
from ptxbench.evaluate.source import make_candidate, read_candidate
from ptxbench.evaluate.trials import SCHEDULES, Trial, simulator_trials

__all__ = [
    "SCHEDULES",
    "Check",
    "LocalEvaluator",
    "Replay",
    "Trial",
    "diagnose",
    "evaluate_all",
    "make_candidate",
    "read_candidate",
    "replay",
    "simulator_trials",
]
