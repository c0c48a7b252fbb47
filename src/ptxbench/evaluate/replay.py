"""Replaying a plan on drawn inputs, and turning what was observed into evidence."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ptxbench.core import Artifact, Device, LaunchPlan, Mode, Observation, Task
from ptxbench.evaluate.trials import Trial
from ptxbench.judge import (
    Evidence,
    Run,
    instruction_gate,
    judge_instructions,
    judge_perturbation,
    judge_run,
    poisoned_outputs,
)
from ptxbench.tasks import Problem, Tensor, make_problem


@dataclass(frozen=True)
class Replay:
    """One trial done: its problem (the perturbed one in a knock-out run), what the device saw, and the outputs."""

    trial: Trial
    problem: Problem
    observation: Observation
    outputs: dict[str, Tensor]


def replay_all(
    device: Device, artifact: Artifact, plans: Sequence[LaunchPlan], task: Task, trials: Sequence[Trial], threads: int
) -> list[Replay]:
    """Replays the trials, ``threads`` at a time, up to the first that faults (in their order).

    Trials with the same inputs share one problem, which is drawn beside the replays before it.
    """
    problems: dict[tuple[int, str, int], Future[Problem]] = {}
    ended = threading.Event()

    def run(trial: Trial) -> Replay | None:
        if ended.is_set():  # a worker may take one more trial before the rest is cancelled
            return None
        problem = problems[trial.inputs].result()
        if trial.perturbation != 1.0:
            problem = problem.perturbed(trial.perturbation)
        done = replay(device, artifact, plans[trial.plan], trial, problem)
        if done.observation.fault:
            ended.set()
        return done

    replays: list[Replay] = []
    with ThreadPoolExecutor(threads) as pool:
        futures: list[Future[Replay | None]] = []
        for trial in trials:
            if trial.inputs not in problems:
                # The pool begins work in order, so that a trial never waits for a problem that has not begun.
                draw = (task, trial.workload, trial.distribution, trial.seed)
                problems[trial.inputs] = pool.submit(make_problem, *draw)
            futures.append(pool.submit(run, trial))
        try:
            for done in (future.result() for future in futures):
                # Trials begin in order, so that none before the first fault was skipped.
                if done is not None:
                    replays.append(done)
                if done is None or done.observation.fault:
                    break
        finally:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return replays


def replay(device: Device, artifact: Artifact, plan: LaunchPlan, trial: Trial, problem: Problem) -> Replay:
    """One replay on copies of the inputs, with poisoned outputs and workspace."""
    outputs, buffers = prepared(plan, problem)
    return Replay(trial, problem, device.run(artifact, plan, buffers, trial.options), outputs)


def prepared(plan: LaunchPlan, problem: Problem) -> tuple[dict[str, Tensor], dict[str, memoryview]]:
    """Poisoned output tensors, and the bytes that a device takes: theirs, the inputs', and a workspace of noise."""
    outputs = poisoned_outputs(problem)
    tensors = {name: tensor.copy() for name, tensor in problem.inputs.items()} | outputs
    buffers = {name: tensor.view(np.uint8).reshape(-1).data for name, tensor in tensors.items()}
    noise = np.random.default_rng(problem.seed)
    for buffer in plan.buffers:
        if buffer.role == "workspace":
            buffers[buffer.name] = memoryview(bytearray(noise.bytes(buffer.bytes)))
    return outputs, buffers


def judge_runs(replays: Sequence[Replay]) -> tuple[Run, ...]:
    """Judges the outputs of every replay; the first wrong run alone is explained, for that is what a verdict tells."""
    runs: list[Run] = []
    for r in replays:
        runs.append(judge_run(r.problem, r.observation, r.outputs, explain=all(run.ok for run in runs)))
    return tuple(runs)


def weigh(evidence: Evidence, replays: Sequence[Replay]) -> Evidence:
    """Adds what the replays showed: judged runs, and an instruction report.

    Every workload was counted, because a kernel may choose its instructions by the sizes. The report is the first that
    fails a gate, or else that of the first workload.
    """
    plain = [r for r in replays if r.trial.perturbation == 1.0]
    knocked = next((r for r in replays if r.trial.perturbation != 1.0 and not r.observation.fault), None)
    runs = judge_runs(plain)
    followed = judge_perturbation(knocked.problem, knocked.outputs) if knocked else None
    reports = [
        judge_instructions(
            evidence.task,
            evidence.candidate,
            evidence.built,
            evidence.plans[counted.trial.plan],
            counted.observation.counts,
            followed,
        )
        for counted in plain
        if counted.trial.options.mode is Mode.COUNT and not counted.observation.fault
    ]
    failing = (report for report in reports if instruction_gate(report, evidence.candidate.target))
    return replace(evidence, runs=runs, instructions=next(failing, reports[0] if reports else None))
