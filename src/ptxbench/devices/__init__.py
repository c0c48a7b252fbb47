"""Devices replay launch plans: the simulator here and now, CUDA GPUs through separate programs."""

from ptxbench.devices.cuda import (
    Arena,
    Check,
    CudaDevice,
    OutputStatistics,
    Race,
    Session,
    executable,
    stray_write,
    verifier_cubin,
)
from ptxbench.devices.simulator import SimulatorDevice

__all__ = [
    "Arena",
    "Check",
    "CudaDevice",
    "OutputStatistics",
    "Race",
    "Session",
    "SimulatorDevice",
    "executable",
    "stray_write",
    "verifier_cubin",
]
