"""Checks of one recorded call and of the finished nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ptxbench.core import Address, Artifact, Block, Buffer, MemsetNode, Node, Outcome
from ptxbench.record.labels import kernel_label
from ptxbench.record.launches import check_launch
from ptxbench.record.linkage import device_variables
from ptxbench.record.parameters import block_size
from ptxbench.record.process import Call
from ptxbench.record.recording import RawKernel
from ptxbench.record.refusal import Refusal, contract_error, launch_error
from ptxbench.record.tensor_maps import check_map

_SCRATCH_BASE = 256 << 20
_SCRATCH_PER_TENSOR_BYTE = 32


def check_call(artifact: Artifact, call: Call) -> None:
    """Raises `Refusal` unless the call is something that the target could do."""
    returned = call.returned
    sheet = artifact.target.sheet
    held = returned.workspace + sum(raw.bytes for raw in returned.allocations)
    if held > sheet.memory_bytes:
        raise launch_error(
            f"Workspace and allocations are {held} bytes, and the device has {sheet.memory_bytes}.",
            "Write a smaller workspace; workspace_bytes returns bytes.",
        )
    kernels = {facts.name: facts for facts in artifact.kernels}
    for index, node in enumerate(returned.nodes):
        if any(earlier >= index for earlier in node.after):
            raise contract_error("The recorded order of the work is no order.", "Write launch as plain straight code.")
        if isinstance(node, RawKernel):
            facts = kernels.get(node.kernel)
            if facts is None or len(node.parameters) != 2 * block_size(facts):
                raise contract_error(
                    f"The launch of {kernel_label(node.kernel)} does not fit a kernel of the source.",
                    "Write the launch with <<<>>>.",
                )
            check_launch(node, facts, sheet)
    for number, raw in enumerate(returned.maps):
        check_map(raw, call.addresses.find(raw.base), number)
    _check_joined(call)


def check_work(nodes: Sequence[Node], buffers: Mapping[str, Buffer]) -> None:
    """Raises `Refusal` unless there is a kernel, and every copy and fill stays in its buffer and off the inputs."""
    if not any(node.op == "kernel" for node in nodes):
        raise contract_error(
            "launch launches no kernel, and a plan without a kernel does nothing.",
            "Write at least one kernel launch in launch.",
        )
    for node in nodes:
        if node.op == "kernel":
            continue
        size = node.width * node.count if isinstance(node, MemsetNode) else node.bytes
        what = "fill" if isinstance(node, MemsetNode) else "copy"
        _check_range(node.to, size, buffers, f"A {what}")
        if buffers[node.to.buffer].role == "input":
            raise Refusal(
                Outcome.INTEGRITY_VIOLATION, f"A {what} writes the input {node.to.buffer}.",
                "Write to the outputs and the workspace only.",
            )
        if node.op == "copy" and isinstance(node.source, Address):
            _check_range(node.source, size, buffers, "A copy")
        if node.op == "copy" and isinstance(node.source, Block) and len(node.source.data) != size:
            raise contract_error("A copy is longer than its data.", "Write the copy with the size of its source.")


def check_variables(buffers: Iterable[Buffer], cubin: bytes) -> None:
    """Raises `Refusal` for a variable that the device code does not have in that size."""
    symbols = [buffer for buffer in buffers if buffer.role == "symbol"]
    sizes = device_variables(cubin) if symbols else {}
    for buffer in symbols:
        if sizes.get(buffer.name) != buffer.bytes:
            raise launch_error(
                f"The device code has no variable {buffer.name} of {buffer.bytes} bytes.",
                "Write a kernel that uses the variable, or leave the copy out.",
            )


def check_scratch(buffers: Iterable[Buffer], cubin: bytes) -> None:
    """Raises `Refusal` where workspace, allocations and device variables are out of all proportion to the tensors.

    A device without that memory could not replay the plan, and the launcher would be to blame.
    """
    tensors, scratch = 0, sum(device_variables(cubin).values())
    for buffer in buffers:
        tensors += buffer.bytes if buffer.role in ("input", "output") else 0
        scratch += buffer.bytes if buffer.role in ("workspace", "allocation") else 0
    allowed = _SCRATCH_BASE + _SCRATCH_PER_TENSOR_BYTE * tensors
    if scratch > allowed:
        raise contract_error(
            f"Workspace, allocations and device variables are {scratch} bytes, and {allowed} are allowed at these "
            f"sizes ({_SCRATCH_BASE >> 20} MiB and {_SCRATCH_PER_TENSOR_BYTE} times the tensors).",
            "Write a smaller workspace, in proportion to the sizes; workspace_bytes returns bytes.",
        )


def reduced_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The same nodes, each after only those that no other of its predecessors follows anyway."""
    result: list[Node] = []
    before: list[int] = []  # by node: a bit for everything that comes before it
    for node in nodes:
        implied = 0
        for index in node.after:
            implied |= before[index]
        direct = tuple(index for index in sorted(set(node.after)) if not implied >> index & 1)
        before.append(implied | sum(1 << index for index in direct))
        result.append(node.model_copy(update={"after": direct}))
    return tuple(result)


def _check_range(address: Address, size: int, buffers: Mapping[str, Buffer], what: str) -> None:
    total = buffers[address.buffer].bytes
    if address.offset < 0 or address.offset + size > total:
        raise launch_error(
            f"{what} touches bytes {address.offset} to {address.offset + size} of {address.buffer}, which has {total}.",
            "Write the range from the sizes; the size of a copy or cudaMemset is in bytes.",
        )


def _check_joined(call: Call) -> None:
    """Everything must be ordered before the end of the call on the launcher's stream."""
    nodes = call.returned.nodes
    reached: set[int] = set()
    pending = [index for index in call.returned.joined if index < len(nodes)]
    while pending:
        index = pending.pop()
        if index not in reached:
            reached.add(index)
            pending.extend(nodes[index].after)
    loose = sorted(set(range(len(nodes))) - reached)
    if loose:
        node = nodes[loose[0]]
        what = f"The launch of {kernel_label(node.kernel)}" if isinstance(node, RawKernel) else "A copy or fill"
        raise contract_error(
            f"{what} runs on a stream that the launcher's stream never waits for.",
            "Write cudaEventRecord(event, side) and cudaStreamWaitEvent(stream, event) after it.",
        )
