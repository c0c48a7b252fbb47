"""The vocabulary: frozen, versioned records, the outcome and family tables, protocols and error types."""

from ptxbench.core.artifact import (
    Artifact,
    Candidate,
    KernelFacts,
    KernelSass,
    ParameterSlot,
    Remark,
    SassInstruction,
    SourceFrame,
)
from ptxbench.core.errors import (
    CacheError,
    DeviceError,
    InfrastructureError,
    PtxbenchError,
    SandboxError,
    ToolchainError,
    UnsupportedError,
    UsageError,
)
from ptxbench.core.families import FAMILIES, Family, families_of, matrix_family
from ptxbench.core.observation import Fault, FaultKind, Hazard, Mode, Observation, RunOptions, Schedule, SiteCount
from ptxbench.core.plan import (
    Address,
    Block,
    Buffer,
    CopyNode,
    Dim3,
    KernelNode,
    LaunchPlan,
    MemsetNode,
    Node,
    Patch,
    PointerPatch,
    TensorMap,
    TensorMapPatch,
)
from ptxbench.core.protocols import Capabilities, Device, Evaluator, Progress
from ptxbench.core.record import Record
from ptxbench.core.targets import DataSheet, Target
from ptxbench.core.task import BYTES_PER_ELEMENT, C_TYPES, Argument, Dtype, Task, Tier, Workload
from ptxbench.core.verdict import (
    FAULT_OUTCOMES,
    CorrectnessReport,
    FamilyReport,
    InstructionReport,
    Interval,
    Outcome,
    OutputReport,
    Rejection,
    TimingReport,
    Verdict,
    WorkloadReport,
)

__all__ = [
    "BYTES_PER_ELEMENT", "C_TYPES", "FAMILIES", "FAULT_OUTCOMES",
    "Address", "Argument", "Artifact", "Block", "Buffer", "CacheError", "Candidate", "Capabilities", "CopyNode",
    "CorrectnessReport", "DataSheet", "Device", "DeviceError", "Dim3", "Dtype", "Evaluator", "Family", "FamilyReport",
    "Fault", "FaultKind", "Hazard", "InfrastructureError", "InstructionReport", "Interval", "KernelFacts", "KernelNode",
    "KernelSass", "LaunchPlan", "MemsetNode", "Mode", "Node", "Observation", "Outcome", "OutputReport", "ParameterSlot",
    "Patch", "PointerPatch", "Progress", "PtxbenchError", "Record", "Rejection", "Remark", "RunOptions", "SandboxError",
    "SassInstruction", "Schedule", "SiteCount", "SourceFrame", "Target", "Task", "TensorMap", "TensorMapPatch", "Tier",
    "TimingReport", "ToolchainError", "UnsupportedError", "UsageError", "Verdict", "Workload", "WorkloadReport",
    "families_of", "matrix_family",
]
