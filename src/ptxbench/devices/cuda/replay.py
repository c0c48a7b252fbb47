"""Replays a launch plan on the device: the only code here that launches a candidate's kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from ptxbench.core import Artifact, Block, CopyNode, KernelNode, LaunchPlan, MemsetNode, Node, TensorMap
from ptxbench.devices.cuda.driver import Driver, Handle
from ptxbench.devices.cuda.encode import EncodeArguments, patch_block, resolve
from ptxbench.devices.cuda.lanes import Step, assign_lanes
from ptxbench.devices.cuda.memory import Import, PlanMemory
from ptxbench.devices.cuda.variables import Variables

_ALIGNMENT = 64


class Replay:
    """One plan with its module loaded, buffers placed and parameters filled in, to be launched any number of times.

    Raises `CudaError` for what the driver refuses.
    """

    def __init__(
        self, driver: Driver, artifact: Artifact, plan: LaunchPlan, imports: Mapping[str, Import] | None = None
    ) -> None:
        self._driver = driver
        self.plan = plan
        self._module = driver.load_module(artifact.cubin)
        self._functions = {name: driver.function(self._module, name) for name in plan.kernels()}
        self._permit()
        self._variables = Variables(driver, self._module, artifact.cubin)
        self.memory = PlanMemory(driver, plan, self._module, imports or {})
        self._payloads: list[int] = []
        # Host parameter blocks by node; they must stay alive while `_arguments` points into them.
        self._blocks: dict[int, Any] = {}
        self._arguments: dict[int, list[int]] = {}
        self._sources: dict[int, int] = {}
        for index, node in enumerate(plan.nodes):
            self._fill_in(index, node, artifact)
        self._steps = assign_lanes(plan.nodes)
        self._streams = [driver.stream() for _ in range(1 + max((step.lane for step in self._steps), default=0))]
        self._events = {index: driver.event() for step in self._steps for index in step.waits}
        self._fork = driver.event()
        self._joins = [driver.event() for _ in self._streams[1:]]

    @property
    def stream(self) -> Handle:
        """The stream on which a replay begins and ends."""
        return self._streams[0]

    def _permit(self) -> None:
        nodes = [node for node in self.plan.nodes if isinstance(node, KernelNode)]
        for name, function in self._functions.items():
            own = [node for node in nodes if node.kernel == name]
            shared = max(node.dynamic_shared for node in own)
            cluster = max(node.cluster[0] * node.cluster[1] * node.cluster[2] for node in own)
            self._driver.permit(function, shared, cluster)

    def _fill_in(self, index: int, node: Node, artifact: Artifact) -> None:
        if isinstance(node, KernelNode):
            self._blocks[index], start = _aligned(self._patched(node.parameters))
            self._arguments[index] = [start + slot.offset for slot in artifact.kernel(node.kernel).parameters]
        elif isinstance(node, CopyNode):
            if isinstance(node.source, Block):
                # Payloads wait on the device, so that a replay (or a graph of it) needs nothing of the host.
                self._sources[index] = self._driver.allocate(max(1, node.bytes))
                self._payloads.append(self._sources[index])
                self._driver.write(self._sources[index], self._patched(node.source)[: node.bytes])
            else:
                self._sources[index] = resolve(node.source, self.memory.addresses)

    def _patched(self, block: Block) -> bytearray:
        def encode(spec: TensorMap, address: int) -> bytes:
            return self._driver.encode_tensor_map(EncodeArguments(spec, address))

        return patch_block(block, self.memory.addresses, encode)

    def reset(self) -> None:
        """Everything as at the start of a call: undefined content poisoned, device variables at their first values."""
        self.restore_variables()
        self.memory.reset()

    def restore_variables(self) -> None:
        """Enqueues on `stream` putting the device variables' initial values back."""
        self._variables.restore(self.stream)

    def renew(self) -> None:
        """Enqueues on `stream` what makes the next replay a first call again: variables restored, scratch poisoned."""
        self.restore_variables()
        self.memory.poison_scratch(self.stream)

    def launch(self) -> None:
        """Enqueues every node once, respecting the plan's edges; later work on `stream` waits for all of it."""
        driver = self._driver
        origin, *others = self._streams
        driver.call("cuEventRecord", self._fork, origin)
        for stream in others:
            driver.wait(stream, self._fork)
        for step in self._steps:
            self._launch_step(step)
        for stream, event in zip(others, self._joins, strict=True):
            driver.call("cuEventRecord", event, stream)
            driver.wait(origin, event)

    def _launch_step(self, step: Step) -> None:
        stream = self._streams[step.lane]
        for earlier in step.waits:
            self._driver.wait(stream, self._events[earlier])
        self.launch_node(step.node, stream)
        if step.node in self._events:
            self._driver.call("cuEventRecord", self._events[step.node], stream)

    def launch_node(self, index: int, stream: Handle) -> None:
        """Enqueues one node, without regard to the plan's edges."""
        node = self.plan.nodes[index]
        addresses = self.memory.addresses
        if isinstance(node, KernelNode):
            self._driver.launch(self._functions[node.kernel], node, self._arguments[index], stream)
        elif isinstance(node, MemsetNode):
            function = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}[node.width]
            self._driver.call(function, resolve(node.to, addresses), node.value, node.count, stream)
        else:
            self._driver.call(
                "cuMemcpyDtoDAsync", resolve(node.to, addresses), self._sources[index], node.bytes, stream
            )

    def capture(self) -> Handle:
        """The whole replay as one executable graph, to be launched on `stream`."""
        self._driver.begin_capture(self.stream)
        self.launch()
        return self._driver.end_capture(self.stream)

    def run_before(self, index: int) -> None:
        """Runs the nodes that stand before ``index``, each to its end."""
        for earlier in range(index):
            self.launch_node(earlier, self.stream)
            self._driver.synchronise()

    def close(self) -> None:
        """Gives memory and module back."""
        self.memory.close()
        self._variables.close()
        for payload in self._payloads:
            self._driver.free(payload)
        self._driver.unload_module(self._module)


def _aligned(data: bytearray) -> tuple[Any, int]:
    """A host copy that starts at a 64-byte boundary, as a tensor map wants it: (what keeps it alive, its address)."""
    room = ctypes.create_string_buffer(len(data) + _ALIGNMENT)
    start = ctypes.addressof(room) + -ctypes.addressof(room) % _ALIGNMENT
    ctypes.memmove(start, bytes(data), len(data))
    return room, start
