"""Probe kernels for golden vectors: every sm_90a instruction that computes, on registers and in memory.

A probe runs the instructions of one section one after another; each thread reads operands from arrays by operand type
and writes every result, as 64 bits, to a row of its own: ``out[row][thread]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import golden_copies
import numpy as np
from golden_inputs import LANES, Array, of_class
from golden_memory import ClusterWriter, MemoryWriter, SubnormalWriter
from golden_writer import TARGET, TILE_BYTES, Result, Writer
from isa_forms import Form, Section, read_sections
from isa_probe import accepted, refusal
from oracles_run import Kernel, Parameter, assembled

from ptxbench.core import TensorMap

# Parts of sections: the heading, how the opcodes begin, and what writes their probe. Products of doubles are apart, for
# they have inputs of their own.
_PARTS: dict[str, tuple[str, str, type[Writer]]] = {
    "mma_sync": ("Matrices in a warp", r"mma\.sync\.(?!.*\.f64)", Writer),
    "mma_sync_f64": ("Matrices in a warp", r"mma\.sync\..*\.f64", Writer),
    "wgmma": ("wgmma", r"wgmma\.mma_async\.", Writer),
    "barrier_reductions": ("Barriers and fences", r"(bar|barrier)\.red", Writer),
    "atomics": ("Atomics", r"(?!.*(cache_hint|async))(atom|red)\.", MemoryWriter),
    "bulk_reductions": ("Asynchronous copies", r"cp\.reduce\.async\.bulk\.global", MemoryWriter),
    "asynchronous_stores": ("Atomics", r"(red|st)\.async.*cluster", ClusterWriter),
    "cluster_copies": ("Asynchronous copies", r"cp\.(reduce\.)?async\.bulk\.shared::cluster\.shared", ClusterWriter),
    "subnormal_sums": ("Atomics", r"(?!.*(cache_hint|async))(atom|red)\..*\.add\..*f(16|32|64)", SubnormalWriter),
    "subnormal_bulk_sums": ("Asynchronous copies", r"cp\.reduce\.async\.bulk\.global.*\.add\..*f", SubnormalWriter),
    # In a kernel without a cluster.
    "alone_st_async": ("Atomics", r"st\.async\.shared::cluster.*bytes\.b64$", MemoryWriter),
    "alone_red_async": ("Atomics", r"red\.async\.relaxed.*\.add\.u32$", MemoryWriter),
    "alone_copy": ("Asynchronous copies", r"cp\.async\.bulk\.shared::cluster\.shared", MemoryWriter),
    "alone_reduction": ("Asynchronous copies", r"cp\.reduce\.async\.bulk\.shared::cluster.*\.add\.u32$", MemoryWriter),
}
_SHARED_CLASSES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8")


@dataclass(frozen=True)
class Probe:
    """A kernel with its inputs by buffer name, and what each row of its output is."""

    name: str
    kernel: Kernel
    inputs: dict[str, Array]
    results: tuple[Result, ...]
    maps: tuple[TensorMap, ...] = ()

    def output(self) -> Array:
        """The zeroed output array."""
        return np.zeros((len(self.results), LANES), np.uint64)

    @property
    def parameters(self) -> list[Parameter]:
        """Buffer names and tensor maps in the order of the kernel's parameters."""
        return [*self.inputs, *self.maps, "out"]


def _sections() -> dict[str, tuple[Section, str, type[Writer]]]:
    """The section of each probe, how the opcodes begin that it takes from there, and what writes it."""
    sections = {section.title: section for section in read_sections()}
    found = {
        "_".join(re.findall(r"[a-z]+", title.lower())): (section, "", Writer)
        for title, section in sections.items() if section.computes
    }  # fmt: skip
    return found | {name: (sections[title], base, writer) for name, (title, base, writer) in _PARTS.items()}


def probe_names() -> list[str]:
    """The names of all probes."""
    return [*_sections(), *golden_copies.GROUPS]


def probe_of(name: str) -> Probe:
    """The probe of that name: every form of its section that sm_90a has and the simulator executes."""
    if name in golden_copies.GROUPS:
        return _copies(name, golden_copies.GROUPS[name])
    section, base, writer = _sections()[name]
    forms = [form for form in section.forms() if re.match(base, form.opcode)]
    numbers = accepted(forms, TARGET)
    executed = [form for number, form in enumerate(forms) if number in numbers and not refusal(form, TARGET)]
    return _probe(name, executed, writer())


def _probe(name: str, forms: Sequence[Form], writer: Writer) -> Probe:
    for form in forms:
        writer.add(form)
    names = sorted(writer.classes)
    inputs = {f"in_{cls}": of_class(cls) for cls in names}
    if writer.shared:
        inputs |= {f"in_tile_{cls}": _tile(cls) for cls in _SHARED_CLASSES}
    text = writer.module(name, list(inputs))
    kernel = Kernel(name=name, target=TARGET, ptx=text, cubin=assembled(text, TARGET), threads=LANES, shared=0)
    return Probe(name, kernel, inputs, tuple(writer.results))


def _copies(name: str, copies: Sequence[golden_copies.Copy]) -> Probe:
    text = golden_copies.module(name, TARGET, copies)
    kernel = Kernel(name=name, target=TARGET, ptx=text, cubin=assembled(text, TARGET), threads=LANES, shared=0)
    results: list[Result] = []
    maps: list[TensorMap] = []
    for copy in copies:
        maps.append(copy.map(len(results)))
        results += [Result(copy.opcode, copy.operands, part, "b64") for part in range(copy.rows)]
    results.append(Result("mbarrier.test_wait.parity.shared.b64", (), 0, "b64"))
    return Probe(name, kernel, golden_copies.tensors(copies), tuple(results), tuple(maps))


def _tile(cls: str) -> Array:
    return of_class(f"m_{cls}").reshape(-1)[: TILE_BYTES // 4].copy()
