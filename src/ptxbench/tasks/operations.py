"""The reference mathematics of every operation, found by the name that a task's row gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from ptxbench.core import Task
from ptxbench.tasks.arrays import Float64, Mistakes, Sizes, Tensor, Tensors
from ptxbench.tasks.attention import AttentionBackward, AttentionForward
from ptxbench.tasks.gemm import Gemm


class Operation(Protocol):
    """What the judge must know about an operation. Implementations hold no state; all dicts are keyed by argument name.

    ``product_scale`` multiplies every matrix product of the operation, also those inside (1 is the task itself): it is
    the truth that a kernel must follow when the simulator scales what the matrix instruction yields.
    """

    @property
    def summed(self) -> Mapping[str, str]:
        """What `slices` are slices of, in a word per output (``k``, ``keys``)."""
        ...

    def inputs(self, task: Task, sizes: Sizes, distribution: str, seed: int) -> dict[str, Tensor]:
        """The inputs that are drawn, in their dtypes (`given` adds those that follow from them).

        Equal arguments give equal values, different ones independent values.
        """
        ...

    def given(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """``inputs`` with those that follow from the others (O and LSE of a backward pass) made for this scale.

        A kernel that takes them and one that makes them itself then agree, whatever the scale.
        """
        ...

    def truth(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """Outputs in float64 from the same inputs, not rounded."""
        ...

    def honest(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """Outputs in their dtypes by the emulated honest algorithm.

        Operands as given, products accumulated in fp32, intermediate operands rounded where the hardware must,
        outputs rounded once.
        """
        ...

    def noise(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """Derived RMS error per element of an honest kernel, without the rounding of the output; float64."""
        ...

    def blocks(self, task: Task) -> dict[str, tuple[int, ...]]:
        """The block per output in which errors are judged, one extent per axis."""
        ...

    def slices(self, task: Task, sizes: Sizes, inputs: Tensors) -> Iterator[tuple[int, int, dict[str, Float64]]]:
        """(start, stop, contribution to the outputs) of slices of the summed axis; none where it is not linear."""
        ...

    def mistakes(self, task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
        """Mistakes that authors make: in words, and with the outputs that they would lead to."""
        ...

    def flops(self, task: Task, sizes: Sizes) -> int:
        """Floating-point operations of the matrix products, multiply and add counted separately."""
        ...


OPERATIONS: Mapping[str, Operation] = {
    "gemm": Gemm(),
    "attention_forward": AttentionForward(),
    "attention_backward": AttentionBackward(),
}
