"""Attention on the device, forward and backward: the mathematics of `tasks`, step by step.

The S×S matrices of a few heads at a time are kept in memory: in fp64 for the truth and the derived errors (which are
squared, and fp32 has no range for that), in fp32 for the honest algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ptxbench.core import Dtype, Task
from ptxbench.devices.cuda.verifier.arrays import THREADS, Array, Arrays, over
from ptxbench.devices.cuda.verifier.products import (
    Answer,
    Change,
    Operand,
    Triangle,
    empty_answer,
    error_scale,
    multiply,
    operand,
    round_to,
)
from ptxbench.tasks import EXP_ERROR, FP32_ROUNDOFF, roundoff, summation_factor, underflow

_SQUARES_BYTES = 8 << 30
"""Memory for the S×S matrices of the heads that are worked on together."""

# Bytes that S×S matrices take per pair of a query and a key.
_FORWARD_BYTES = 8 + 4 + 2
_BACKWARD_BYTES = 3 * 8 + 2 * 4 + 2 * 2

# As in gradient.cu: of which quantity the derived errors are asked.
_OF_WEIGHTS, _OF_OWN, _OF_ALL = range(3)


@dataclass(frozen=True)
class _Sizes:
    """``heads`` is B·H; ``together`` are worked on at a time."""

    heads: int
    together: int
    length: int
    depth: int
    causal: bool
    dtype: Dtype

    @staticmethod
    def of(task: Task, sizes: Mapping[str, int], bytes_per_pair: int) -> _Sizes:
        """What the task's row and sizes say; ``together`` divides ``heads`` and keeps within the memory."""
        heads, length = sizes["B"] * sizes["H"], sizes["S"]
        fit = max(1, _SQUARES_BYTES // (bytes_per_pair * length**2))
        together = max(count for count in range(1, min(heads, fit) + 1) if heads % count == 0)
        return _Sizes(
            heads, together, length, sizes["D"], task.options.get("causal", False), task.matrix_dtype
        )

    @property
    def factor(self) -> float:
        """The softmax scale."""
        return 1 / math.sqrt(self.depth)


class _Heads:
    """A few heads: their softmax in both precisions, in matrices [heads, S, S] that are used again and again."""

    def __init__(self, sizes: _Sizes, scratch: Arrays) -> None:
        self.sizes = sizes
        self.machine = scratch.machine
        self.square = (sizes.together, sizes.length, sizes.length)
        self.tall = (sizes.together, sizes.length, sizes.depth)
        self.weights = scratch.empty(self.square, "f64")
        self.single = scratch.empty(self.square, "f32")
        self.rounded = scratch.empty(self.square, sizes.dtype)
        self.result = scratch.empty(self.tall, "f32")

    def each_query(self, kernel: str, *fields: Array | int | float | None) -> None:
        """Launches a kernel with a block of threads per query."""
        self.machine.launch(kernel, (self.sizes.length, self.sizes.together, 1), fields)

    def causal(self, triangle: Triangle) -> Triangle:
        """``triangle`` where there is a mask."""
        return triangle if self.sizes.causal else Triangle.NONE

    def find_weights(self, q: Operand, k: Operand, lse: Array) -> None:
        """Weights and LSE of the truth."""
        self._logits(q, k.turned, self.weights, self.sizes.factor)
        self.each_query("softmax_exact", self.weights, lse, self.sizes.length, int(self.sizes.causal))

    def find_logits(self, q: Operand, k: Operand) -> None:
        """``single`` becomes the logits in fp32."""
        self._logits(q, k.turned, self.single, self.sizes.factor)

    def find_logit_noise(self, q: Operand, k: Operand) -> None:
        """``single`` becomes the derived error of each logit."""
        scale = self.sizes.factor * summation_factor(self.sizes.depth)
        self._logits(q.changed(Change.MAGNITUDE), k.changed(Change.MAGNITUDE).turned, self.single, scale)

    def _logits(self, left: Operand, right: Operand, result: Array, scale: float) -> None:
        multiply(self.machine, left, right, result, scale=scale, triangle=self.causal(Triangle.RESULT))


class _Forward(_Heads):
    def __init__(self, sizes: _Sizes, scratch: Arrays) -> None:
        super().__init__(sizes, scratch)
        self.noise = scratch.empty(self.tall, "f64")
        self.lse_noise = scratch.empty(self.tall[:2], "f64")
        self.total = scratch.empty(self.tall[:2], "f32")

    def solve(self, q: Operand, k: Operand, v: Operand, out: Answer, lse: Answer) -> None:
        sizes, machine = self.sizes, self.machine
        mask = (sizes.length, int(sizes.causal))
        self.find_weights(q, k, lse.truth)
        multiply(machine, operand(self.weights), v, out.truth, triangle=self.causal(Triangle.OPERAND))

        self.find_logits(q, k)
        self.each_query(
            "softmax_honest", self.single, self.rounded, self.total, lse.honest, *mask, self.rounded.code
        )
        multiply(machine, operand(self.rounded), v, self.result, triangle=self.causal(Triangle.OPERAND))
        round_to(machine, self.result, out.honest, divisor=self.total)

        self.find_logit_noise(q, k)
        self.each_query(
            "softmax_noise", self.weights, self.single, lse.truth, self.lse_noise, *mask,
            roundoff(sizes.dtype), underflow(sizes.dtype), EXP_ERROR, 4 * FP32_ROUNDOFF,
        )
        multiply(machine, operand(self.weights), v.changed(Change.SQUARE), self.noise)
        error_scale(machine, out, self.noise)
        error_scale(machine, lse, self.lse_noise)


class _Backward(_Heads):
    def __init__(self, sizes: _Sizes, scratch: Arrays) -> None:
        super().__init__(sizes, scratch)
        # dP of the truth, then dP - delta, then dS; squared errors; dP of the honest algorithm; its dS.
        self.slope = scratch.empty(self.square, "f64")
        self.errors = scratch.empty(self.square, "f64")
        self.second = scratch.empty(self.square, "f32")
        self.rounded_scores = scratch.empty(self.square, sizes.dtype)
        self.out, self.query_noise, self.key_noise, self.common = (scratch.empty(self.tall, "f64") for _ in range(4))
        self.lse, self.delta_noise = (scratch.empty(self.tall[:2], "f64") for _ in range(2))

    def solve(
        self, q: Operand, k: Operand, v: Operand, d_out: Operand, out: Operand, lse: Array,
        answers: Mapping[str, Answer],
    ) -> None:
        """Fills in the given ``out`` and ``lse`` (the forward pass's truth, rounded) and all answers."""
        machine = self.machine
        self.find_weights(q, k, self.lse)
        multiply(machine, operand(self.weights), v, self.out, triangle=self.causal(Triangle.OPERAND))
        round_to(machine, self.lse, lse)
        round_to(machine, self.out, out.array)
        multiply(machine, d_out, v.turned, self.slope)
        sizes = self.sizes
        self.each_query("slope_exact", self.weights, self.slope, self.delta_noise, sizes.length, int(sizes.causal))
        self._noise(q, k, v, d_out, answers["dV"])
        self._truth(q, k, answers)
        self._honest(q, k, v, d_out, out, lse, answers)

    def _noise(self, q: Operand, k: Operand, v: Operand, d_out: Operand, d_v: Answer) -> None:
        """Squared errors of dQ and dK, which lack their factor; dV with its truth."""
        machine, sizes = self.machine, self.sizes
        queries = sizes.together * sizes.length
        machine.launch("delta_noise", (-(-queries // THREADS), 1, 1), [
            d_out.array, self.out, self.delta_noise, d_out.array.code, sizes.depth, queries, roundoff(sizes.dtype),
            underflow("f32"),
        ])
        self.find_logit_noise(q, k)
        magnitude = d_out.changed(Change.MAGNITUDE), v.changed(Change.MAGNITUDE).turned
        multiply(machine, *magnitude, self.second, scale=summation_factor(sizes.depth))

        self._squared_errors(_OF_WEIGHTS)
        multiply(machine, operand(self.errors).turned, d_out.changed(Change.SQUARE), self.key_noise)
        multiply(machine, operand(self.weights).turned, d_out, d_v.truth, triangle=self.causal(Triangle.TURNED))
        error_scale(machine, d_v, self.key_noise)

        self._squared_errors(_OF_OWN)
        multiply(machine, operand(self.errors), k.changed(Change.SQUARE), self.query_noise)
        multiply(machine, operand(self.weights), k, self.common, triangle=self.causal(Triangle.OPERAND))
        machine.launch("query_noise", over(self.common.count), [
            self.query_noise, self.common, self.delta_noise, sizes.depth, self.common.count,
        ])
        self._squared_errors(_OF_ALL)
        multiply(machine, operand(self.errors).turned, q.changed(Change.SQUARE), self.key_noise)

    def _squared_errors(self, of: int) -> None:
        sizes = self.sizes
        self.each_query(
            "gradient_errors", self.weights, self.slope, self.single, self.second, self.delta_noise, self.errors,
            sizes.length, int(sizes.causal), of, roundoff(sizes.dtype), underflow(sizes.dtype),
        )

    def _truth(self, q: Operand, k: Operand, answers: Mapping[str, Answer]) -> None:
        machine, factor = self.machine, self.sizes.factor
        scores = self.slope
        machine.launch("scores_exact", over(scores.count), [self.weights, scores, scores.count])
        d_q, d_k = answers["dQ"], answers["dK"]
        multiply(machine, operand(scores), k, d_q.truth, scale=factor, triangle=self.causal(Triangle.OPERAND))
        multiply(machine, operand(scores).turned, q, d_k.truth, scale=factor, triangle=self.causal(Triangle.TURNED))
        error_scale(machine, d_q, self.query_noise, factor)
        error_scale(machine, d_k, self.key_noise, factor)

    def _honest(
        self, q: Operand, k: Operand, v: Operand, d_out: Operand, out: Operand, lse: Array,
        answers: Mapping[str, Answer],
    ) -> None:
        machine, sizes = self.machine, self.sizes
        self.find_logits(q, k)
        multiply(machine, d_out, v.turned, self.second, triangle=self.causal(Triangle.RESULT))
        self.each_query(
            "gradient_honest", self.single, self.second, out.array, d_out.array, lse, self.rounded,
            self.rounded_scores, sizes.length, sizes.depth, int(sizes.causal), self.rounded.code,
        )
        scores = operand(self.rounded_scores)
        above, below = self.causal(Triangle.OPERAND), self.causal(Triangle.TURNED)
        for name, left, right, scale, triangle in (
            ("dQ", scores, k, sizes.factor, above),
            ("dK", scores.turned, q, sizes.factor, below),
            ("dV", operand(self.rounded).turned, d_out, 1.0, below),
        ):
            multiply(machine, left, right, self.result, scale=scale, triangle=triangle)
            round_to(machine, self.result, answers[name].honest)


def solve_forward(
    task: Task, sizes: Mapping[str, int], inputs: Mapping[str, Array], keep: Arrays, scratch: Arrays
) -> dict[str, Answer]:
    """The answers for O and LSE. What stays is made in ``keep``, what does not in ``scratch``."""
    of = _Sizes.of(task, sizes, _FORWARD_BYTES)
    answers = {a.name: empty_answer(keep, scratch, a.dims(dict(sizes)), a.dtype) for a in task.outputs}
    with Arrays(keep.machine) as squares:
        forward = _Forward(of, squares)
        for first in range(0, of.heads, of.together):
            q, k, v = (operand(_heads(of, inputs[name], first)) for name in "QKV")
            forward.solve(q, k, v, _answer(of, answers["O"], first), _answer(of, answers["LSE"], first))
    return answers


def solve_backward(
    task: Task, sizes: Mapping[str, int], inputs: Mapping[str, Array], keep: Arrays, scratch: Arrays
) -> dict[str, Answer]:
    """The answers for dQ, dK and dV, as above. Fills in O and LSE of ``inputs``, which are made of the others."""
    of = _Sizes.of(task, sizes, _BACKWARD_BYTES)
    answers = {a.name: empty_answer(keep, scratch, a.dims(dict(sizes)), a.dtype) for a in task.outputs}
    with Arrays(keep.machine) as squares:
        backward = _Backward(of, squares)
        for first in range(0, of.heads, of.together):
            q, k, v, d_out, out = (operand(_heads(of, inputs[name], first)) for name in ("Q", "K", "V", "dO", "O"))
            here = {name: _answer(of, answer, first) for name, answer in answers.items()}
            backward.solve(q, k, v, d_out, out, _heads(of, inputs["LSE"], first), here)
    return answers


def _heads(of: _Sizes, array: Array, first: int) -> Array:
    """The heads that are worked on from ``first``: [together, S, D], or [together, S] of LSE."""
    return array.reshaped(of.heads, *array.shape[2:]).part(first, of.together)


def _answer(of: _Sizes, answer: Answer, first: int) -> Answer:
    return Answer(*(_heads(of, array, first) for array in (answer.truth, answer.scale, answer.honest)))
