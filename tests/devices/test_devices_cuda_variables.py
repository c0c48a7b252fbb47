"""Which device variables a cubin has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ptxbench.build import find_toolchain
from ptxbench.core import DeviceError
from ptxbench.devices.cuda.variables import variable_names

SOURCE = r"""
__device__ int shared_by_all = 3;
static __device__ float of_this_file[4];
namespace { __constant__ int constant; }
__device__ int count(int x) { static int total = 1; return total += x; }
extern "C" __global__ void k(int* out) {
    __shared__ int staged[4];
    staged[threadIdx.x] = "text"[threadIdx.x];
    __syncthreads();
    out[0] = ++shared_by_all + int(of_this_file[threadIdx.x] += 1) + constant + count(2) + staged[0];
}
"""


def compiled(source: str, folder: Path) -> bytes:
    (folder / "variables.cu").write_text(source)
    command = [str(find_toolchain().cuda / "bin" / "nvcc"), "-cubin", "-gencode", "arch=compute_90a,code=sm_90a"]
    cubin = folder / "variables.cubin"
    subprocess.run([*command, "-o", str(cubin), str(folder / "variables.cu")], check=True)
    return cubin.read_bytes()


def test_global_static_local_and_constant_variables_are_found_and_nothing_else(tmp_path: Path) -> None:
    names = variable_names(compiled(SOURCE, tmp_path))
    parts = ("shared_by_all", "of_this_file", "constant", "total")
    assert len(names) == len(parts)
    assert all(any(part in name for name in names) for part in parts), names


def test_a_kernel_without_variables_has_none(tmp_path: Path) -> None:
    assert variable_names(compiled("__global__ void k(int* out) { out[0] = 1; }", tmp_path)) == ()


def test_what_is_no_cubin_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match="no cubin"):
        variable_names(b"not an ELF file")
