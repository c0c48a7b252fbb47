"""Pure functions from observations to verdicts: correctness, instructions, integrity, the outcome table."""

from ptxbench.judge.claims import claimed_counts, claimed_opcodes
from ptxbench.judge.correctness import PERTURBATION_SCALES, judge_outputs, judge_perturbation
from ptxbench.judge.decide import decide, refusal
from ptxbench.judge.evidence import Evidence, Run, judge_run
from ptxbench.judge.gates import instruction_gate
from ptxbench.judge.instructions import (
    CARRIED_LOWER,
    FOLLOWED_LOWER,
    OTHER_MATH_UPPER,
    judge_instructions,
    with_simulated,
)
from ptxbench.judge.integrity import min_time_ms
from ptxbench.judge.poison import poison, poisoned_outputs, unwritten
from ptxbench.judge.sass import compiled_counts, confirmed_sites, is_dummy
from ptxbench.judge.statistics import BlockStatistics, judge_statistics, worst_of
from ptxbench.judge.timing import Ceilings, blocks_for, judge_timing
from ptxbench.judge.yardstick import MAX_FACTOR, RMS_FACTOR, Measurement, measure

__all__ = [
    "CARRIED_LOWER", "FOLLOWED_LOWER", "MAX_FACTOR", "OTHER_MATH_UPPER", "PERTURBATION_SCALES", "RMS_FACTOR",
    "BlockStatistics", "Ceilings", "Evidence", "Measurement", "Run", "blocks_for", "claimed_counts", "claimed_opcodes",
    "compiled_counts", "confirmed_sites", "decide", "instruction_gate", "is_dummy", "judge_instructions",
    "judge_outputs", "judge_perturbation", "judge_run", "judge_statistics", "judge_timing", "measure", "min_time_ms",
    "poison", "poisoned_outputs", "refusal", "unwritten", "with_simulated",
    "worst_of",
]
