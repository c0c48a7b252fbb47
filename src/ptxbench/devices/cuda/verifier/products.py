"""Batched matrix products on the device, and what else the operations share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from ptxbench.devices.cuda.verifier.arrays import Array, Arrays, Machine, over


class Change(IntEnum):
    """What becomes of an operand's elements before they are multiplied."""

    NOTHING = 0
    MAGNITUDE = 1
    SQUARE = 2


class Triangle(IntEnum):
    """What of a product with a causal matrix need not be computed.

    ``RESULT``: tiles of the result above the diagonal, which stay as they are. ``OPERAND``: the left operand is zero
    above its diagonal. ``TURNED``: it is zero below.
    """

    NONE = 0
    RESULT = 1
    OPERAND = 2
    TURNED = 3


_TILES = {"f64": ("product_f64", 128, 64), "f32": ("product_f32", 128, 128)}


@dataclass(frozen=True)
class Operand:
    """A batch of matrices [batch, rows, columns], perhaps seen transposed; steps in elements."""

    array: Array
    rows: int
    columns: int
    row_step: int
    column_step: int
    change: Change = Change.NOTHING

    @property
    def turned(self) -> Operand:
        """Every matrix transposed."""
        return replace(
            self, rows=self.columns, columns=self.rows, row_step=self.column_step, column_step=self.row_step
        )

    def changed(self, change: Change) -> Operand:
        """The same with its elements changed."""
        return replace(self, change=change)


def operand(array: Array) -> Operand:
    """An array [batch, rows, columns] as it is."""
    _, rows, columns = array.shape
    return Operand(array, rows, columns, columns, 1)


def multiply(
    machine: Machine, left: Operand, right: Operand, result: Array, *, scale: float = 1.0,
    triangle: Triangle = Triangle.NONE,
) -> None:
    """``result`` = scale · left · right, computed in the result's own precision (f32 or f64)."""
    batch, rows, columns = result.shape
    if (left.rows, left.columns, right.columns) != (rows, right.rows, columns):
        raise ValueError(f"[{left.rows}, {left.columns}] times [{right.rows}, {right.columns}] is not {result.shape}")
    kernel, tall, wide = _TILES[result.dtype]
    machine.launch(kernel, (-(-columns // wide), -(-rows // tall), batch), [
        left.array, right.array, result,
        left.array.code, left.rows * left.columns, left.row_step, left.column_step, int(left.change),
        right.array.code, right.rows * right.columns, right.row_step, right.column_step, int(right.change),
        rows * columns, rows, columns, left.columns, int(triangle), float(scale),
    ])


def round_to(
    machine: Machine, values: Array, result: Array, divisor: Array | None = None
) -> None:
    """``values`` (over ``divisor``, one per row, in fp32) rounded once to the type of ``result``."""
    machine.launch("round_rows", over(values.count), [
        values, divisor, result, values.code, result.code, values.shape[-1], values.count,
    ])


@dataclass(frozen=True)
class Answer:
    """One output by truth (f64) and by the honest algorithm, with each element's error scale (f32); its own shape."""

    truth: Array
    scale: Array
    honest: Array


def error_scale(machine: Machine, answer: Answer, noise: Array, factor: float = 1.0) -> None:
    """Fills in the scale of an answer: √(rounding² + factor² · noise), ``noise`` being squared errors (f64)."""
    machine.launch("error_scale", over(noise.count), [
        answer.truth, noise, answer.scale, answer.honest.code, noise.count, factor**2,
    ])


def empty_answer(keep: Arrays, scratch: Arrays, shape: tuple[int, ...], dtype: str) -> Answer:
    """An answer to be filled in. Truth and scale live in ``keep``, the honest output in ``scratch``."""
    return Answer(keep.empty(shape, "f64"), keep.empty(shape, "f32"), scratch.empty(shape, dtype))
