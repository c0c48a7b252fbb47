"""The happens-before check: races that no schedule has to show are found, and patterns that are right stay silent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_nvcc import compile_ptx

from ptxbench.core import Observation, RunOptions, Schedule, Target
from ptxbench.simulator import Program, load
from ptxbench.solutions import include_dir

SOURCE = Path(__file__).parent / "kernels" / "race_patterns.cu"
ROUNDS, WORDS = 6, 256
SCHEDULES = [
    Schedule(copies=how, products="late", reverse=reverse) for how in ("eager", "late") for reverse in (False, True)
]

# By pattern: the kinds that each fault must show under every schedule, in the order of the source's numbers.
PATTERNS: dict[str, tuple[str, ...]] = {
    "ring": ("shared_memory_race", "shared_memory_race", "shared_memory_race", "missing_mbarrier_init_fence"),
    "alternate": ("missing_async_proxy_fence", "shared_memory_race", "shared_memory_race", "shared_memory_race"),
    "turn": ("shared_memory_race", "shared_memory_race", "shared_memory_race"),
    "hand_over": ("shared_memory_race",),
    "flag": ("shared_memory_race",),
    "copy": ("shared_memory_race", "shared_memory_race"),
    "peers": ("shared_memory_race", "missing_mbarrier_init_fence"),
    "through_global": ("missing_global_proxy_fence", "missing_global_proxy_fence"),
}
FAULTY = [(name, number, kind) for name, kinds in PATTERNS.items() for number, kind in enumerate(kinds, 1)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    text = compile_ptx(SOURCE, Target.SM_90A, tmp_path_factory.mktemp("races"), "-I", str(include_dir()))
    names = [f"{name}_{number}" for name, kinds in PATTERNS.items() for number in range(len(kinds) + 1)]
    return load(text, names)


def check(program: Program, name: str, schedule: Schedule, *, races: bool) -> tuple[Observation, np.ndarray]:
    pattern = name.rpartition("_")[0]
    cluster = 2 if pattern == "peers" else 1
    given = np.arange(ROUNDS * WORDS, dtype=np.uint32)
    out = np.zeros_like(given)
    launch = Launch(name, ["in_words", "out"], grid=(cluster, 1, 1), block=(128, 1, 1), cluster=(cluster, 1, 1))
    seen = run(program, launch, RunOptions(schedule=schedule, races=races), in_words=given, out=out)
    return seen, out


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_that_are_right_are_silent(program, pattern, schedule):
    seen, out = check(program, f"{pattern}_0", schedule, races=True)
    assert seen.fault is None
    assert seen.hazards == ()
    assert out.any()


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)
@pytest.mark.parametrize(("pattern", "number", "kind"), FAULTY)
def test_faults_are_found_under_every_schedule(program, pattern, number, kind, schedule):
    seen, _ = check(program, f"{pattern}_{number}", schedule, races=True)
    found = {hazard.kind: hazard for hazard in seen.hazards}
    assert seen.fault is not None or kind in found
    if kind in found:
        assert found[kind].severity == "rule"
        assert found[kind].source_line
        assert found[kind].advice


def test_the_check_is_an_option(program):
    plain, right = check(program, "turn_1", Schedule(), races=False)
    checked, same = check(program, "turn_1", Schedule(), races=True)
    assert plain.hazards == ()
    assert {hazard.kind for hazard in checked.hazards} == {"shared_memory_race"}
    assert np.array_equal(right, same)
    assert plain.counts == checked.counts


def test_the_message_names_both_accesses(program):
    seen, _ = check(program, "turn_1", Schedule(), races=True)
    lines = SOURCE.read_text().splitlines()
    text = {lines[race.source_line - 1].strip() for race in seen.hazards}
    assert any(line.endswith("block[w] = in[i * WORDS + w];") for line in text)
    for race in seen.hazards:
        assert "nothing orders it after" in race.message
        assert "of CTA (0,0,0) warp" in race.message
