from __future__ import annotations

import re

import pytest
from adapt_verdicts import a_hazard, a_verdict, some_variants, unlike_variants
from pydantic import ValidationError

from ptxbench.adapt import FAILURES, load_faults
from ptxbench.adapt.data.explain import explain_repair
from ptxbench.adapt.data.families import Variant, load_families
from ptxbench.adapt.data.faults import Diagnosis, Fault, changes
from ptxbench.core import Interval, Outcome, TimingReport

FAULTS = {fault.name: fault for fault in load_faults()}


@pytest.fixture(scope="module")
def bases() -> list[Variant]:
    """Kernels of different structure of every family, for its first and its last task."""
    return [
        variant
        for family in load_families()
        for task in (family.tasks[0], family.tasks[-1])
        for variant in unlike_variants(family.name, task)
    ]


def test_there_are_enough_operators_for_every_kind_of_failure() -> None:
    assert len(FAULTS) >= 40
    shown = {diagnosis.outcome for fault in FAULTS.values() for diagnosis in fault.diagnoses}
    assert shown == set(FAILURES)


@pytest.mark.parametrize("name", FAULTS)
def test_operators_change_one_place_of_unlike_kernels(name: str, bases: list[Variant]) -> None:
    fault = FAULTS[name]
    changed = [(base, source) for base in bases if (source := fault.apply_to(base)) is not None]
    assert changed, "applies to no kernel"
    for base, source in changed[:2]:
        assert source != base.source
        places = changes(source, base.source)
        assert places
        text = explain_repair(fault, a_verdict(source, Outcome.WRONG_RESULT), places)
        assert fault.why in text
        assert fault.fix in text


def test_first_last_and_all_matches() -> None:
    (base,) = some_variants("gemm_hopper", "gemm_f16", 1)
    row = {"name": "x", "topic": "barrier", "find": r"ptx::shared_address\(", "replace": "other(", "why": "w",
           "fix": "f", "diagnoses": ({"outcome": "timeout", "says": "."},)}  # fmt: skip
    number = len(re.findall(row["find"], base.source))  # type: ignore[call-overload]
    first = Fault(**row, where="first").apply_to(base)  # type: ignore[arg-type]
    last = Fault(**row, where="last").apply_to(base)  # type: ignore[arg-type]
    everything = Fault(**row, where="all").apply_to(base)  # type: ignore[arg-type]
    assert first and last and everything
    assert first.index("other(") == base.source.index("ptx::shared_address(")
    assert last.rindex("other(") > first.index("other(")
    assert everything.count("other(") == number > 2
    assert Fault(**{**row, "find": "no such text"}).apply_to(base) is None  # type: ignore[arg-type]


def test_a_fault_counts_only_with_its_own_diagnosis() -> None:
    good = a_verdict("good", Outcome.CORRECT_UNTIMED)
    fault = FAULTS["missing_release"]
    source = "int a;\nwait(storage.empty[stage]);\nwait(storage.full[stage]);\n"
    stuck = a_verdict(source, Outcome.TIMEOUT, reason="Deadlock: warp 8 waits at line 2 for the phase of parity 0.")
    assert fault.confirmed(source, stuck, good) == "timeout"
    elsewhere = stuck.model_copy(update={"reason": "Deadlock: warp 8 waits at line 3 for the phase of parity 0."})
    assert fault.confirmed(source, elsewhere, good) == ""
    assert fault.confirmed(source, a_verdict(source, Outcome.WRONG_RESULT, reason="storage.empty"), good) == ""
    assert fault.confirmed(source, good, good) == ""


def test_a_wrong_layout_is_not_confirmed_by_a_race() -> None:
    fault, good = FAULTS["wrong_descriptor_stride"], a_verdict("good", Outcome.CORRECT_UNTIMED)
    wrong = a_verdict("x", Outcome.WRONG_RESULT, reason="Output C is wrong: wrong values everywhere.")
    assert fault.confirmed("x", wrong, good) == "wrong_result"
    racy = wrong.model_copy(update={"advice": "It relies on an order that nothing enforces."})
    assert fault.confirmed("x", racy, good) == ""


def test_a_hazard_is_an_accepted_kernel_with_that_finding() -> None:
    fault, good = FAULTS["missing_proxy_fence"], a_verdict("good", Outcome.CORRECT_UNTIMED)
    found = a_verdict("x", Outcome.CORRECT_UNTIMED, hazards=(a_hazard("missing_async_proxy_fence"),))
    other = a_verdict("x", Outcome.CORRECT_UNTIMED, hazards=(a_hazard("tensor_memory_leak"),))
    assert fault.confirmed("x", found, good) == "hazard"
    assert fault.confirmed("x", other, good) == ""


def test_slow_is_measured_against_the_good_kernel() -> None:
    def timed(median: float) -> TimingReport:
        speedup = Interval(median=median, low=median * 0.99, high=median * 1.01)
        return TimingReport(speedup=speedup, baseline="cublas", ms=1.0, tflops=1.0, speed_of_light=0.1)

    fault = FAULTS["ring_of_two"]
    good = a_verdict("good", Outcome.PASSED, timing=timed(0.8))
    assert fault.only_slow
    assert fault.confirmed("x", a_verdict("x", Outcome.PASSED, timing=timed(0.4)), good) == "slow"
    assert fault.confirmed("x", a_verdict("x", Outcome.PASSED, timing=timed(0.7)), good) == ""
    untimed = a_verdict("x", Outcome.CORRECT_UNTIMED)
    assert fault.confirmed("x", untimed, untimed) == ""


def test_rows_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValidationError, match="unknown kind of failure 'broken'"):
        Diagnosis(outcome="broken", says=".")
    with pytest.raises(ValidationError, match="unknown change 'nothing'"):
        Fault(name="x", topic="host", find="a", apply="nothing", diagnoses=(), why="", fix="")


def test_the_place_of_a_change_is_named_in_both_files() -> None:
    (change,) = changes("a\nbad\nc\n", "a\ngood\nbetter\nc\n")
    assert change == (2, ("bad",), ("good", "better"))


def test_a_verdict_in_brief_has_no_sizes_and_no_ratios() -> None:
    fault = FAULTS["wrong_scale"]
    reason = "Output C is wrong at M=256, N=256, K=1536 on normal inputs: zero in rows 0-7 (RMS error 3 times it)."
    places = changes("a\n", "b\n")
    text = explain_repair(fault, a_verdict("a", Outcome.WRONG_RESULT, reason=reason), places)
    assert "**What the verdict says.** Output C is wrong: zero in rows 0-7.\n" in text
    found = a_verdict("a", Outcome.CORRECT_UNTIMED, hazards=(a_hazard("missing_async_proxy_fence"),))
    assert "**What the verdict says.** a rule.\n" in explain_repair(fault, found, places)
