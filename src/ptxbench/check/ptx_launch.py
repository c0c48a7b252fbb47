"""The launch of a PTX kernel, described in TOML: grid, block, sizes, buffers and parameters."""

from __future__ import annotations

import hashlib
import re
import struct
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ptxbench.check.buffers import Contents
from ptxbench.check.expressions import LARGEST, evaluate
from ptxbench.check.shapes import ELEMENT_BYTES, Shape, parse_shapes
from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    KernelFacts,
    KernelNode,
    LaunchPlan,
    ParameterSlot,
    Patch,
    PointerPatch,
    TensorMap,
    TensorMapPatch,
    UsageError,
    first_problem,
    map_complaints,
    map_reach,
    plan_problem,
)
from ptxbench.simulator import Program

Number = int | str
Role = Literal["input", "output", "workspace"]

_MAP_BYTES, _MAP_ALIGN = 128, 64
_MAP_TYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "e4m3": "uint8", "e5m2": "uint8",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "s32": "int32", "u64": "uint64", "s64": "int64",
}  # fmt: skip
_SCALARS = {"s32": "<i", "u32": "<I", "s64": "<q", "u64": "<Q", "f32": "<f", "f64": "<d"}
_REGISTERS, _REGISTER_FILE = 255, 65536  # of a thread at most; of an SM
_LARGEST_BYTES = 4 * LARGEST  # of all buffers together, as of a launcher's tensor
_ROLES = {"in": "input", "out": "output", "workspace": "workspace"}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PointerParameter(_Strict):
    """The address of a buffer, ``offset`` bytes behind its start."""

    buffer: str
    offset: Number = 0


class ScalarParameter(_Strict):
    """A number; ``value`` may be an expression over the sizes for the integer types."""

    value: float | str
    type: Literal["s32", "u32", "s64", "u64", "f32", "f64"] = "s32"


class MapParameter(_Strict):
    """A tensor map of a whole buffer; ``box`` and ``dims`` (default: the buffer's shape) innermost first."""

    map: str
    box: tuple[Number, ...]
    dims: tuple[Number, ...] = ()
    swizzle: Literal["none", "32b", "64b", "128b"] = "none"
    oob_fill: Literal["none", "nan_request_zero_fma"] = "none"


