"""A PTX module made ready to run: parsed, lowered and decoded by the machine."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from ptxbench.core import Target, UnsupportedError
from ptxbench.simulator import lower, ptx
from ptxbench.simulator.library import LoadedModule
from ptxbench.simulator.lower.image import Image, LoweredKernel


@dataclass(frozen=True, slots=True)
class Program:
    """The kernels of one PTX module. Immutable: any number of runs may use it at once."""

    image: Image
    module: LoadedModule

    @property
    def target(self) -> Target:
        """The target the module was compiled for."""
        return Target(self.image.target)

    def kernel_index(self, name: str) -> int | None:
        """The number of a kernel in the image, or ``None`` if it was not loaded."""
        return next((i for i, kernel in enumerate(self.image.kernels) if kernel.name == name), None)

    def kernel(self, index: int) -> LoweredKernel:
        """The lowered kernel of that number."""
        return self.image.kernels[index]


def load(text: str, kernels: Sequence[str], machine: ctypes.CDLL | None = None) -> Program:
    """Parses and lowers the named kernels of PTX text.

    ``machine`` is a library that `machine_library` returned, without it the plain one.

    Raises `PtxSyntaxError` for text that is not PTX, `UnsupportedError` for an instruction, modifier or target that
    the simulator does not implement.
    """
    image = lower.lower(ptx.parse(text), kernels)
    if image.target not in tuple(Target):
        raise UnsupportedError(f"the PTX is for {image.target}; the simulator runs {', '.join(Target)}")
    return Program(image, LoadedModule(image.encode(), machine))
