"""A task is a row of data: shapes, dtypes, signature, workloads and policy. Mathematics lives in the room `tasks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ptxbench.core.record import Record

Dtype = Literal["bf16", "f16", "f32"]
Tier = Literal["core", "small", "heldout"]
Suite = Literal["core", "extended", "training"]

BYTES_PER_ELEMENT: dict[str, int] = {"bf16": 2, "f16": 2, "f32": 4}
C_TYPES: dict[str, str] = {"bf16": "__nv_bfloat16", "f16": "__half", "f32": "float"}


class Argument(Record):
    """A tensor argument of ``launch``; ``shape`` names the task's sizes, outermost first, row-major and contiguous."""

    name: str
    role: Literal["input", "output"]
    dtype: Dtype
    shape: tuple[str, ...]

    def dims(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape in elements at given sizes."""
        return tuple(sizes[name] for name in self.shape)

    def nbytes(self, sizes: dict[str, int]) -> int:
        """The size in bytes at given sizes."""
        count = BYTES_PER_ELEMENT[self.dtype]
        for extent in self.dims(sizes):
            count *= extent
        return count


def sizes_text(sizes: Mapping[str, int], separator: str = ", ") -> str:
    """Sizes in words: ``M=256, N=256, K=1536``."""
    return separator.join(f"{name}={value}" for name, value in sizes.items())


class Workload(Record):
    """One set of sizes. ``core`` is timed, ``small`` is for the simulator and fast feedback, ``heldout`` is not
    shown.
    """

    tier: Tier
    sizes: dict[str, int]


class Task(Record):
    """One row of the suite.

    ``operation`` names the reference mathematics (``gemm``, ``attention_forward``, ...), ``options`` its flags
    (``causal``). ``size_rules`` maps a size to the number it must be a multiple of and ``fixed_sizes`` one to its only
    value, as stated to the model. ``suite`` tells the published tasks (``core``) from those with relaxed rules
    (``extended``) and from those that serve as training material and are never evaluated by default (``training``).
    ``matrix_dtype`` is the operand type whose matrix products count as the task's work; ``distributions`` names input
    distributions.
    """

    schema_version: Literal[1] = 1
    name: str
    title: str
    suite: Suite = "core"
    operation: str
    options: dict[str, bool] = {}
    sizes: tuple[str, ...]
    size_rules: dict[str, int]
    fixed_sizes: dict[str, int] = {}
    arguments: tuple[Argument, ...]
    workloads: tuple[Workload, ...]
    matrix_dtype: Dtype = "bf16"
    distributions: tuple[str, ...]
    baselines: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The input tensors, in the order of the signature."""
        return tuple(a for a in self.arguments if a.role == "input")

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The output tensors, in the order of the signature."""
        return tuple(a for a in self.arguments if a.role == "output")

    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(C type, name) of every parameter of ``launch``, in order; the trust anchor for the signature check."""
        tensors = tuple(
            (f"{'const ' if a.role == 'input' else ''}{C_TYPES[a.dtype]}*", a.name)
            for a in (*self.inputs, *self.outputs)
        )
        sizes = tuple(("int", name) for name in self.sizes)
        return (*tensors, *sizes, ("void*", "workspace"), ("cudaStream_t", "stream"))

    def of_tier(self, *tiers: Tier) -> tuple[Workload, ...]:
        """The workloads of the given tiers, in the row's order."""
        return tuple(w for w in self.workloads if w.tier in tiers)
