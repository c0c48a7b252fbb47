"""One problem to solve: drawn inputs with everything that is needed to judge an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ptxbench.core import Dtype, Task, Workload
from ptxbench.tasks.arrays import Float64, Tensor
from ptxbench.tasks.operations import OPERATIONS, Operation


@dataclass(frozen=True)
class Problem:
    """Inputs of one (workload, distribution, seed) and the answers by truth and by the honest algorithm.

    ``inputs`` and ``honest`` hold tensors in their dtypes, ``truth`` and ``noise`` float64; all keyed by argument name.
    ``product_scale`` is 1 for the task itself, else the factor of every matrix product (knock-out by perturbation).
    """

    task: Task
    workload: Workload
    distribution: str
    seed: int
    inputs: dict[str, Tensor]
    truth: dict[str, Float64]
    honest: dict[str, Tensor]
    noise: dict[str, Float64]
    product_scale: float = 1.0

    @property
    def operation(self) -> Operation:
        """The mathematics of the task."""
        return OPERATIONS[self.task.operation]

    @property
    def sizes(self) -> dict[str, int]:
        """The workload's sizes."""
        return self.workload.sizes

    def output_dtype(self, name: str) -> Dtype:
        """The element type of an output; `StopIteration` if the task has none of that name."""
        return next(argument for argument in self.task.outputs if argument.name == name).dtype

    def perturbed(self, product_scale: float) -> Problem:
        """The problem whose answers are right when every matrix product is scaled by ``product_scale``.

        Its inputs are the same but for those that follow from others (O and LSE of a backward pass), which are scaled
        along: a run whose products are scaled must be given these.
        """
        inputs = self.operation.given(self.task, self.sizes, self.inputs, product_scale)
        arguments = (self.task, self.sizes, inputs, product_scale)
        return replace(
            self,
            inputs=inputs,
            truth=self.operation.truth(*arguments),
            honest=self.operation.honest(*arguments),
            noise=self.operation.noise(*arguments),
            product_scale=product_scale,
        )


def make_problem(task: Task, workload: Workload, distribution: str, seed: int) -> Problem:
    """Draws inputs and computes their answers; `UsageError` on an unknown distribution.

    Costs a few times the task's products on the CPU: meant for the small and held-out tiers (well under a second).
    """
    operation = OPERATIONS[task.operation]
    inputs = operation.inputs(task, workload.sizes, distribution, seed)
    blank = Problem(task, workload, distribution, seed, inputs, truth={}, honest={}, noise={})
    return blank.perturbed(1.0)


def flops(task: Task, sizes: dict[str, int]) -> int:
    """Floating-point operations of the task's matrix products at these sizes."""
    return OPERATIONS[task.operation].flops(task, sizes)


def input_bytes(task: Task, sizes: dict[str, int]) -> int:
    """Bytes of all inputs, each counted once."""
    return sum(argument.nbytes(sizes) for argument in task.inputs)


def output_bytes(task: Task, sizes: dict[str, int]) -> int:
    """Bytes of all outputs, each counted once."""
    return sum(argument.nbytes(sizes) for argument in task.outputs)
