"""Long sums of equal products, which a bias nearly cancels: an honest kernel's error is all that is left of them."""

from __future__ import annotations

import pytest

from ptxbench.adapt.data.families import load_families, variants
from ptxbench.core import Candidate, Rejection, RunOptions, make_candidate
from ptxbench.evaluate import LocalEvaluator, Trial, replay
from ptxbench.judge import measure
from ptxbench.solutions import include_dir
from ptxbench.tasks import get_task, make_problem

TASK, SEED = "gemm_bias_gelu", 143
WORST = 244, 236
"""The 1536 equal products add up to 0.99239 there, the bias is -0.99219. Rounded after every product, the sum is 2e-5
off.
"""


def candidate_of(family_name: str, label: str) -> Candidate:
    family = next(row for row in load_families() if row.name == family_name)
    found = next(v for v in variants(family, get_task(TASK), include_dir()) if v.name.endswith(f"/{label}"))
    return make_candidate(found.source, task=TASK, target=found.target, origin=found.name)


@pytest.mark.parametrize(
    ("family", "label"),
    [("gemm_blackwell", "warps-n128-s4-direct-persistent-acc2"), ("gemm_hopper", "ring-n128-c1-s4-direct")],
)
def test_a_sum_that_the_bias_cancels_is_right(evaluator: LocalEvaluator, family: str, label: str) -> None:
    candidate, task = candidate_of(family, label), get_task(TASK)
    workload = task.of_tier("small")[0]
    problem = make_problem(task, workload, "equal_rows", SEED)
    artifact = evaluator.compile(candidate)
    assert not isinstance(artifact, Rejection), artifact
    plans = evaluator.record(artifact, task, [workload])
    assert not isinstance(plans, Rejection), plans
    seen = replay(evaluator.device, artifact, plans[0], Trial(0, workload, "equal_rows", SEED, RunOptions()), problem)
    assert (seen.observation.fault, seen.observation.hazards) == (None, ())
    truth = problem.truth["C"][WORST]
    assert float(seen.outputs["C"][WORST]) == pytest.approx(truth, rel=2.0**-8)
    found = measure(problem, "C", seen.outputs["C"])
    assert found.ok and found.max_blocks.max() <= 1.05
