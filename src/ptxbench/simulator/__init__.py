"""A functional simulator: runs launch plans from PTX on the CPU, counts instructions and finds hazards."""

from ptxbench.simulator.library import MachineBuild, machine_library
from ptxbench.simulator.program import Program, load
from ptxbench.simulator.ptx import PtxSyntaxError
from ptxbench.simulator.replay import execute

__all__ = ["MachineBuild", "Program", "PtxSyntaxError", "execute", "load", "machine_library"]
