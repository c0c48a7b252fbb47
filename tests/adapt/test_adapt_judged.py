"""Kernels and faults before the real judge; most of it takes minutes and runs with the slow tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from adapt_verdicts import as_kernel, some_variants, unlike_variants

from ptxbench.adapt import Recipe, load_faults
from ptxbench.adapt.data.families import Variant, load_families
from ptxbench.adapt.data.judged import GoodKernel, judge_good
from ptxbench.adapt.data.planning import plan_attempts
from ptxbench.adapt.data.repair import try_fault
from ptxbench.build import find_toolchain
from ptxbench.core import Artifact, KernelNode, LaunchPlan, make_candidate
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator, StoringEvaluator
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir
from ptxbench.store import VerdictStore
from ptxbench.tasks import get_task

EVERY = [
    pytest.param(variant, id=variant.name)
    for family in load_families()
    for task in family.tasks
    for variant in unlike_variants(family.name, task)
]


@pytest.fixture(scope="module")
def local(shared_cache: Cache) -> LocalEvaluator:
    toolchain = find_toolchain()
    recorder = find_recorder(toolchain, shared_cache)
    return LocalEvaluator(SimulatorDevice(), toolchain, recorder, shared_cache, include_dir(), threads=1)


@pytest.fixture(scope="module")
def judge(local: LocalEvaluator, tmp_path_factory: pytest.TempPathFactory) -> StoringEvaluator:
    return StoringEvaluator(local, VerdictStore(tmp_path_factory.mktemp("verdicts")), resume=True)


def recorded_shared_bytes(local: LocalEvaluator, variant: Variant) -> set[int]:
    """Dynamic shared memory of the launches that ask for any."""
    candidate = make_candidate(variant.source, task=variant.task, target=variant.target, origin=variant.name)
    artifact = local.compile(candidate)
    assert isinstance(artifact, Artifact), artifact
    plans = local.record(artifact, get_task(variant.task), get_task(variant.task).of_tier("small")[:1])
    assert isinstance(plans, tuple), plans
    (plan,) = plans
    assert isinstance(plan, LaunchPlan)
    return {node.dynamic_shared for node in plan.nodes if isinstance(node, KernelNode) and node.dynamic_shared}


def test_a_kernel_and_a_fault_are_judged(local: LocalEvaluator, judge: StoringEvaluator) -> None:
    (variant,) = some_variants("gemm_hopper", "gemm_f16", 1)
    assert recorded_shared_bytes(local, variant) == {variant.plan.facts["shared_bytes"]}
    good = judge_good(judge, as_kernel(variant), speed_floor=0.15)
    assert isinstance(good, GoodKernel), good
    recipe = Recipe(name="test", kind="repair")
    chosen = [fault for fault in load_faults() if fault.name in ("missing_semicolon", "unknown_wrapper")]
    for planned in plan_attempts(chosen, [good], recipe.faults):
        trial = try_fault(judge, planned, recipe)
        assert [item.failure for item in trial.confirmed] == ["compile_error"], trial.dropped


def test_a_second_build_asks_for_nothing(judge: StoringEvaluator) -> None:
    (variant,) = some_variants("gemm_hopper", "gemm_f16", 1)
    first = judge_good(judge, as_kernel(variant), speed_floor=0.15)
    said: list[str] = []
    again = replace(judge, evaluator=replace(judge.evaluator, progress=said.append))
    assert judge_good(again, as_kernel(variant), speed_floor=0.15) == first
    assert not said


def test_a_pair_of_ctas_is_judged(local: LocalEvaluator, judge: StoringEvaluator) -> None:
    variant = next(v for v in unlike_variants("gemm_blackwell_pair", "gemm_f16") if v.design.get("persistent"))
    assert recorded_shared_bytes(local, variant) == {variant.plan.facts["shared_bytes"]}
    good = judge_good(judge, as_kernel(variant), speed_floor=0.15)
    assert isinstance(good, GoodKernel), good


@pytest.mark.slow
@pytest.mark.parametrize("variant", EVERY)
def test_every_structure_is_right_and_its_facts_are_its_own(
    variant: Variant, local: LocalEvaluator, judge: StoringEvaluator
) -> None:
    assert recorded_shared_bytes(local, variant) == {variant.plan.facts["shared_bytes"]}
    result = judge_good(judge, as_kernel(variant), speed_floor=0.15)
    assert isinstance(result, GoodKernel), result
