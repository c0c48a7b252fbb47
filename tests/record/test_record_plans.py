"""Honest launchers become plans that say exactly what they do."""

from __future__ import annotations

from typing import Any

from record_toy import SIZES, TASK, Record

from ptxbench.build import Toolchain
from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    CopyNode,
    KernelNode,
    LaunchPlan,
    MemsetNode,
    PointerPatch,
    TensorMap,
    TensorMapPatch,
)
from ptxbench.native import Cache
from ptxbench.record import Recorder

M, N, K = SIZES["M"], SIZES["N"], SIZES["K"]
WORKSPACE = M * N * 4


def _plan(record: Record, launcher: str) -> LaunchPlan:
    plan = record("honest", launcher)
    assert isinstance(plan, LaunchPlan), plan
    return plan


def _kernels(plan: LaunchPlan) -> list[KernelNode]:
    return [node for node in plan.nodes if isinstance(node, KernelNode)]


def _pointers(block: Block) -> dict[int, Address]:
    return {patch.at: patch.to for patch in block.patches if isinstance(patch, PointerPatch)}


def _maps(block: Block) -> dict[int, TensorMap]:
    return {patch.at: patch.map for patch in block.patches if isinstance(patch, TensorMapPatch)}


def test_plain_launch(record: Record) -> None:
    plan = _plan(record, "launch")
    assert plan.buffers == (
        Buffer(name="A", role="input", bytes=M * K * 2),
        Buffer(name="B", role="input", bytes=N * K * 2),
        Buffer(name="C", role="output", bytes=M * N * 2),
        Buffer(name="workspace", role="workspace", bytes=WORKSPACE),
    )
    (node,) = _kernels(plan)
    assert "plain" in node.kernel
    assert (node.grid, node.block, node.cluster) == ((M // 128, N // 128, 1), (256, 1, 1), (1, 1, 1))
    assert not node.clustered
    assert (node.dynamic_shared, node.cooperative, node.programmatic, node.after) == (1024, False, False, ())
    assert _pointers(node.parameters) == {
        0: Address(buffer="A"), 8: Address(buffer="B"), 16: Address(buffer="C", offset=10),
    }
    assert node.parameters.data == bytes(24) + b"".join(n.to_bytes(4, "little") for n in (M, N, K))
    assert plan.sizes == SIZES
    assert plan.kernels() == (node.kernel,)


def test_padding_of_structs_is_zero(record: Record) -> None:
    (node,) = _kernels(_plan(record, "padded_struct"))
    assert _pointers(node.parameters) == {0: Address(buffer="A", offset=6), 24: Address(buffer="C")}
    expected = bytearray(40)
    expected[8:9] = b"x"
    expected[16:24] = b"\x00\x00\x00\x00\x00\x00\xe0\x3f"
    expected[32:36] = M.to_bytes(4, "little")
    assert node.parameters.data == bytes(expected)


def test_cluster_and_programmatic_launch_with_attributes_set_once(record: Record) -> None:
    (node,) = _kernels(_plan(record, "cluster_attribute"))
    assert (node.cluster, node.programmatic, node.dynamic_shared) == ((2, 1, 1), True, 200 * 1024)


def test_compiled_in_cluster(record: Record) -> None:
    (node,) = _kernels(_plan(record, "cluster_compiled"))
    assert (node.cluster, node.explicit_cluster) == ((2, 1, 1), True)


def test_a_cluster_of_one_that_was_asked_for_is_kept(record: Record) -> None:
    (node,) = _kernels(_plan(record, "cluster_of_one"))
    assert (node.cluster, node.explicit_cluster, node.clustered) == ((1, 1, 1), True, True)


def test_cooperative_launch_fills_the_device_of_the_data_sheet(record: Record) -> None:
    (node,) = _kernels(_plan(record, "cooperative"))
    assert node.cooperative
    # 256 threads: eight blocks of the 2048 threads that a multiprocessor holds, on the H200's 132.
    assert node.grid == (8 * 132, 1, 1)


def _expected_map(name: str, rows: int, columns: int) -> TensorMap:
    return TensorMap(
        dtype="bfloat16", base=Address(buffer=name), dims=(columns, rows), strides=(columns * 2,), box=(64, 128),
        element_strides=(1, 1), interleave="none", swizzle="128b", l2_promotion="l2_256b", oob_fill="none",
    )


def test_tensor_map_by_value(record: Record) -> None:
    (node,) = _kernels(_plan(record, "map_by_value"))
    assert _maps(node.parameters) == {0: _expected_map("A", M, K)}
    assert _pointers(node.parameters) == {128: Address(buffer="C")}
    assert node.parameters.data == bytes(136)


def test_tensor_maps_in_a_struct(record: Record) -> None:
    (node,) = _kernels(_plan(record, "maps_in_struct"))
    assert _maps(node.parameters) == {128: _expected_map("A", M, K), 256: _expected_map("C", M, N)}
    assert node.parameters.data[:128] == N.to_bytes(4, "little") + bytes(124)


def test_tensor_map_in_constant_memory(record: Record) -> None:
    plan = _plan(record, "map_in_constant")
    copy, kernel = plan.nodes
    assert isinstance(copy, CopyNode)
    assert isinstance(copy.source, Block)
    assert (copy.to, copy.bytes) == (Address(buffer="constant_map"), 128)
    assert _maps(copy.source) == {0: _expected_map("B", N, K)}
    assert kernel.after == (0,)
    assert Buffer(name="constant_map", role="symbol", bytes=128) in plan.buffers


def test_tensor_maps_copied_to_global_memory(record: Record) -> None:
    copy, kernel = _plan(record, "maps_in_workspace").nodes
    assert isinstance(copy, CopyNode)
    assert isinstance(copy.source, Block)
    assert copy.to == Address(buffer="workspace", offset=1024)
    assert _maps(copy.source) == {
        0: _expected_map("A", M, K), 128: _expected_map("B", N, K), 256: _expected_map("C", M, N),
    }
    assert isinstance(kernel, KernelNode)
    assert _pointers(kernel.parameters)[0] == copy.to


def test_fill_and_split_k(record: Record) -> None:
    fill, split, reduce = _plan(record, "split_k").nodes
    assert fill == MemsetNode(to=Address(buffer="workspace"), value=0, width=1, count=WORKSPACE)
    assert (split.after, reduce.after) == ((0,), (1,))


def test_streams_and_events_become_edges(record: Record) -> None:
    assert [node.after for node in _plan(record, "fork_join").nodes] == [(), (0,), (0,), (1, 2)]


def test_kept_allocation_is_a_buffer(record: Record) -> None:
    plan = _plan(record, "kept_allocation")
    assert plan.buffers[-1] == Buffer(name="allocation0", role="allocation", bytes=WORKSPACE)
    split, reduce = _kernels(plan)
    assert _pointers(split.parameters)[8] == Address(buffer="allocation0", offset=64)
    assert _pointers(reduce.parameters)[0] == Address(buffer="allocation0", offset=64)


def test_allocation_of_every_call_is_a_buffer(record: Record) -> None:
    plan = _plan(record, "fresh_allocation")
    assert plan.buffers[-1] == Buffer(name="allocation0", role="allocation", bytes=1024)


def test_symbols(record: Record) -> None:
    plan = _plan(record, "symbols")
    values, pointer, kernel = plan.nodes
    assert isinstance(values, CopyNode)
    assert isinstance(pointer, CopyNode)
    assert isinstance(pointer.source, Block)
    assert values.to == Address(buffer="table", offset=16)
    assert values.source == Block(data=b"\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40")
    assert _pointers(pointer.source) == {0: Address(buffer="table", offset=4)}
    assert isinstance(kernel, KernelNode)
    assert kernel.block == (32, 1, 1)
    assert kernel.after == (1,)


def test_default_stream_is_ordered_with_the_launchers_stream(record: Record) -> None:
    assert [node.after for node in _plan(record, "default_stream").nodes] == [(), (0,), (1,)]


def test_waiting_on_the_host_orders_streams(record: Record) -> None:
    assert [node.after for node in _plan(record, "host_waits").nodes] == [(), (0,)]


def test_waiting_after_every_launch_gives_a_chain(record: Record) -> None:
    assert [node.after for node in _plan(record, "waits_after_each").nodes] == [(), (0,), (1,), (2,), (3,), (4,)]


def test_driver_api_launch(record: Record) -> None:
    (node,) = _kernels(_plan(record, "driver_launch"))
    assert node.grid == (1, 2, 3)
    assert _pointers(node.parameters) == {0: Address(buffer="A"), 8: Address(buffer="B"), 16: Address(buffer="C")}


def test_pointers_outside_a_buffer_keep_their_buffer(record: Record) -> None:
    pointers = _pointers(_kernels(_plan(record, "end_pointer"))[0].parameters)
    assert pointers[0] == Address(buffer="A", offset=M * K * 2)
    assert pointers[8] == Address(buffer="B", offset=-16)


def test_plans_are_cached_and_repeat(
    record: Record, recorder: Recorder, toolchain: Toolchain, build: Any, tmp_path: Any
) -> None:
    artifact: Artifact = build("honest")
    plan = _plan(record, "split_k")
    assert recorder.record(artifact, TASK, SIZES, launcher="split_k") == plan
    fresh = Recorder(recorder.host, recorder.exports, recorder.version, toolchain.sandbox, Cache(tmp_path))
    assert fresh.record(artifact, TASK, SIZES, launcher="split_k") == plan
    other = fresh.record(artifact, TASK, {**SIZES, "K": 256}, launcher="split_k")
    assert isinstance(other, LaunchPlan)
    assert other.digest != plan.digest
    assert _kernels(other)[0].grid == (4, 1, 1)


def test_all_workloads_at_once(recorder: Recorder, build: Any) -> None:
    plans = recorder.record_all(build("honest"), TASK, TASK.workloads)
    assert [plan.sizes for plan in plans if isinstance(plan, LaunchPlan)] == [SIZES]
