"""The main flow: candidate in, verdict out."""

from ptxbench.evaluate.batch import Answer, StoringEvaluator, evaluate_all
from ptxbench.evaluate.bench import Bench
from ptxbench.evaluate.doctor import Check, diagnose
from ptxbench.evaluate.examiner import Examiner, SimulatorExaminer
from ptxbench.evaluate.findings import Simulated, simulate
from ptxbench.evaluate.hardware import BenchDevice, CudaExaminer
from ptxbench.evaluate.pipeline import LocalEvaluator
from ptxbench.evaluate.replay import Replay, replay
from ptxbench.evaluate.source import read_candidate, read_folder
from ptxbench.evaluate.trials import SCHEDULES, Trial, simulator_trials
from ptxbench.evaluate.workers import bench_process, on_bench, pooled

__all__ = [
    "SCHEDULES",
    "Answer",
    "Bench",
    "BenchDevice",
    "Check",
    "CudaExaminer",
    "Examiner",
    "LocalEvaluator",
    "Replay",
    "Simulated",
    "SimulatorExaminer",
    "StoringEvaluator",
    "Trial",
    "bench_process",
    "diagnose",
    "evaluate_all",
    "on_bench",
    "pooled",
    "read_candidate",
    "read_folder",
    "replay",
    "simulate",
    "simulator_trials",
]
