"""Where kernels are judged during a run. Everything is passed in; a run knows no compiler and no device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ptxbench.core import (
    Artifact,
    Candidate,
    Evaluator,
    Rejection,
    TrajectoryRecord,
    UnsupportedError,
    Verdict,
    make_candidate,
)
from ptxbench.store import RunFolder, VerdictKey


@dataclass(frozen=True)
class Judged:
    """What became of a kernel: a stored verdict with the digest of its key, or the sentence that says why there is
    none. ``seconds`` is how long it took.
    """

    source_digest: str
    key: str | None
    verdict: Verdict | None
    seconds: float
    problem: str = ""


@dataclass(frozen=True)
class Bench:
    """The judge and the tools of one run; safe to use from several threads.

    ``evaluator`` gives the verdicts that count and ``key`` names them; ``fresh`` judges anew whatever is stored;
    ``quick`` judges at the small sizes only, for
    agents that try something out; ``compile`` gives them compiler messages and machine code. ``times`` says whether
    the device can time, so that a kernel that is right can still become better.
    """

    evaluator: Evaluator
    key: Callable[[Candidate], VerdictKey]
    fresh: Evaluator
    quick: Evaluator
    compile: Callable[[Candidate], Artifact | Rejection]
    times: bool

    def judge(self, candidate: Candidate, folder: RunFolder) -> Judged:
        """The verdict on a candidate, stored in the run's folder together with its source.

        What only concerns this kernel (the simulator lacks an instruction) is a problem in the answer; other
        infrastructure errors are raised.
        """
        folder.put_source(candidate.source)
        begin = time.perf_counter()
        try:
            verdict = self.evaluator.evaluate(candidate)
        except UnsupportedError as error:
            return Judged(candidate.digest, None, None, time.perf_counter() - begin, str(error))
        key = folder.put_verdict(self.key(candidate), verdict)
        return Judged(candidate.digest, key, verdict, time.perf_counter() - begin)

    def remeasure(self, trajectory: TrajectoryRecord, folder: RunFolder) -> TrajectoryRecord:
        """The trajectory with the speedup of its best kernel measured once more, after the choice was made.

        The best of several measurements is too high on average (the winner's curse); a measurement that nothing was
        chosen by is not. ``remeasured`` stays None where nothing was timed, or is not timed this time.
        """
        best = trajectory.best
        if best is None or best.speedup is None:
            return trajectory.model_copy(update={"remeasured": None})
        candidate = make_candidate(
            folder.source(best.source_digest), task=trajectory.task, target=trajectory.target,
            origin=f"{trajectory.run}/{trajectory.task}@{trajectory.epoch}/turn {best.index}, measured again",
        )  # fmt: skip
        timing = self.fresh.evaluate(candidate).timing
        return trajectory.model_copy(update={"remeasured": timing.speedup if timing else None})
