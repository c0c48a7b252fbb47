"""Whether the target could run a launch at all.

Limits are those of the target's data sheet and of the CUDA C++ Programming Guide (compute capabilities 9.0 and 10.0).
"""

from __future__ import annotations

import math

from ptxbench.core import DataSheet, Dim3, KernelFacts
from ptxbench.record.labels import kernel_label
from ptxbench.record.recording import RawKernel
from ptxbench.record.refusal import launch_error

_DEFAULT_SHARED = 48 * 1024
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_NON_PORTABLE_CLUSTER = 16
_WARP = 32
# Registers are given out per warp in units of 256, that is 8 per thread.
_REGISTER_UNIT = 8


def effective_cluster(raw: RawKernel, facts: KernelFacts) -> Dim3:
    """The cluster shape of a launch: asked for, else compiled in, else one CTA."""
    return raw.cluster if any(raw.cluster) else facts.required_cluster or (1, 1, 1)


def check_launch(raw: RawKernel, facts: KernelFacts, sheet: DataSheet) -> None:
    """Raises `Refusal` with the limit and both numbers if the launch is impossible on the target."""
    name = f"The launch of {kernel_label(raw.kernel)}"
    _check_grid(raw, name)
    _check_block(raw, facts, sheet, name)
    _check_shared(raw, facts, sheet, name)
    _check_cluster(raw, facts, sheet, name)


def _check_grid(raw: RawKernel, name: str) -> None:
    if not all(1 <= extent <= limit for extent, limit in zip(raw.grid, _MAX_GRID, strict=True)):
        raise launch_error(
            f"{name} has grid {raw.grid}; every extent must be at least 1, and {_MAX_GRID} is the limit.",
            "Write a grid within the limits.",
        )


def _check_block(raw: RawKernel, facts: KernelFacts, sheet: DataSheet, name: str) -> None:
    threads = math.prod(raw.block)
    fits = all(1 <= extent <= limit for extent, limit in zip(raw.block, _MAX_BLOCK, strict=True))
    if not fits or threads > sheet.max_threads_per_block:
        raise launch_error(
            f"{name} has block {raw.block}; every extent must be at least 1, and {sheet.max_threads_per_block} threads "
            f"in {_MAX_BLOCK} are the limit.",
            "Write a block within the limits.",
        )
    if facts.max_threads is not None and threads > facts.max_threads:
        raise launch_error(
            f"{name} has {threads} threads per block, and the kernel was compiled for at most {facts.max_threads}.",
            "Write __launch_bounds__ with the number of threads that is launched.",
        )
    per_thread = math.ceil(facts.registers / _REGISTER_UNIT) * _REGISTER_UNIT
    needed = per_thread * math.ceil(threads / _WARP) * _WARP
    if needed > sheet.registers_per_sm:
        raise launch_error(
            f"{name} needs {needed} registers per block ({facts.registers} per thread), and the multiprocessor has "
            f"{sheet.registers_per_sm}.",
            "Write __launch_bounds__ with the number of threads that is launched.",
        )


def _check_shared(raw: RawKernel, facts: KernelFacts, sheet: DataSheet, name: str) -> None:
    total = facts.static_shared + raw.dynamic_shared
    if total > sheet.shared_bytes_per_block_optin:
        raise launch_error(
            f"{name} asks for {total} bytes ({total / 1024:.0f} KiB) of shared memory per block, and the device allows "
            f"{sheet.shared_bytes_per_block_optin}.",
            "Write fewer stages or smaller tiles.",
        )
    if facts.static_shared > _DEFAULT_SHARED:
        raise launch_error(
            f"{name} declares {facts.static_shared} bytes of static shared memory, and {_DEFAULT_SHARED} are allowed.",
            "Write extern __shared__ for large tiles, and give their bytes in the launch.",
        )
    allowed = raw.max_dynamic_shared if raw.max_dynamic_shared >= 0 else _DEFAULT_SHARED - facts.static_shared
    if raw.dynamic_shared > allowed:
        raise launch_error(
            f"{name} asks for {raw.dynamic_shared} bytes of dynamic shared memory, and {allowed} are allowed.",
            "Write cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) before the launch.",
        )


def _check_cluster(raw: RawKernel, facts: KernelFacts, sheet: DataSheet, name: str) -> None:
    cluster = effective_cluster(raw, facts)
    if facts.required_cluster is not None and cluster != facts.required_cluster:
        raise launch_error(
            f"{name} asks for cluster {cluster}, and the kernel was compiled for {facts.required_cluster}.",
            "Write the launch attribute as __cluster_dims__ says, or leave one of the two out.",
        )
    size = math.prod(cluster)
    if size == 0 or size > _NON_PORTABLE_CLUSTER:
        raise launch_error(
            f"{name} asks for cluster {cluster}, and clusters have 1 to {_NON_PORTABLE_CLUSTER} CTAs.",
            "Write a smaller cluster.",
        )
    if size > sheet.max_cluster_size and not raw.non_portable_cluster:
        raise launch_error(
            f"{name} asks for a cluster of {size} CTAs, and more than {sheet.max_cluster_size} must be allowed first.",
            "Write cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) before the launch.",
        )
    if any(extent % part for extent, part in zip(raw.grid, cluster, strict=True)):
        raise launch_error(
            f"{name} has grid {raw.grid}, which is no multiple of its cluster {cluster}.",
            "Write a grid whose every extent is a multiple of the cluster's.",
        )
