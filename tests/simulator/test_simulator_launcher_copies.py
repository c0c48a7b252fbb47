"""Copies and memsets of the launcher: constants may be set by them, inputs may not."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, artifact_of, node_of, plan_of, views_of

from ptxbench.core import Address, Block, Buffer, CopyNode, FaultKind, MemsetNode, Node, RunOptions
from ptxbench.simulator import execute, load

READ_CONSTANT = """
.version 8.8
.target sm_90a
.address_size 64
.const .align 4 .f32 scale = 0f3F800000;
.visible .entry read_constant(.param .u64 out)
{
    .reg .b64 %rd<2>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [out];
    ld.const.f32 %f1, [scale];
    st.global.f32 [%rd1], %f1;
    ret;
}
"""


def test_a_copy_into_a_constant_reaches_the_kernel_and_the_next_run_starts_afresh() -> None:
    program = load(READ_CONSTANT, ("read_constant",))
    kernel = node_of(Launch("read_constant", ["out"]))
    copy = CopyNode(to=Address(buffer="scale"), source=Block(data=np.float32(2.5).tobytes()), bytes=4)
    seen: list[float] = []
    for nodes in ([copy, kernel], [kernel]):
        out = np.zeros(1, np.float32)
        plan = plan_of(nodes, {"out": out})
        plan = plan.model_copy(update={"buffers": (*plan.buffers, Buffer(name="scale", role="symbol", bytes=4))})
        observation = execute(program, artifact_of(program, 32), plan, views_of({"out": out}), RunOptions())
        assert observation.fault is None
        seen.append(float(out[0]))
    assert seen == [2.5, 1.0]


@pytest.mark.parametrize("node", [
    CopyNode(to=Address(buffer="in_a"), source=Block(data=bytes(4)), bytes=4),
    MemsetNode(to=Address(buffer="in_a"), value=0, width=4, count=1),
])
def test_an_input_is_not_the_launchers_to_write(node: Node) -> None:
    program = load(READ_CONSTANT, ("read_constant",))
    buffers = {"in_a": np.ones(1, np.float32), "out": np.zeros(1, np.float32)}
    plan = plan_of([node], buffers)
    observation = execute(program, artifact_of(program, 32), plan, views_of(buffers), RunOptions())
    assert observation.fault is not None
    assert observation.fault.kind is FaultKind.STRAY_WRITE
    assert buffers["in_a"][0] == 1
