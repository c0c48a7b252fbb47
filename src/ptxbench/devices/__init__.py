"""Devices replay launch plans: the simulator here and now, CUDA GPUs through separate programs."""

from ptxbench.devices.simulator import SimulatorDevice

__all__ = ["SimulatorDevice"]
