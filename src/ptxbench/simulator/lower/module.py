"""A PTX module, lowered for the kernels that a plan launches."""

from __future__ import annotations

from collections.abc import Sequence

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import Image
from ptxbench.simulator.lower.kernel import lower_kernel
from ptxbench.simulator.lower.rules import RULES
from ptxbench.simulator.lower.variables import ModuleVariables


def lower(module: ptx.Module, kernels: Sequence[str]) -> Image:
    """The image of a module with the named entry functions, in the order given.

    Other functions are not looked at, so what they use need not be supported. Raises `UnsupportedError` with the
    full opcode and the PTX line for an instruction or modifier that the simulator does not implement.
    """
    variables = ModuleVariables.of(module)
    lowered = tuple(lower_kernel(module, variables, name, RULES) for name in kernels)
    return Image(module.target.split(",")[0].strip(), variables.images(), lowered)
