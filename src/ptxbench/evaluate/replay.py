"""Replaying a plan on drawn inputs, and turning what was observed into evidence."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ptxbench.core import Artifact, Device, LaunchPlan, Mode, Observation, Task
from ptxbench.evaluate.trials import Trial
from ptxbench.judge import Evidence, Run, judge_instructions, judge_perturbation, judge_run, poisoned_outputs
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
    """Replays the trials, ``threads`` at a time, up to the first that faults (in their order)."""
    problems = draw_problems(task, trials)

    def run(trial: Trial) -> Replay:
        problem = problems[trial.inputs]
        if trial.perturbation != 1.0:
            problem = problem.perturbed(trial.perturbation)
        return replay(device, artifact, plans[trial.plan], trial, problem)

    replays: list[Replay] = []
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(run, trial) for trial in trials]
        try:
            for future in futures:
                replays.append(future.result())
                if replays[-1].observation.fault:
                    break
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return replays


def draw_problems(task: Task, trials: Sequence[Trial]) -> dict[tuple[int, str, int], Problem]:
    """The problem of every set of inputs that the trials use, each computed once."""
    wanted = {trial.inputs: trial for trial in trials}
    return {key: make_problem(task, t.workload, t.distribution, t.seed) for key, t in wanted.items()}


def replay(device: Device, artifact: Artifact, plan: LaunchPlan, trial: Trial, problem: Problem) -> Replay:
    """One replay on copies of the inputs, with poisoned outputs and workspace."""
    outputs = poisoned_outputs(problem)
    tensors = {name: tensor.copy() for name, tensor in problem.inputs.items()} | outputs
    buffers = {name: tensor.view(np.uint8).reshape(-1).data for name, tensor in tensors.items()}
    noise = np.random.default_rng(problem.seed)
    for buffer in plan.buffers:
        if buffer.role == "workspace":
            buffers[buffer.name] = memoryview(bytearray(noise.bytes(buffer.bytes)))
    return Replay(trial, problem, device.run(artifact, plan, buffers, trial.options), outputs)


def judge_runs(replays: Sequence[Replay]) -> tuple[Run, ...]:
    """Judges the outputs of every replay; the first wrong run alone is explained, for that is what a verdict tells."""
    runs: list[Run] = []
    for r in replays:
        runs.append(judge_run(r.problem, r.observation, r.outputs, explain=all(run.ok for run in runs)))
    return tuple(runs)


def weigh(evidence: Evidence, artifact: Artifact, replays: Sequence[Replay]) -> Evidence:
    """Adds what the replays showed: judged runs, and the instruction report of the first counted one."""
    plain = [r for r in replays if r.trial.perturbation == 1.0]
    knocked = next((r for r in replays if r.trial.perturbation != 1.0 and not r.observation.fault), None)
    counted = next((r for r in plain if r.trial.options.mode is Mode.COUNT and not r.observation.fault), None)
    runs = judge_runs(plain)
    if counted is None:
        return replace(evidence, runs=runs)
    followed = judge_perturbation(knocked.problem, knocked.outputs) if knocked else None
    report = judge_instructions(
        evidence.task,
        evidence.candidate,
        artifact,
        evidence.plans[counted.trial.plan],
        counted.observation.counts,
        followed,
    )
    return replace(evidence, runs=runs, instructions=report)
