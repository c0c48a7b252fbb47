"""Mistakes in the bundled kernels are found by the default schedules: stages released too soon, waits left out.

Each mutation changes one place of the source. The sizes are such that every ring is used several times.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ptxbench.build import find_toolchain
from ptxbench.core import Artifact, LaunchPlan, RunOptions, Workload, make_candidate
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import SCHEDULES, LocalEvaluator, Trial, replay
from ptxbench.judge import judge_run
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir, solutions
from ptxbench.tasks import get_task, make_problem

pytestmark = pytest.mark.slow

GEMM, FORWARD, BACKWARD = {"M": 256, "N": 256, "K": 1088}, {"B": 1, "H": 1, "S": 640, "D": 128}, {
    "B": 1, "H": 1, "S": 256, "D": 128,
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """What ``replacements`` change in the file. ``rule`` is the finding if all schedules agree on a right result."""

    name: str
    file: str
    sizes: dict[str, int]
    replacements: tuple[tuple[str, str], ...]
    rule: str = ""

    def source(self) -> str:
        text = next(row.source() for row in solutions() if row.file == self.file)
        for old, new in self.replacements:
            assert text.count(old) == 1, f"{self.file} has {text.count(old)} times {old!r}"
            text = text.replace(old, new)
        return text


def swapped(first: str, second: str) -> tuple[tuple[str, str], ...]:
    """Exchanges two adjacent statements."""
    return ((f"{first}\n{second}", f"{second}\n{first}"),)


RING, LARGE = "gemm/sm_90a/02_ring.cu", "gemm/sm_90a/04_large_tile_tma_store.cu"
CLUSTER, TCGEN05 = "gemm/sm_90a/05_cluster_multicast.cu", "gemm/sm_100a/01_tcgen05.cu"
FORWARD_90, FORWARD_100 = "attention/sm_90a/forward_02_warp_specialised.cu", "attention/sm_100a/forward.cu"
BACKWARD_90 = "attention/sm_90a/backward_02_warp_specialised.cu"
WAIT = "        ptx::wgmma_wait_group<1>();"
RELEASE = "        if (k > 0) release(shared, previous);"
ARRIVE = "        if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.empty[stage]));"
MUTATIONS = (
    Mutation("ring: no wait for the stage", RING, GEMM, (
        ("        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.full[stage]), phase);\n", ""),)),
    Mutation("ring: a product in flight when the stage is loaded again", RING, GEMM, (
        ("wgmma_wait_group<0>();\n        __syncthreads", "wgmma_wait_group<1>();\n        __syncthreads"),)),
    Mutation("large tile: release before the wait", LARGE, GEMM, swapped(WAIT, RELEASE)),
    Mutation("large tile: release of the stage in use", LARGE, GEMM, (
        (RELEASE, "        release(shared, at.stage);"),)),
    Mutation("large tile: results read in flight", LARGE, GEMM, (("    ptx::wgmma_wait_group<0>();\n", ""),)),
    Mutation("large tile: staging block reused before it was read", LARGE, GEMM, (
        ("        if (thread == 0) ptx::bulk_wait_group_read<1>();", "        //"),)),
    Mutation("cluster: release before the wait", CLUSTER, GEMM, swapped(WAIT, RELEASE)),
    Mutation("forward: K released before the wait", FORWARD_90, FORWARD, swapped(
        WAIT, "        release(shared.empty[k]);")),
    Mutation("forward: V released before the wait", FORWARD_90, FORWARD, swapped(
        "        ptx::wgmma_wait_group<0>();", "        release(shared.empty[v]);")),
    Mutation("forward: V released with K", FORWARD_90, FORWARD, (
        ("        release(shared.empty[k]);\n        softmax",
         "        release(shared.empty[k]);\n        release(shared.empty[v]);\n        softmax"),
        ("        ptx::wgmma_wait_group<0>();\n        release(shared.empty[v]);",
         "        ptx::wgmma_wait_group<0>();"))),
    Mutation("backward: release before the wait", BACKWARD_90, BACKWARD, (
        ("        ptx::wgmma_wait_group<0>();  // dK\n", ""),
        (ARRIVE, ARRIVE + "\n        ptx::wgmma_wait_group<0>();"))),
    Mutation("backward: release before ordinary loads of the stage", BACKWARD_90, BACKWARD, (
        ("        ptx::wgmma_wait_group<0>();  // dP^T\n", f"        ptx::wgmma_wait_group<0>();\n{ARRIVE}\n"),
        (ARRIVE + "  // the", "  // the"))),
    Mutation("backward: one buffer for dS", BACKWARD_90, BACKWARD, (("shared.ds[i % 2]", "shared.ds[0]"),)),
    Mutation("tcgen05: arrival instead of a commit", TCGEN05, GEMM, (
        ("ptx::tcgen05_commit(ptx::shared_address(&shared.empty[at.stage]))",
         "ptx::mbarrier_arrive(ptx::shared_address(&shared.empty[at.stage]))"),)),
    Mutation("tcgen05: results read in flight", TCGEN05, GEMM, (
        ("        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.done), 0);\n", ""),)),
    Mutation("forward: scores read in flight", FORWARD_100, FORWARD, (
        ("        wait_tmem(shared.scores[tile], j % 2);\n", ""),)),
    Mutation("forward: weights handed over before they are written", FORWARD_100, FORWARD, swapped(
        "        softmax.step(scores, output, j == blocks - 1 ? row + 1 : ROWS, j == 0);"
        "  // the last block is the diagonal one", "        arrive_tmem(shared.weights[tile]);")),
    Mutation("forward: scores used before their load was waited for", FORWARD_100, FORWARD, (
        ("        ptx::tcgen05_wait_ld();\n        if (CAUSAL", "        if (CAUSAL"),), "unwaited_tensor_load"),
)  # fmt: skip
IN_ORDER = Mutation("forward: products that the ISA does not order, but hardware does", FORWARD_100, FORWARD, (
    ("                    wait_tmem(shared.consumed[tile], (j - 1) % 2);\n", ""),))  # fmt: skip


@pytest.fixture(scope="module")
def evaluator() -> LocalEvaluator:
    cache, toolchain = Cache(), find_toolchain()
    return LocalEvaluator(SimulatorDevice(), toolchain, find_recorder(toolchain, cache), cache, include_dir())


def tried(evaluator: LocalEvaluator, mutation: Mutation) -> tuple[bool, set[str]]:
    """Whether the results are right under all schedules and no race is shown, and the rules that are broken."""
    row = next(row for row in solutions() if row.file == mutation.file)
    task = get_task(row.task)
    artifact = evaluator.compile(make_candidate(mutation.source(), task=row.task, target=row.target, origin=row.file))
    assert isinstance(artifact, Artifact), artifact
    plan = evaluator.recorder.record(artifact, task, mutation.sizes)
    assert isinstance(plan, LaunchPlan), plan
    workload = Workload(tier="small", sizes=mutation.sizes)
    problem = make_problem(task, workload, "normal", 1)
    right, rules = True, set[str]()
    for schedule in SCHEDULES:
        trial = Trial(0, workload, "normal", 1, RunOptions(schedule=schedule))
        done = replay(evaluator.device, artifact, plan, trial, problem)
        rules |= {hazard.kind for hazard in done.observation.hazards if hazard.severity == "rule"}
        run = judge_run(problem, done.observation, done.outputs, explain=False)
        right = right and run.ok and not any(hazard.severity == "race" for hazard in done.observation.hazards)
    return right, rules


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutations_are_found(evaluator, mutation):
    right, rules = tried(evaluator, mutation)
    assert mutation.rule in rules if mutation.rule else not right


def test_a_product_may_overwrite_what_one_before_it_in_its_thread_reads(evaluator):
    assert tried(evaluator, IN_ORDER) == (True, set())
