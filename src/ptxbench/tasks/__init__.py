"""Tasks as rows of data, their reference mathematics, the emulated honest algorithm and the input distributions."""

from ptxbench.tasks.arrays import Float64, Mask, Sizes, Tensor, Tensors, numpy_dtype, turned
from ptxbench.tasks.attention import EXP_ERROR
from ptxbench.tasks.distributions import DISTRIBUTIONS, draw_inputs
from ptxbench.tasks.operations import OPERATIONS, Operation
from ptxbench.tasks.problem import Problem, flops, input_bytes, make_problem, output_bytes
from ptxbench.tasks.rounding import FP32_ROUNDOFF, rounded, roundoff, summation_factor, ulp, underflow
from ptxbench.tasks.suite import get_task, load_tasks, sizes_problem
from ptxbench.tasks.tolerance import max_denominator, rms_denominator

__all__ = [
    "DISTRIBUTIONS", "EXP_ERROR", "FP32_ROUNDOFF", "OPERATIONS", "Float64", "Mask", "Operation", "Problem", "Sizes",
    "Tensor", "Tensors", "draw_inputs", "flops", "get_task", "input_bytes", "load_tasks", "make_problem",
    "max_denominator", "numpy_dtype", "output_bytes", "rms_denominator", "rounded", "roundoff", "sizes_problem",
    "summation_factor", "turned", "ulp", "underflow",
]