class PtxLaunch(_Strict):
    """One launch. Numbers may be expressions over the sizes; ``shared`` is dynamic shared memory in bytes."""

    kernel: str = ""
    grid: Annotated[tuple[Number, ...], Field(min_length=1, max_length=3)]
    block: Annotated[tuple[Number, ...], Field(min_length=1, max_length=3)]
    cluster: Annotated[tuple[Number, ...], Field(min_length=1, max_length=3)] | None = None
    shared: Number = 0
    registers: int | None = Field(default=None, ge=1, le=_REGISTERS)
    sizes: dict[str, Annotated[int, Field(ge=0, le=LARGEST)]] = {}
    buffers: dict[str, str] = {}
    parameters: tuple[PointerParameter | ScalarParameter | MapParameter, ...] = ()

    def plan(self, kernel: str, sizes: Mapping[str, int]) -> tuple[LaunchPlan, dict[str, Contents]]:
        """The plan at ``sizes`` and what its buffers hold; `UsageError` names an entry that does not fit."""
        table = {name: _buffer(name, text) for name, text in self.buffers.items()}
        buffers = tuple(
            Buffer(name=name, role=role, bytes=shape.elements(sizes) * ELEMENT_BYTES[shape.element])
            for name, (shape, role) in table.items()
        )
        if sum(buffer.bytes for buffer in buffers) > _LARGEST_BYTES:
            raise UsageError(f"the buffers have more than {_LARGEST_BYTES} bytes at these sizes; use smaller sizes")
        node = KernelNode(
            kernel=kernel, grid=_dim3(self.grid, sizes), block=_dim3(self.block, sizes),
            cluster=_dim3(self.cluster or (1,), sizes), explicit_cluster=self.cluster is not None,
            dynamic_shared=_number(self.shared, sizes), parameters=_parameters(self.parameters, table, sizes),
        )  # fmt: skip
        contents = {name: Contents(shape.element) for name, (shape, _) in table.items()}
        plan = LaunchPlan(digest="", artifact_digest="", sizes=dict(sizes), buffers=buffers, nodes=(node,))
        problem = plan_problem(plan)
        if problem:
            raise UsageError(f"the launch of {kernel} is none ({problem}); correct the numbers in its TOML file")
        return plan, contents

    def fit(self, plan: LaunchPlan, program: Program) -> None:
        """`UsageError` unless the kernel takes just the parameters described."""
        for node, kernel in zip(plan.nodes, program.image.kernels, strict=True):
            given = len(node.parameters.data) if node.op == "kernel" else 0
            if given != kernel.param_bytes:
                raise UsageError(
                    f"the parameters described are {given} bytes, and {kernel.name} takes {kernel.param_bytes}; list "
                    "every parameter of the kernel in its order, and give numbers their type"
                )

    def artifact(self, program: Program, text: str, threads: int) -> Artifact:
        """What a compile would have told: facts that PTX holds, registers as said here, or as many as fit."""
        fitting = min(_REGISTERS, _REGISTER_FILE // max(threads, 1) // 8 * 8)
        kernels = tuple(
            KernelFacts(
                name=kernel.name, parameters=(ParameterSlot(offset=0, size=kernel.param_bytes),),
                registers=self.registers or kernel.max_registers or fitting, static_shared=kernel.static_shared,
                local=kernel.local_bytes, max_threads=kernel.max_threads, required_cluster=kernel.required_cluster,
            )
            for kernel in program.image.kernels
        )  # fmt: skip
        return Artifact(
            digest=hashlib.sha256(text.encode()).hexdigest(), source_digest="", target=program.target, ptx=text,
            cubin=b"", host_library=b"", kernels=kernels, sass=(), remarks=(), versions={},
        )  # fmt: skip


def read_ptx_launch(path: Path) -> PtxLaunch:
    """The launch of a TOML file; `UsageError` says what is wrong with it and where."""
    try:
        return PtxLaunch.model_validate(tomllib.loads(path.read_text()))
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}; describe the launch in TOML (docs/check.md shows how)") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {first_problem(error)}; see docs/check.md") from error
    except (ValueError, RecursionError) as error:  # the parser's own, an integer of too many digits, no UTF-8
        raise UsageError(f"{path} is not TOML: {error}") from error


@dataclass
class _Block:
    """A parameter block in the making: values follow each other at their natural alignment."""

    data: bytearray
    patches: list[Patch]

    def place(self, align: int, size: int) -> int:
        self.data.extend(bytes(-len(self.data) % align))
        at = len(self.data)
        self.data.extend(bytes(size))
        return at


def _parameters(
    parameters: tuple[PointerParameter | ScalarParameter | MapParameter, ...],
    table: Mapping[str, tuple[Shape, Role]],
    sizes: Mapping[str, int],
) -> Block:
    block = _Block(bytearray(), [])
    for parameter in parameters:
        match parameter:
            case PointerParameter():
                shape, _ = _find(table, parameter.buffer)
                place = Address(buffer=parameter.buffer, offset=_number(parameter.offset, sizes))
                total = shape.elements(sizes) * ELEMENT_BYTES[shape.element]
                if not 0 <= place.offset <= total:
                    raise UsageError(f"the offset {place.offset} is outside of {shape.name}, which has {total} bytes")
                block.patches.append(PointerPatch(at=block.place(8, 8), to=place))
            case MapParameter():
                encoded = _map(parameter, _find(table, parameter.map), sizes)
                block.patches.append(TensorMapPatch(at=block.place(_MAP_ALIGN, _MAP_BYTES), map=encoded))
            case ScalarParameter():
                packed = _scalar(parameter, sizes)
                at = block.place(len(packed), len(packed))
                block.data[at : at + len(packed)] = packed
    return Block(data=bytes(block.data), patches=tuple(block.patches))


