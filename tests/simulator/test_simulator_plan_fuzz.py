"""Plans that nobody recorded: whatever stands in them, they are replayed or refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from simulator_launch import Launch, artifact_of, node_of, plan_of, tiled, views_of
from simulator_text import kernel

from ptxbench.core import (
    Address,
    Block,
    Buffer,
    CopyNode,
    DeviceError,
    LaunchPlan,
    MemsetNode,
    PointerPatch,
    RunOptions,
    UnsupportedError,
    plan_problem,
)
from ptxbench.simulator import execute, load

BUFFERS = {"in_a": np.zeros((32, 64), np.uint16), "out": np.zeros(256, np.uint32)}
PROGRAM = load(
    kernel("st.global.u32 [%rd2], 1;\nret;", pointers=2, module=".global .align 8 .u64 table[4];"), ["k"]
)
MAP_KERNEL = load(
    """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out)
{
.reg .b64 %rd<4>;
ld.param.u64 %rd1, [out];
mov.b64 %rd2, map;
prefetch.param.tensormap [%rd2];
st.global.u64 [%rd1], %rd2;
ret;
}
""",
    ["k"],
)


def whole_plan() -> LaunchPlan:
    fill = MemsetNode(to=Address(buffer="out", offset=16), value=3, width=4, count=8)
    payload = Block(data=bytes(16), patches=(PointerPatch(at=8, to=Address(buffer="in_a", offset=4)),))
    nodes = (
        fill,
        CopyNode(to=Address(buffer="out"), source=payload, bytes=16, after=(0,)),
        CopyNode(to=Address(buffer="out"), source=Address(buffer="in_a", offset=32), bytes=64, after=(0, 1)),
        node_of(Launch("k", [tiled("in_a", (64, 32), (64, 8), swizzle="128b"), "out"], shared=1024)),
    )
    return plan_of(nodes, BUFFERS)


def replay(plan: LaunchPlan) -> str:
    """How it ended: a fault's kind, ``finished``, or the sentence of the refusal."""
    views = views_of({name: array.copy() for name, array in BUFFERS.items()})
    for buffer in plan.buffers:  # an executor has bytes for what the plan says
        if 0 <= buffer.bytes < 1 << 20:
            views[buffer.name] = memoryview(bytearray(buffer.bytes))
    try:
        seen = execute(MAP_KERNEL, artifact_of(MAP_KERNEL, 32), plan, views, RunOptions(step_limit=10_000))
    except (DeviceError, UnsupportedError) as error:
        return str(error)
    return "finished" if seen.fault is None else seen.fault.kind.value


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths(inner, (*path, index))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


DUMPED = whole_plan().model_dump(mode="json")
PATHS = [path for path in paths(DUMPED) if path]
SMALL = (-1, 0, 1, 2, 3, 7, 8, 9, 15, 16, 64, 127, 128, 129, 255, 256, 257, 65535, 65536)
LARGE = tuple(sign * (1 << bits) + more for bits in (31, 32, 40, 63, 64, 70) for sign in (1, -1) for more in (0, 1))
NUMBERS = st.one_of(st.sampled_from(SMALL), st.sampled_from(LARGE), st.integers(-1 << 66, 1 << 66))
VALUES = st.one_of(
    NUMBERS, st.lists(NUMBERS, max_size=6),
    st.sampled_from([None, True, "", "out", "in_a", "nothing", "k", "none", "32b", "128b", "im2col", "tiled", [], {}]),
)  # fmt: skip


