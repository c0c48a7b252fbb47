"""The launch plan: what a launcher asked for, as pure data.

A plan names kernels of an artifact and buffers by role; it holds no address. Executors allocate buffers, write the
addresses in where relocations say so, encode the tensor maps, and replay the nodes in an order that respects `after`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ptxbench.core.record import Record

Dim3 = tuple[int, int, int]


class Buffer(Record):
    """A range of device memory. Arguments come from the task's row; ``workspace`` is the launcher's argument;
    ``allocation`` is what the launcher allocated itself; ``symbol`` is a ``__device__`` or ``__constant__`` variable.

    ``bytes`` is the size; addresses are 256-byte aligned (symbols: as the artifact places them).
    """

    name: str
    role: Literal["input", "output", "workspace", "allocation", "symbol"]
    bytes: int


class Address(Record):
    """A place in a buffer, in bytes from its start."""

    buffer: str
    offset: int = 0


class PointerPatch(Record):
    """Eight bytes at ``at`` (in a parameter block or payload) hold the device address of ``to``."""

    kind: Literal["pointer"] = "pointer"
    at: int
    to: Address


class TensorMap(Record):
    """A readable `CUtensorMap`: dimensions innermost first, strides in bytes (of dimensions 1..rank-1).

    ``dtype``, ``interleave``, ``swizzle``, ``l2_promotion`` and ``oob_fill`` are the suffixes of the driver API's
    enumerators in lower case (``bfloat16``, ``none``, ``128b``, ``l2_256b``, ``nan_request_zero_fma``). For im2col
    maps ``box`` holds (channels per pixel, pixels per column) and the corners are set, in the order of ``dims``; those
    of `cuTensorMapEncodeIm2colWide` (``im2col_w``, ``im2col_w128``) have one corner offset, along W.
    """

    mode: Literal["tiled", "im2col", "im2col_w", "im2col_w128"] = "tiled"
    dtype: str
    base: Address
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str
    swizzle: str
    l2_promotion: str
    oob_fill: str
    lower_corner: tuple[int, ...] = ()
    upper_corner: tuple[int, ...] = ()


class TensorMapPatch(Record):
    """128 bytes at ``at`` hold an encoded tensor map."""

    kind: Literal["tensor_map"] = "tensor_map"
    at: int
    map: TensorMap


Patch = Annotated[PointerPatch | TensorMapPatch, Field(discriminator="kind")]


class Block(Record):
    """Bytes with holes: ``data`` has zeros where ``patches`` apply."""

    data: bytes
    patches: tuple[Patch, ...] = ()


class KernelNode(Record):
    """One kernel launch. ``parameters`` is the whole parameter block, laid out as the cubin says.

    ``explicit_cluster``: clusters were asked for, be they of one CTA. Without, ``st.async`` and its like are illegal.
    """

    op: Literal["kernel"] = "kernel"
    kernel: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_shared: int
    parameters: Block
    cooperative: bool = False
    programmatic: bool = False
    explicit_cluster: bool = False
    after: tuple[int, ...] = ()

    @property
    def clustered(self) -> bool:
        """Whether the launch asks for clusters."""
        return self.explicit_cluster or self.cluster != (1, 1, 1)


class MemsetNode(Record):
    """Fills ``count`` elements of ``width`` bytes (1, 2 or 4) with ``value``."""

    op: Literal["memset"] = "memset"
    to: Address
    value: int
    width: Literal[1, 2, 4]
    count: int
    after: tuple[int, ...] = ()


class CopyNode(Record):
    """Copies ``bytes`` from a device address or from a payload kept in the plan."""

    op: Literal["copy"] = "copy"
    to: Address
    source: Address | Block
    bytes: int
    after: tuple[int, ...] = ()


Node = Annotated[KernelNode | MemsetNode | CopyNode, Field(discriminator="op")]


class LaunchPlan(Record):
    """What one call of ``launch`` does at one set of sizes. ``after`` holds indices of earlier nodes only.

    ``digest`` is the SHA-256 of the canonical JSON of everything else, so equal plans have equal digests.
    """

    schema_version: Literal[1] = 1
    digest: str
    artifact_digest: str
    sizes: dict[str, int]
    buffers: tuple[Buffer, ...]
    nodes: tuple[Node, ...]

    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels launched, each once, in order of first launch."""
        return tuple(dict.fromkeys(node.kernel for node in self.nodes if node.op == "kernel"))
