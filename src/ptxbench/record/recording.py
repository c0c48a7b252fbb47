"""The recorder's output as closed, bounded records.

The text comes out of a process that ran hostile code, so every line is parsed as hostile input. What a forged
recording can achieve is bounded by what a launcher could have asked for itself: kernels are named, never supplied, and
the rest of this room checks every launch, map and copy. A forger at worst makes its own plan.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

MAX_NODES = 4096
MAX_LINE_BYTES = 32 << 20

U64 = Annotated[int, Field(ge=0, lt=1 << 64)]
U32 = Annotated[int, Field(ge=0, lt=1 << 32)]
I32 = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Text = Annotated[str, Field(max_length=4096)]
Hex = Annotated[str, Field(pattern="^([0-9a-f][0-9a-f])*$")]
Triple = tuple[U32, U32, U32]
Nodes = Annotated[tuple[U32, ...], Field(max_length=MAX_NODES)]


class _Raw(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RawKernel(_Raw):
    """A launch as asked for. ``cluster`` is zeros where none was asked for; ``max_dynamic_shared`` -1 where not set."""

    op: Literal["kernel"]
    kernel: Text
    grid: Triple
    block: Triple
    cluster: Triple
    dynamic_shared: Count
    parameters: Hex
    cooperative: bool
    programmatic: bool
    max_dynamic_shared: I32
    non_portable_cluster: bool
    after: Nodes
    freed: tuple[U64, ...]


class RawMemset(_Raw):
    """``count`` elements of ``width`` bytes."""

    op: Literal["memset"]
    to: U64
    value: U32
    width: Literal[1, 2, 4]
    count: Count
    after: Nodes
    freed: tuple[U64, ...]


class RawCopy(_Raw):
    """From an address of the device, or from a payload."""

    op: Literal["copy"]
    to: U64
    bytes: Count
    source: Annotated[U64 | None, Field(alias="from")] = None
    payload: Hex | None = None
    after: Nodes
    freed: tuple[U64, ...]


RawNode = Annotated[RawKernel | RawMemset | RawCopy, Field(discriminator="op")]


class RawMap(_Raw):
    """A tensor map of the process, from this call or an earlier one; enumerations as the driver API's numbers."""

    mode: Literal["tiled", "im2col", "im2col_w", "im2col_w128"]
    dtype: U32
    dims: Annotated[tuple[U64, ...], Field(min_length=1, max_length=5)]
    strides: Annotated[tuple[U64, ...], Field(max_length=4)]
    element_strides: Annotated[tuple[U32, ...], Field(min_length=1, max_length=5)]
    box: Annotated[tuple[U32, ...], Field(min_length=1, max_length=5)]
    lower_corner: Annotated[tuple[I32, ...], Field(max_length=3)] = ()
    upper_corner: Annotated[tuple[I32, ...], Field(max_length=3)] = ()
    interleave: U32
    swizzle: U32
    l2_promotion: U32
    oob_fill: U32
    base: U64


class RawError(_Raw):
    """An error that the API reported to the launcher."""

    event: Literal["error"]
    api: Text
    code: I32
    name: Text
    why: Text


class RawRange(_Raw):
    """An allocation."""

    base: U64
    bytes: Count


class RawSymbol(_Raw):
    """A registered variable."""

    name: Text
    base: U64
    bytes: Count


class Returned(_Raw):
    """One finished call. ``joined`` are the last nodes that the end of the call waits for."""

    event: Literal["returned"]
    code: I32
    code_name: Text
    workspace: U64
    nodes: Annotated[tuple[RawNode, ...], Field(max_length=MAX_NODES)]
    joined: Nodes
    allocations: Annotated[tuple[RawRange, ...], Field(max_length=1024)]
    symbols: Annotated[tuple[RawSymbol, ...], Field(max_length=65536)]
    maps: Annotated[tuple[RawMap, ...], Field(max_length=4096)]


class Mark(_Raw):
    """The process came this far."""

    event: Literal["loading", "loaded", "calling", "done"]


class Refused(_Raw):
    """The recorder met something that no plan can express."""

    event: Literal["refused"]
    subject: Text
    detail: Text


class Ended(_Raw):
    """The library could not be loaded, or the launcher let an exception out."""

    event: Literal["unloadable", "threw"]
    why: Text


class Signalled(_Raw):
    """A signal ended the process; ``device_address`` says that a register held a device address."""

    event: Literal["signal"]
    number: I32
    system_call: I32
    device_address: bool


Line = Annotated[Returned | RawError | Mark | Refused | Ended | Signalled, Field(discriminator="event")]
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def parse_recording(text: bytes) -> tuple[Line, ...] | None:
    """The lines of a recording; None if it is not what the recorder writes.

    A last line without its line feed was cut off by the end of the process and is dropped.
    """
    complete, _, _ = text.rpartition(b"\n")
    try:
        return tuple(_LINE.validate_json(line) for line in complete.split(b"\n") if line)
    except ValidationError:
        return None
