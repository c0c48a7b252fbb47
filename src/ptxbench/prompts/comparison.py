"""Tier 1 in words: where results are wrong, under which conditions they are right, and what that suggests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ptxbench.core import OutputReport, Verdict, WorkloadReport
from ptxbench.prompts.disclosure import HIDDEN, Disclosure, inputs_in_words, without_numbers
from ptxbench.prompts.hints import PATTERN_HINTS, hint


class Run(NamedTuple):
    """One output of one run. ``place`` is what may be said of the sizes."""

    place: str
    workload: WorkloadReport
    output: OutputReport


def correctness_lines(verdict: Verdict, disclosure: Disclosure) -> Iterator[str]:
    """A line per wrong output and place, conclusions from which runs are right, or one line if all are."""
    runs: dict[str, list[Run]] = {}
    for workload in verdict.correctness.workloads:
        for name, output in workload.outputs.items():
            runs.setdefault(name, []).append(Run(disclosure.at(workload.sizes), workload, output))
    if not runs:
        return
    wrong = {name: found for name, found in runs.items() if not all(run.output.ok for run in found)}
    for name, found in wrong.items():
        for place in dict.fromkeys(run.place for run in found if not run.output.ok):
            yield _wrong_line(name, place, [run for run in found if run.place == place])
    for name, found in wrong.items():
        yield from (f"{name}: {words}" for words in _conclusions(found))
    right = [name for name in runs if name not in wrong]
    if right:
        worst = max((r.output.rms_ratio or 0.0 for name in right for r in runs[name] if r.place != HIDDEN), default=0.0)
        yield f"right everywhere: {', '.join(right)} (RMS error at most {worst:.2f} times an honest kernel's)"


def _wrong_line(name: str, place: str, runs: Sequence[Run]) -> str:
    """Tells the first wrong run, preferably one whose pattern was looked for."""
    wrong = [run for run in runs if not run.output.ok]
    told = next((run for run in wrong if run.output.pattern), wrong[0]).output
    line = f"{name} at {place}: wrong in {len(wrong)} of {len(runs)} runs"
    pattern = without_numbers(told.pattern) if place == HIDDEN else told.pattern
    if pattern:
        line += f"; {pattern}"
    if place != HIDDEN:
        line += f"; {told.bad_share:.2%} of the elements are out of bounds"
        if told.first_bad:
            line += f", the first at [{', '.join(map(str, told.first_bad))}]"
    if told.rms_ratio is not None:
        line += f"; the RMS error is {_size(told.rms_ratio, hidden=place == HIDDEN)} an honest kernel's"
    advice = hint(PATTERN_HINTS, told.pattern)
    return line + (f"\n    → {advice}" if advice else "")


def _size(ratio: float, *, hidden: bool) -> str:
    if ratio > 1e6:
        return "over a million times"
    if not hidden:
        return f"{ratio:.3g} times"
    return "a few times" if ratio < 10 else "many times"


def _conclusions(runs: Sequence[Run]) -> Iterator[str]:
    """What tells the wrong runs from the right ones, where it is one thing alone."""
    if all(not run.output.ok for run in runs):
        return
    if words := _apart(runs, lambda run: (run.place, run.workload.distribution), lambda run: run.workload.schedule):
        yield (
            f"right or wrong by the order in which asynchronous work completes (wrong with {words}): a race. Something "
            "is read before it was waited for, or overwritten before it had been read. (Late: it takes effect only "
            "when something waits for it; reversed: blocks and warps run in the opposite order)"
        )
        return
    if words := _apart(runs, lambda run: run.place, lambda run: inputs_in_words(run.workload.distribution)):
        yield f"wrong only on {words}: a matter of the values (overflow, cancellation, zeros), not of addresses"
        return
    wrong, right = _places(runs, ok=False), _places(runs, ok=True)
    if wrong == {HIDDEN}:
        yield "right at all sizes that were shown and wrong at others: something assumes those sizes"
    elif not wrong & right:
        here, there = "; ".join(sorted(wrong)), "; ".join(sorted(right))
        yield f"wrong at {here} and right at {there}: compare loop bounds and tails"


def _places(runs: Sequence[Run], *, ok: bool) -> set[str]:
    return {run.place for run in runs if run.output.ok is ok}


def _apart(runs: Sequence[Run], same: Callable[[Run], object], differs: Callable[[Run], str]) -> str:
    """The values of ``differs`` of wrong runs that have a right counterpart, equal in ``same``; else empty."""
    right = {same(run) for run in runs if run.output.ok}
    wrong = [run for run in runs if not run.output.ok]
    if not all(same(run) in right for run in wrong):
        return ""
    values = dict.fromkeys(differs(run) for run in wrong)
    if values.keys() & {differs(run) for run in runs if run.output.ok}:
        return ""
    return "; ".join(values)
