"""Targets as rows of data: what a launcher may ask a device about, and what bounds its speed."""

from __future__ import annotations

from enum import StrEnum

from ptxbench.core.record import Record


class Target(StrEnum):
    """An architecture-specific compilation target, named as `ptxas` names it."""

    SM_90A = "sm_90a"
    SM_100A = "sm_100a"

    @property
    def sheet(self) -> DataSheet:
        """The data sheet of the device that this target stands for."""
        return DATA_SHEETS[self]


class DataSheet(Record):
    """Public figures of one device. Sizes in bytes, clocks in MHz, bandwidth in bytes per second.

    ``dense_bf16_flops_per_clock`` is per SM, multiply and add counted separately.
    ``matrix_family`` names the row of the family table that should carry a task's work.
    """

    device_name: str
    compute_capability: tuple[int, int]
    matrix_family: str
    sm_count: int
    max_clock_mhz: int
    dense_bf16_flops_per_clock: int
    memory_bytes_per_second: float
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_sm: int
    shared_bytes_per_block_optin: int
    registers_per_sm: int
    max_threads_per_sm: int
    max_threads_per_block: int
    max_cluster_size: int
    tensor_memory_columns: int


# Sources: CUDA C++ Programming Guide (compute capabilities), vendor data sheets of H200 SXM and B200.
DATA_SHEETS: dict[Target, DataSheet] = {
    Target.SM_90A: DataSheet(
        device_name="NVIDIA H200",
        compute_capability=(9, 0),
        matrix_family="wgmma",
        sm_count=132,
        max_clock_mhz=1980,
        dense_bf16_flops_per_clock=4096,
        memory_bytes_per_second=4.8e12,
        memory_bytes=143771 * 2**20,
        l2_bytes=60 * 2**20,
        shared_bytes_per_sm=228 * 1024,
        shared_bytes_per_block_optin=227 * 1024,
        registers_per_sm=65536,
        max_threads_per_sm=2048,
        max_threads_per_block=1024,
        max_cluster_size=8,
        tensor_memory_columns=0,
    ),
    Target.SM_100A: DataSheet(
        device_name="NVIDIA B200",
        compute_capability=(10, 0),
        matrix_family="tcgen05",
        sm_count=148,
        max_clock_mhz=1965,
        dense_bf16_flops_per_clock=8192,
        memory_bytes_per_second=8.0e12,
        memory_bytes=180 * 2**30,
        l2_bytes=126 * 2**20,
        shared_bytes_per_sm=228 * 1024,
        shared_bytes_per_block_optin=227 * 1024,
        registers_per_sm=65536,
        max_threads_per_sm=2048,
        max_threads_per_block=1024,
        max_cluster_size=8,
        tensor_memory_columns=512,
    ),
}
