"""Conformance cases compiled and recorded, for any device."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ptxbench.build import compile_candidate, find_toolchain
from ptxbench.core import Artifact, LaunchPlan, Target, make_candidate
from ptxbench.devices import conformance
from ptxbench.devices.conformance import Case
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir

Prepared = Callable[[Case, Target], tuple[Artifact, LaunchPlan]]


def prepared_cases(shared_cache: Cache) -> Prepared:
    """What gives artifact and plan of a case on a target."""
    toolchain = find_toolchain()
    recorder = find_recorder(toolchain, shared_cache)

    @cache
    def compiled(target: Target) -> Artifact:
        candidate = make_candidate(conformance.source(), task=conformance.TASK.name, target=target, origin="")
        artifact = compile_candidate(
            candidate, conformance.TASK, toolchain=toolchain, cache=shared_cache, include=include_dir()
        )
        assert isinstance(artifact, Artifact), artifact
        return artifact

    def prepare(case: Case, target: Target) -> tuple[Artifact, LaunchPlan]:
        artifact = compiled(target)
        plan = recorder.record(artifact, conformance.TASK, conformance.SIZES, launcher=case.launcher)
        assert isinstance(plan, LaunchPlan), plan
        return artifact, plan

    return prepare
