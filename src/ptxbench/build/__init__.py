"""Source text to artifact: toolchain, sandbox, compiler, and what the compiler's output says."""

from ptxbench.build.sandbox import CHANNEL, Completed, Limits, Sandbox, find_sandbox

__all__ = ["CHANNEL", "Completed", "Limits", "Sandbox", "find_sandbox"]
