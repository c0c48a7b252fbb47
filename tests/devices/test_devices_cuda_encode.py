"""Parameter patching, tensor-map arguments and stream assignment: the pure half of the replay."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from ptxbench.core import (
    Address,
    Block,
    FaultKind,
    KernelNode,
    MemsetNode,
    Node,
    PointerPatch,
    TensorMap,
    TensorMapPatch,
)
from ptxbench.devices.cuda.driver import CudaError
from ptxbench.devices.cuda.encode import EncodeArguments, patch_block, resolve
from ptxbench.devices.cuda.lanes import Step, assign_lanes

ADDRESSES = {"A": 0x7F00_0000_0000, "C": 0x7F00_4000_0000}


def tiled_map(**changes: Any) -> TensorMap:
    fields: dict[str, Any] = {
        "dtype": "bfloat16", "base": Address(buffer="A", offset=256), "dims": (1024, 256), "strides": (2048,),
        "box": (64, 128), "element_strides": (1, 1), "interleave": "none", "swizzle": "128b",
        "l2_promotion": "l2_256b", "oob_fill": "nan_request_zero_fma",
    }
    return TensorMap(**(fields | changes))


def refuse(spec: TensorMap, address: int) -> bytes:
    raise AssertionError("no tensor map in this block")


def test_resolve_adds_the_offset() -> None:
    assert resolve(Address(buffer="C", offset=4096), ADDRESSES) == 0x7F00_4000_1000


def test_pointers_are_written_little_endian_where_the_patch_says() -> None:
    block = Block(
        data=struct.pack("<QiiQ", 0, 7, 8, 0),
        patches=(
            PointerPatch(at=0, to=Address(buffer="A")),
            PointerPatch(at=16, to=Address(buffer="C", offset=64)),
        ),
    )
    assert struct.unpack("<QiiQ", patch_block(block, ADDRESSES, refuse)) == (ADDRESSES["A"], 7, 8, ADDRESSES["C"] + 64)


def test_a_tensor_map_fills_128_bytes_and_is_encoded_for_its_base() -> None:
    seen: list[tuple[TensorMap, int]] = []

    def encode(spec: TensorMap, address: int) -> bytes:
        seen.append((spec, address))
        return bytes(range(128))

    block = Block(data=bytes(200), patches=(TensorMapPatch(at=64, map=tiled_map()),))
    assert patch_block(block, ADDRESSES, encode) == bytes(64) + bytes(range(128)) + bytes(8)
    assert seen == [(tiled_map(), ADDRESSES["A"] + 256)]


@pytest.mark.parametrize("at", [-1, 1, 9])
def test_a_patch_outside_its_block_is_refused(at: int) -> None:
    block = Block(data=bytes(8), patches=(PointerPatch(at=at, to=Address(buffer="A")),))
    with pytest.raises(ValueError, match="leaves its block"):
        patch_block(block, ADDRESSES, refuse)


def test_enumerators_are_the_drivers_own_names() -> None:
    assert EncodeArguments(tiled_map(), 0).enumerators == (
        ("CUtensorMapDataType", "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16"),
        ("CUtensorMapInterleave", "CU_TENSOR_MAP_INTERLEAVE_NONE"),
        ("CUtensorMapSwizzle", "CU_TENSOR_MAP_SWIZZLE_128B"),
        ("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION_L2_256B"),
        ("CUtensorMapFloatOOBfill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"),
    )


@pytest.mark.parametrize(("field", "names"), [
    ("dtype", ["uint8", "uint16", "float16", "float32", "bfloat16", "float32_ftz", "tfloat32", "16u4_align8b"]),
    ("interleave", ["none", "16b", "32b"]),
    ("swizzle", ["none", "32b", "64b", "128b"]),
    ("l2_promotion", ["none", "l2_64b", "l2_128b", "l2_256b"]),
    ("oob_fill", ["none", "nan_request_zero_fma"]),
])
def test_every_enumerator_exists_in_the_bindings(field: str, names: list[str]) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    for name in names:
        for enumeration, enumerator in EncodeArguments(tiled_map(**{field: name}), 0).enumerators:
            assert hasattr(getattr(bindings, enumeration), enumerator)


def test_tiled_arguments_are_in_the_order_of_the_c_function() -> None:
    arguments = EncodeArguments(tiled_map(), 0xABC00)
    values = arguments.c_values([9, 0, 3, 2, 1])
    assert arguments.function == "cuTensorMapEncodeTiled"
    dtype, rank, base, dims, strides, box, steps, interleave, swizzle, promotion, fill = values
    assert (dtype.value, rank.value, base.value) == (9, 2, 0xABC00)
    assert (list(dims)[:2], list(strides)[:1]) == ([1024, 256], [2048])
    assert (list(box)[:2], list(steps)[:2]) == ([64, 128], [1, 1])
    assert (interleave.value, swizzle.value, promotion.value, fill.value) == (0, 3, 2, 1)
    assert isinstance(dims, ctypes.Array) and ctypes.sizeof(dims) == 8 * 3
    assert ctypes.sizeof(box) == 4 * 3


def test_im2col_arguments_put_corners_and_counts_where_the_box_was() -> None:
    spec = tiled_map(
        mode="im2col", dims=(64, 32, 32, 8), strides=(128, 4096, 131072), box=(64, 16), element_strides=(1, 1, 1, 1),
        lower_corner=(-1, -1), upper_corner=(1, 1),
    )
    arguments = EncodeArguments(spec, 0)
    values = arguments.c_values([9, 0, 3, 2, 0])
    assert arguments.function == "cuTensorMapEncodeIm2col"
    assert list(values[5])[:2] == [-1, -1]
    assert list(values[6])[:2] == [1, 1]
    assert (values[7].value, values[8].value) == (64, 16)
    assert len(values) == 14


@pytest.mark.parametrize("mode", ["w", "w128"])
def test_arguments_of_maps_along_w(mode: str) -> None:
    spec = tiled_map(
        mode=f"im2col_{mode}", dims=(64, 32, 32, 8), strides=(128, 4096, 131072), box=(64, 16),
        element_strides=(1, 1, 1, 1), lower_corner=(-2,), upper_corner=(3,),
    )
    arguments = EncodeArguments(spec, 0)
    assert arguments.function == "cuTensorMapEncodeIm2colWide"
    assert arguments.enumerators[2] == (
        "CUtensorMapIm2ColWideMode", f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{mode.upper()}"
    )
    assert [kind for kind, _ in arguments.enumerators][1:4:2] == ["CUtensorMapInterleave", "CUtensorMapSwizzle"]
    values = arguments.c_values([9, 0, 1, 3, 2, 0])
    assert [value.value for value in (*values[5:9], *values[10:])] == [-2, 3, 64, 16, 0, 1, 3, 2, 0]
    assert len(values) == 15


def kernel(*after: int) -> KernelNode:
    return KernelNode(
        kernel="k", grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), dynamic_shared=0,
        parameters=Block(data=b""), after=after,
    )


def test_a_chain_stays_on_one_lane() -> None:
    memset = MemsetNode(to=Address(buffer="C"), value=0, width=4, count=1)
    nodes: list[Node] = [memset, kernel(0), kernel(1)]
    assert assign_lanes(nodes) == (Step(0, 0, ()), Step(1, 0, ()), Step(2, 0, ()))


def test_a_diamond_forks_and_joins() -> None:
    nodes: list[Node] = [kernel(), kernel(0), kernel(0), kernel(1, 2)]
    assert assign_lanes(nodes) == (Step(0, 0, ()), Step(1, 0, ()), Step(2, 1, (0,)), Step(3, 0, (2,)))


def test_independent_roots_get_lanes_of_their_own() -> None:
    nodes: list[Node] = [kernel(), kernel(), kernel(1)]
    assert [step.lane for step in assign_lanes(nodes)] == [0, 1, 1]


@pytest.mark.parametrize(("call", "code", "kind"), [
    ("cuCtxSynchronize", 700, FaultKind.ILLEGAL_ADDRESS),
    ("cuEventSynchronize", 715, FaultKind.ILLEGAL_INSTRUCTION),
    ("cuCtxSynchronize", 716, FaultKind.MISALIGNED_ADDRESS),
    ("cuCtxSynchronize", 719, FaultKind.TRAP),
    ("cuLaunchKernelEx", 1, FaultKind.IMPOSSIBLE_LAUNCH),
    ("cuFuncSetAttribute", 1, FaultKind.IMPOSSIBLE_LAUNCH),
    ("cuMemAlloc", 2, FaultKind.OUT_OF_MEMORY),
    ("cuMemcpyHtoD", 1, None),
    ("cuModuleLoadData", 209, None),
    ("cuInit", 100, None),
])
def test_a_driver_error_is_the_kernels_fault_only_where_it_must_be(
    call: str, code: int, kind: FaultKind | None
) -> None:
    assert CudaError(call, code, "CUDA_ERROR", "text").fault_kind is kind
