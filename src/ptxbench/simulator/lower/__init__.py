"""Lowering: PTX IR to the program image that the machine executes."""

from ptxbench.simulator.lower.image import Image, LoweredInstruction, LoweredKernel
from ptxbench.simulator.lower.module import lower

__all__ = ["Image", "LoweredInstruction", "LoweredKernel", "lower"]
