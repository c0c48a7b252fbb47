"""What is run for a verdict, as rows: workload, inputs and options of every replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxbench.core import Mode, RunOptions, Schedule, Task, Tier, Workload
from ptxbench.judge import PERTURBATION_SCALES

SCHEDULES: tuple[Schedule, ...] = tuple(
    model.model_copy(update={"reverse": reverse})
    for model in (
        Schedule(copies="eager", products="eager"),
        Schedule(copies="late", products="late"),
        Schedule(copies="eager", products="late"),
        Schedule(copies="late", products="eager"),
    )
    for reverse in (False, True)
)
"""The default schedules. Early copies with late products alone show a stage that is released too soon, late copies with
early products a tile that is read before it was waited for.
"""

STEP_LIMIT = 1_000_000_000
"""Work of all replays of one verdict together, each of which has an equal share: warp instructions, with products and
copies weighed by their size. Honest kernels need 12 million at most, and 2 million of 43 in one replay; scalar ones
some ten in a replay. It is worth minutes of one core, whatever a kernel does.
"""

HARDWARE_LIMIT_S = 3.0
"""Seconds of one replay of a small workload on a GPU, where known-good kernels need below a millisecond."""

TIME_LIMIT_S = 600.0
"""Only a safety net: what a busy machine can make longer must not decide a verdict."""


@dataclass(frozen=True)
class Trial:
    """One replay: ``plan`` indexes the workloads; a ``perturbation`` other than 1 makes it a knock-out run."""

    plan: int
    workload: Workload
    distribution: str
    seed: int
    options: RunOptions

    @property
    def inputs(self) -> tuple[int, str, int]:
        """What identifies the inputs; trials that share it solve the same problem."""
        return (self.plan, self.distribution, self.seed)

    @property
    def perturbation(self) -> float:
        """The factor of every product of the target's matrix instruction."""
        return self.options.perturbation


def draw_seed() -> int:
    """A secret seed for one verdict (63 bits from the operating system)."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))


def simulator_trials(task: Task, tiers: Sequence[Tier], seed: int) -> tuple[Trial, ...]:
    """The replays of one verdict on the simulator; all inputs follow from ``seed``.

    The first workload runs under every schedule, the others under two opposite ones; every distribution runs on the
    small tier. Replays under the plain schedule count; the last replay is the knock-out, at a workload that is drawn.
    """
    workloads = task.of_tier(*tiers)
    plain, late_reversed = SCHEDULES[0], SCHEDULES[3]
    rng = np.random.default_rng(seed)
    seeds = iter(int(s) for s in rng.integers(1 << 62, size=64))
    first, *others = task.distributions

    def trial(index: int, distribution: str, drawn: int, schedule: Schedule, mode: Mode = Mode.RUN,
              perturbation: float = 1.0) -> Trial:  # fmt: skip
        options = RunOptions(mode=mode, schedule=schedule, perturbation=perturbation,
                             time_limit_s=TIME_LIMIT_S)  # fmt: skip
        return Trial(index, workloads[index], distribution, drawn, options)

    trials: list[Trial] = []
    for index, workload in enumerate(workloads):
        drawn = next(seeds)
        schedules = SCHEDULES if index == 0 else (plain, late_reversed)
        trials += [trial(index, first, drawn, s, Mode.COUNT if s is plain else Mode.RUN) for s in schedules]
        if workload.tier == "small":
            trials += [trial(index, name, next(seeds), plain) for name in others]
    factor = float(rng.uniform(*PERTURBATION_SCALES))
    knocked = int(rng.integers(len(workloads)))
    drawn = next(t.seed for t in trials if t.plan == knocked)
    trials.append(trial(knocked, first, drawn, plain, perturbation=factor))
    return tuple(limited(t, STEP_LIMIT // len(trials)) for t in trials)


def limited(trial: Trial, step_limit: int) -> Trial:
    """The trial with another limit on its work."""
    return replace(trial, options=trial.options.model_copy(update={"step_limit": step_limit}))


def hardware_trials(task: Task, workloads: Sequence[Workload], seed: int, *, count: bool) -> tuple[Trial, ...]:
    """The replays of the small workloads on a GPU: all with the first distribution, the small tier with every other.

    With ``count`` the first replay of every workload counts too. Inputs follow from ``seed``, and differ from those of
    `simulator_trials`.
    """
    seeds = iter(int(s) for s in np.random.default_rng((seed, 1)).integers(1 << 62, size=64))
    first, *others = task.distributions

    def trial(index: int, distribution: str, mode: Mode) -> Trial:
        options = RunOptions(mode=mode, time_limit_s=HARDWARE_LIMIT_S)
        return Trial(index, workloads[index], distribution, next(seeds), options)

    trials: list[Trial] = []
    for index, workload in enumerate(workloads):
        trials.append(trial(index, first, Mode.COUNT if count else Mode.RUN))
        if workload.tier == "small":
            trials += [trial(index, name, Mode.RUN) for name in others]
    return tuple(trials)
