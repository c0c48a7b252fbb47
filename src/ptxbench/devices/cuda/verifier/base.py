"""A base set: inputs of one distribution, their truth, and the yardstick of every block."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from ptxbench.core import Task
from ptxbench.devices.cuda.verifier.arrays import Array, Arrays, Machine
from ptxbench.devices.cuda.verifier.attention import solve_backward, solve_forward
from ptxbench.devices.cuda.verifier.draw import draw
from ptxbench.devices.cuda.verifier.gemm import solve
from ptxbench.devices.cuda.verifier.maps import Layout, layout
from ptxbench.devices.cuda.verifier.products import Answer, round_to
from ptxbench.devices.cuda.verifier.statistics import Rearrangement, Subject, Yardstick, compare

SOLVERS = {"gemm": solve, "attention_forward": solve_forward, "attention_backward": solve_backward}
"""By the operation's name in the task's row."""

_DERIVED = {"attention_backward": ("O", "LSE")}
"""Inputs that follow from the others."""


@dataclass(frozen=True)
class BaseSet:
    """``inputs``, ``truth`` (f64) and ``scale`` (f32) are on the device, by argument name."""

    seed: int
    inputs: dict[str, Array]
    truth: dict[str, Array]
    scale: dict[str, Array]
    yardsticks: dict[str, Yardstick]
    seconds: dict[str, float]
    arrays: Arrays

    def close(self) -> None:
        """Gives its memory back."""
        self.arrays.close()


def make_base(machine: Machine, task: Task, sizes: Mapping[str, int], distribution: str, seed: int) -> BaseSet:
    """Draws inputs and computes everything about them; `UsageError` for an unknown distribution."""
    keep = Arrays(machine)
    try:
        return _make(keep, task, sizes, distribution, seed)
    except BaseException:
        keep.close()
        raise


def _make(keep: Arrays, task: Task, sizes: Mapping[str, int], distribution: str, seed: int) -> BaseSet:
    machine, seconds = keep.machine, dict[str, float]()
    derived = _DERIVED.get(task.operation, ())
    started = time.perf_counter()
    inputs = draw(keep, task, sizes, distribution, seed, without=derived)
    for argument in task.inputs:
        if argument.name in derived:
            inputs[argument.name] = keep.empty(argument.dims(dict(sizes)), argument.dtype)
    machine.synchronise()
    seconds["inputs"], started = time.perf_counter() - started, time.perf_counter()
    with Arrays(machine) as scratch:
        answers = SOLVERS[task.operation](task, sizes, inputs, keep, scratch)
        machine.synchronise()
        seconds["answers"], started = time.perf_counter() - started, time.perf_counter()
        same = Rearrangement(scratch, task, sizes, seed, 0)
        yardsticks = {
            argument.name: _yardstick(keep, scratch, answers[argument.name], same, layout(task, argument, sizes))
            for argument in task.outputs
        }
    seconds["yardstick"] = time.perf_counter() - started
    truth = {name: answer.truth for name, answer in answers.items()}
    scale = {name: answer.scale for name, answer in answers.items()}
    return BaseSet(seed, inputs, truth, scale, yardsticks, seconds, keep)


def _yardstick(keep: Arrays, scratch: Arrays, answer: Answer, same: Rearrangement, lies: Layout) -> Yardstick:
    honest = compare(scratch, Subject(answer.honest, answer.truth, answer.scale, lies), same)
    round_to(scratch.machine, answer.truth, answer.honest)
    rounding = compare(scratch, Subject(answer.honest, answer.truth, answer.scale, lies), same)
    return Yardstick.of(keep, honest, rounding, lies)
