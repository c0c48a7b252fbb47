"""What a launch may ask of the target, and how many CTAs of it are resident at once."""

from __future__ import annotations

from math import prod
from typing import Final

from ptxbench.core import DataSheet, Fault, FaultKind, KernelFacts, KernelNode

_RESERVED_SHARED: Final = 1024  # bytes of shared memory that the system takes per CTA
_MAX_CTAS_PER_SM: Final = 32
_GRID_LIMITS: Final = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS: Final = (1024, 1024, 64)
_WARP: Final = 32
_REGISTER_UNIT: Final = 256  # registers are allocated to warps in this unit


def check_launch(node: KernelNode, facts: KernelFacts, sheet: DataSheet) -> Fault | None:
    """The fault of a launch that the target would refuse, or ``None``.

    Limits are those of the CUDA programming guide's table of compute capabilities.
    """
    threads = prod(node.block)
    shared = facts.static_shared + node.dynamic_shared
    cluster = prod(node.cluster)
    limit = min(facts.max_threads or sheet.max_threads_per_block, sheet.max_threads_per_block)
    problem = ""
    if any(not 1 <= extent <= most for extent, most in zip(node.grid, _GRID_LIMITS, strict=True)):
        problem = f"grid {node.grid} is not possible"
    elif any(not 1 <= extent <= most for extent, most in zip(node.block, _BLOCK_LIMITS, strict=True)):
        problem = f"block {node.block} is not possible"
    elif threads > limit:
        problem = f"{threads} threads per block exceed the kernel's limit of {limit}"
    elif shared > sheet.shared_bytes_per_block_optin:
        problem = f"{shared} bytes of shared memory exceed the limit of {sheet.shared_bytes_per_block_optin}"
    elif min(node.cluster) < 1 or cluster > sheet.max_cluster_size:
        problem = f"cluster {node.cluster} is not one of 1 to {sheet.max_cluster_size} CTAs"
    elif any(grid % size for grid, size in zip(node.grid, node.cluster, strict=True)):
        problem = f"grid {node.grid} is not a multiple of cluster {node.cluster}"
    elif facts.required_cluster not in (None, node.cluster):
        problem = f"cluster {node.cluster} differs from the kernel's own {facts.required_cluster}"
    elif resident_clusters(node, facts, sheet) == 0:
        problem = f"{facts.registers} registers for each of {threads} threads exceed the register file"
    elif node.cooperative and resident_clusters(node, facts, sheet) * cluster < prod(node.grid):
        problem = f"a cooperative grid of {prod(node.grid)} blocks cannot be resident at once"
    if not problem:
        return None
    return Fault(
        kind=FaultKind.IMPOSSIBLE_LAUNCH,
        message=f"Impossible launch of {node.kernel}: {problem}.",
        kernel=node.kernel,
        advice="Change the launch configuration.",
    )


def resident_clusters(node: KernelNode, facts: KernelFacts, sheet: DataSheet) -> int:
    """How many clusters of a launch the target holds at once."""
    threads = prod(node.block)
    warps = (threads + _WARP - 1) // _WARP
    shared = facts.static_shared + node.dynamic_shared + _RESERVED_SHARED
    per_warp = (max(facts.registers, 1) * _WARP + _REGISTER_UNIT - 1) // _REGISTER_UNIT * _REGISTER_UNIT
    per_sm = min(
        sheet.shared_bytes_per_sm // shared,
        sheet.max_threads_per_sm // (warps * _WARP),
        sheet.registers_per_sm // (per_warp * warps),
        _MAX_CTAS_PER_SM,
    )
    return per_sm * sheet.sm_count // prod(node.cluster)
