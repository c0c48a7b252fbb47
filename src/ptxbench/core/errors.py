"""Errors of the people and machines around a candidate, never of the candidate itself.

A candidate's failure is data (`Rejection`, `Fault`, and in the end a `Verdict`). What is raised is one of
two kinds: the user asked for something impossible (`UsageError`), or the infrastructure did not work
(`InfrastructureError`). Both end a command with exit code 2 and one sentence; neither is ever stored as a verdict.
"""

from __future__ import annotations


class PtxbenchError(Exception):
    """Base class; the message is one sentence that names the place and the remedy."""


class UsageError(PtxbenchError):
    """The request itself is wrong: an unknown task, an unreadable file, contradicting options."""


class InfrastructureError(PtxbenchError):
    """The judge could not do its work: no compiler, no device, full disk, a crashed worker.

    Retrying may help; nothing is known about the candidate.
    """


class ToolchainError(InfrastructureError):
    """The CUDA toolchain or the host compiler is missing or does not run."""


class SandboxError(InfrastructureError):
    """The sandbox could not be set up, so hostile code was not run."""


class CacheError(InfrastructureError):
    """The cache folder cannot be read or written (permissions, full disk)."""


class DeviceError(InfrastructureError):
    """The device is absent, was lost, or returned nothing where a measurement was expected."""


class Cancelled(InfrastructureError):
    """The work was called off before it ended: an interrupt, or a shutdown."""


class UnsupportedError(DeviceError):
    """The simulator does not implement an instruction or modifier; the message names it."""
