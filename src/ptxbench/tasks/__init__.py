"""Tasks as rows of data, their reference mathematics, the emulated honest algorithm and the input distributions."""

from ptxbench.tasks.arrays import Float64, Mask, Sizes, Tensor, Tensors, numpy_dtype, turned
from ptxbench.tasks.distributions import DISTRIBUTIONS, draw_inputs
from ptxbench.tasks.operations import OPERATIONS, Operation
from ptxbench.tasks.problem import Problem, flops, input_bytes, make_problem, output_bytes
from ptxbench.tasks.rounding import rounded, ulp
from ptxbench.tasks.suite import get_task, load_tasks, sizes_problem

__all__ = [
    "DISTRIBUTIONS", "OPERATIONS", "Float64", "Mask", "Operation", "Problem", "Sizes", "Tensor", "Tensors",
    "draw_inputs", "flops", "get_task", "input_bytes", "load_tasks", "make_problem", "numpy_dtype", "output_bytes",
    "rounded", "sizes_problem", "turned", "ulp",
]
