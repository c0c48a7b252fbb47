"""The CUDA device: plans replayed in processes of their own, executed counts from CUPTI, timing in turns."""

from ptxbench.devices.cuda.arena import Arena, FullRun, Library, Race, Session
from ptxbench.devices.cuda.bundle import Case, executable, read_bundle, write_bundle
from ptxbench.devices.cuda.device import CudaDevice
from ptxbench.devices.cuda.process import ExecutorProcess, Reply, stray_write
from ptxbench.devices.cuda.turns import Turns, paired_ratio, take_turns
from ptxbench.devices.cuda.verifier import Check, OutputStatistics, verifier_cubin

__all__ = [
    "Arena",
    "Case",
    "Check",
    "CudaDevice",
    "ExecutorProcess",
    "FullRun",
    "Library",
    "OutputStatistics",
    "Race",
    "Reply",
    "Session",
    "Turns",
    "executable",
    "paired_ratio",
    "read_bundle",
    "stray_write",
    "take_turns",
    "verifier_cubin",
    "write_bundle",
]