def _scalar(parameter: ScalarParameter, sizes: Mapping[str, int]) -> bytes:
    value = evaluate(parameter.value, sizes) if isinstance(parameter.value, str) else parameter.value
    try:
        return struct.pack(_SCALARS[parameter.type], value if parameter.type[0] == "f" else int(value))
    except (struct.error, OverflowError, ValueError) as error:
        raise UsageError(f"the parameter {parameter.value!r} does not fit into {parameter.type}") from error


def _map(parameter: MapParameter, entry: tuple[Shape, Role], sizes: Mapping[str, int]) -> TensorMap:
    shape, _ = entry
    if shape.element not in _MAP_TYPES:
        raise UsageError(f"tensor maps of {shape.element} do not exist; buffer {shape.name} has that type")
    size = ELEMENT_BYTES[shape.element]
    dims = tuple(_number(dim, sizes) for dim in (parameter.dims or shape.dims[::-1]))
    made = TensorMap(
        dtype=_MAP_TYPES[shape.element], base=Address(buffer=shape.name), dims=dims,
        strides=tuple(size * prod(dims[: axis + 1]) for axis in range(len(dims) - 1)),
        box=tuple(_number(extent, sizes) for extent in parameter.box), element_strides=(1,) * len(dims),
        interleave="none", swizzle=parameter.swizzle, l2_promotion="none", oob_fill=parameter.oob_fill,
    )  # fmt: skip
    name = f"the map of {shape.name} (dimensions {list(dims)}, box {list(made.box)}, innermost first)"
    for complaint in map_complaints(made, None):
        raise UsageError(f"{name} is invalid: {complaint}")
    end, total = map_reach(made)[0], shape.elements(sizes) * size
    if end > total:
        raise UsageError(f"{name} reaches to byte {end} of {total}; give dimensions that lie in the buffer")
    return made


def _find(table: Mapping[str, tuple[Shape, Role]], name: str) -> tuple[Shape, Role]:
    if name not in table:
        raise UsageError(f"a parameter names buffer {name}, which [buffers] does not have (it has {', '.join(table)})")
    return table[name]


def _buffer(name: str, text: str) -> tuple[Shape, Role]:
    if not re.fullmatch(r"\w+", name):
        raise UsageError(f"{name!r} is no name of a buffer; use letters, digits and _")
    found = re.fullmatch(r"\s*(\w+)\s*(\[[^\[\]]*\])\s*(in|out|workspace)\s*", text)
    if found is None or found[1] not in ELEMENT_BYTES:
        raise UsageError(
            f"buffer {name} is {text!r}; write TYPE[DIM,...] in, out or workspace, "
            f"with TYPE one of {', '.join(ELEMENT_BYTES)}"
        )
    role = _ROLES[found[3]]
    shape = parse_shapes(f"{name}:{found[1]}{found[2]}")[name]
    return shape, next(known for known in get_args(Role) if known == role)


def _dim3(values: tuple[Number, ...], sizes: Mapping[str, int]) -> tuple[int, int, int]:
    x, y, z = [*(_number(value, sizes) for value in values), 1, 1][:3]
    return x, y, z


def _number(value: Number, sizes: Mapping[str, int]) -> int:
    return evaluate(value, sizes) if isinstance(value, str) else value


def choose_kernel(launch: PtxLaunch, text: str) -> str:
    """The kernel to launch: the one named, or the only one of the PTX; `UsageError` otherwise."""
    names = re.findall(r"\.entry\s+([\w$]+)", text)
    if launch.kernel and launch.kernel not in names:
        raise UsageError(f"the PTX has no kernel {launch.kernel}; it has {', '.join(names) or 'none'}")
    if not launch.kernel and len(names) != 1:
        listed = ", ".join(names) or "(none)"
        raise UsageError(f"the PTX has the kernels {listed}; name one as `kernel` in the TOML file")
    return launch.kernel or names[0]
