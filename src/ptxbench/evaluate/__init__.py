"""The main flow: candidate in, verdict out."""

from ptxbench.evaluate.batch import Answer, StoringEvaluator, evaluate_all
from ptxbench.evaluate.doctor import Check, diagnose
from ptxbench.evaluate.pipeline import LocalEvaluator
from ptxbench.evaluate.replay import Replay, replay
from ptxbench.evaluate.source import make_candidate, read_candidate, read_folder
from ptxbench.evaluate.trials import SCHEDULES, Trial, simulator_trials

__all__ = [
    "SCHEDULES",
    "Answer",
    "Check",
    "LocalEvaluator",
    "Replay",
    "StoringEvaluator",
    "Trial",
    "diagnose",
    "evaluate_all",
    "make_candidate",
    "read_candidate",
    "read_folder",
    "replay",
    "simulator_trials",
]
