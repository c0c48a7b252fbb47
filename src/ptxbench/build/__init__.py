"""Source text to artifact: toolchain, sandbox, compiler, and what the compiler's output says."""

from ptxbench.build.compile import compile_candidate
from ptxbench.build.confine import Mount
from ptxbench.build.contract import signature
from ptxbench.build.sandbox import CHANNEL, Completed, Limits, Sandbox, find_sandbox
from ptxbench.build.source import check_source
from ptxbench.build.toolchain import COMPILE_LIMITS, Toolchain, find_toolchain

__all__ = [
    "CHANNEL", "COMPILE_LIMITS", "Completed", "Limits", "Mount", "Sandbox", "Toolchain", "check_source",
    "compile_candidate", "find_sandbox", "find_toolchain", "signature",
]