def test_the_plan_before_any_change_is_replayed() -> None:
    assert plan_problem(whole_plan()) == ""
    assert replay(whole_plan()) == "finished"


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), VALUES), min_size=1, max_size=3))
def test_any_change_ends_in_a_replay_or_in_one_sentence(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    dumped = DUMPED
    for path, value in changes:
        if path in set(paths(dumped)):  # an earlier change may have removed it
            dumped = changed(dumped, path, value)
    try:
        plan = LaunchPlan.model_validate(dumped)
    except ValidationError:
        return
    if any(buffer.role == "allocation" and buffer.bytes > 1 << 24 for buffer in plan.buffers):
        return  # possible, and slow
    ending = replay(plan)
    assert ending
    assert "\n" not in ending


@pytest.mark.parametrize(("path", "value", "said"), [
    (("buffers", 1, "bytes"), -1, "buffer out has -1 bytes"),
    (("buffers", 1, "bytes"), 1 << 40, "its buffers have 1099511631872 bytes"),
    (("buffers", 1, "name"), "in_a", "buffer in_a is there twice"),
    (("nodes", 0, "count"), -1, "node 0: it reaches -4 bytes at 16 of out, which has 1024: outside the buffer"),
    (("nodes", 0, "to", "offset"), 1020, "node 0: it reaches 32 bytes at 1020 of out"),
    (("nodes", 1, "after"), [1], "node 1: it comes after node 1, which is no earlier one"),
    (("nodes", 1, "bytes"), 17, "node 1: it copies 17 bytes of a payload that has 16"),
    (("nodes", 1, "source", "patches", 0, "at"), 9, "node 1: 8 bytes at 9 are outside its block of 16 bytes"),
    (("nodes", 2, "source", "buffer"), "b", "node 2: it names b, which is neither a buffer of the plan nor a variable"),
    (("nodes", 2, "source", "offset"), 4040, "node 2: it reaches 64 bytes at 4040 of in_a"),
    (("nodes", 3, "grid"), [-1, 1, 1], "node 3: its grid is (-1, 1, 1)"),
    (("nodes", 3, "cluster"), [1 << 32, 1, 1], "node 3: its cluster is (4294967296, 1, 1)"),
    (("nodes", 3, "dynamic_shared"), -1, "node 3: its dynamic shared memory has -1 bytes"),
    (("nodes", 3, "parameters", "patches", 0, "map", "dims"), [64, 32, 2], "its arrays do not fit its rank"),
    (("nodes", 3, "parameters", "patches", 0, "map", "dtype"), "int4", "int4 is no data type"),
    (("nodes", 3, "parameters", "patches", 0, "map", "strides"), [-64], "its tensor map on in_a has a stride of -64"),
    (("nodes", 3, "parameters", "patches", 0, "map", "box"), [0, 8], "its tensor map on in_a has a box extent of 0"),
    (("nodes", 3, "parameters", "patches", 1, "to", "offset"), 1 << 62, "a pointer lies 4611686018427387904 bytes"),
])  # fmt: skip
def test_what_no_executor_could_do_is_named(path: tuple[Any, ...], value: Any, said: str) -> None:
    plan = LaunchPlan.model_validate(changed(DUMPED, path, value))
    assert said in plan_problem(plan)
    assert replay(plan) == f"the plan cannot be replayed: {plan_problem(plan)}"


@pytest.mark.parametrize(("path", "value", "said"), [
    (("grid",), [0, 1, 1], "grid (0, 1, 1) is not possible"),
    (("cluster",), [0, 1, 1], "cluster (0, 1, 1) is not one of 1 to 8 CTAs"),
    (("cluster",), [2, 1, 1], "grid (1, 1, 1) is not a multiple of cluster (2, 1, 1)"),
    (("dynamic_shared",), 300 << 10, "307200 bytes of shared memory exceed the limit of 232448"),
])  # fmt: skip
def test_what_the_target_cannot_launch_is_a_fault_of_the_kernel(path: tuple[Any, ...], value: Any, said: str) -> None:
    plan = LaunchPlan.model_validate(changed(DUMPED, ("nodes", 3, *path), value))
    assert plan_problem(plan) == ""
    views = views_of({name: array.copy() for name, array in BUFFERS.items()})
    seen = execute(MAP_KERNEL, artifact_of(MAP_KERNEL, 32), plan, views, RunOptions())
    assert seen.fault is not None
    assert said in seen.fault.message


def test_variables_of_the_program_are_no_unknown_buffers() -> None:
    fill = MemsetNode(to=Address(buffer="table"), value=0, width=1, count=32)
    plan = plan_of((fill, node_of(Launch("k", ["in_a", "out"]))), BUFFERS)
    assert "it names table" in plan_problem(plan)
    assert plan_problem(plan, ["table"]) == ""
    listed = plan.model_copy(update={"buffers": (*plan.buffers, Buffer(name="table", role="symbol", bytes=32))})
    for one in (plan, listed):
        views = views_of({name: array.copy() for name, array in BUFFERS.items()})
        assert execute(PROGRAM, artifact_of(PROGRAM, 32), one, views, RunOptions()).fault is None
