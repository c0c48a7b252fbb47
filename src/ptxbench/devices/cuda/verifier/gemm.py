"""GEMM on the device, as `tasks.Gemm` has it: truth in fp64, honest algorithm and derived error in fp32."""

from __future__ import annotations

from collections.abc import Mapping

from ptxbench.core import Task
from ptxbench.devices.cuda.verifier.arrays import Array, Arrays, over
from ptxbench.devices.cuda.verifier.products import Answer, Change, Operand, empty_answer, multiply, operand
from ptxbench.tasks import FP32_ROUNDOFF, summation_factor


def solve(
    task: Task, sizes: Mapping[str, int], inputs: Mapping[str, Array], keep: Arrays, scratch: Arrays
) -> dict[str, Answer]:
    """The answer for C. What stays is made in ``keep``, what does not in ``scratch``."""
    machine = keep.machine
    output = task.outputs[0]
    answer = empty_answer(keep, scratch, output.dims(dict(sizes)), output.dtype)
    batch, rows, columns = sizes.get("L", 1), sizes["M"], sizes["N"]
    a, b = _operands(task, inputs, batch)
    whole = (batch, rows, columns)
    truth = answer.truth.reshaped(*whole)
    honest, noise = scratch.empty(whole, "f32"), scratch.empty(whole, "f32")
    multiply(machine, a, b, truth)
    multiply(machine, a, b, honest)
    magnitude = a.changed(Change.MAGNITUDE), b.changed(Change.MAGNITUDE)
    multiply(machine, *magnitude, noise, scale=summation_factor(sizes["K"]))
    bias = inputs.get("bias")
    machine.launch("gemm_epilogue", over(truth.count), [
        truth, honest, noise, bias, answer.honest, answer.scale,
        answer.honest.code, bias.code if bias else 0, columns, truth.count, int(task.options.get("gelu", False)),
        FP32_ROUNDOFF,
    ])
    return {output.name: answer}


def _operands(task: Task, inputs: Mapping[str, Array], batch: int) -> tuple[Operand, Operand]:
    """A as [batch, M, K] and B as [batch, K, N]."""
    shapes = {argument.name: argument.shape for argument in task.inputs}
    a, b = (operand(inputs[name].reshaped(batch, *inputs[name].shape[-2:])) for name in "AB")
    return (a if shapes["A"][-1] == "K" else a.turned), (b.turned if shapes["B"][-1] == "K" else b)
