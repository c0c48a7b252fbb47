"""The verifier: a process that makes inputs, knows the truth and compares outputs, and shares nothing but buffers."""

from ptxbench.devices.cuda.verifier.build import verifier_cubin
from ptxbench.devices.cuda.verifier.client import Verifier
from ptxbench.devices.cuda.verifier.records import Check, Made, OutputStatistics, SharedBuffer

__all__ = ["Check", "Made", "OutputStatistics", "SharedBuffer", "Verifier", "verifier_cubin"]
