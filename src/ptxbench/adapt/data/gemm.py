"""Parameterised matrix products: which designs fit a task and a target, and what there is to say of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ptxbench.adapt.data.plan import SHARED_BYTES_PER_BLOCK, Barrier, Field, Plan, laid_out
from ptxbench.core import Record, Target, Task

HEADER_WGMMA = (64, 128, 192, 256)
"""Values of N for which the header set has a bf16 wgmma."""


class GemmDesign(Record):
    """One choice of structure and constants. ``schedule``:

    ``serial`` loads and multiplies in turns; ``ring`` loads ahead from one of the multiplying threads; ``warp`` and
    ``warpgroup`` have a producer of their own (Hopper); ``warps`` has a producer, a multiplier and four storing warps
    (Blackwell). ``consumers`` are warpgroups of 64 rows each. ``cluster`` names the axis along which two CTAs share a
    tile by multicast. ``pair`` lets two CTAs make one product of 256 rows, each with half of B (Blackwell).
    ``standalone`` kernels define what they need of the header set themselves.
    """

    schedule: Literal["serial", "ring", "warp", "warpgroup", "warps"]
    tile_n: int = 128
    consumers: Literal[1, 2] = 1
    stages: int = 1
    swizzle: Literal[32, 64, 128] = 128
    store: Literal["direct", "staged", "tma"] = "direct"
    cluster: Literal["", "m", "n"] = ""
    pair: bool = False
    persistent: bool = False
    in_flight: bool = False
    accumulators: Literal[1, 2] = 1
    standalone: bool = False


def plan_gemm(task: Task, target: Target, design: GemmDesign) -> Plan | None:
    """The plan of a design for a task, or None where it does not fit."""
    shapes = {argument.name: argument.shape for argument in task.arguments}
    traits = {
        "dtype": task.matrix_dtype,
        "a_mn": shapes["A"][-1] == "M",
        "b_mn": shapes["B"][-1] == "N",
        "batched": "L" in task.sizes,
        "gelu": task.options.get("gelu", False),
    }
    hopper = target is Target.SM_90A
    tile_m = 64 * design.consumers if hopper else 128
    tile_k = design.swizzle // 2
    if not _possible(design, traits, hopper, tile_k):
        return None
    stages = design.stages if design.schedule != "serial" else 1
    columns_of_b = design.tile_n // 2 if design.pair else design.tile_n  # that a CTA holds
    stage_bytes = (tile_m + columns_of_b) * tile_k * 2
    barriers = _barriers(design, hopper, stages)
    staging = _staging_bytes(design, hopper, tile_m)
    members = [(stages * tile_m * tile_k * 2, 1024), (stages * columns_of_b * tile_k * 2, 1024)]
    if staging:
        members.append((staging, 1024 if design.store == "tma" else 16))
    members.append((8 * sum(barrier.count for barrier in barriers), 8))
    if not hopper:
        members.append((4, 4))
    shared_bytes = laid_out(members)
    if shared_bytes > SHARED_BYTES_PER_BLOCK:
        return None
    threads = _threads(design, hopper)
    own_wgmma = hopper and (design.standalone or traits["dtype"] == "f16" or design.tile_n not in HEADER_WGMMA)
    parameters: dict[str, Any] = {
        **design.model_dump(), **traits,
        "tile_m": tile_m, "tile_k": tile_k, "stages": stages, "threads": threads, "own_wgmma": own_wgmma,
        "guard_n": 128 % design.tile_n != 0 or design.cluster == "n",
        "columns": design.accumulators * design.tile_n if design.tile_n >= 32 else 32,
        "registers_producer": 40, "registers_consumer": 232 if design.consumers == 2 else 240,
        "headers": _headers(design, hopper),
        "summary": summary(task, hopper), "comment": comment(design, stages),
    }  # fmt: skip
    facts: dict[str, Any] = {
        "operation": "gemm", "target": target.value, "hopper": hopper, **traits, **design.model_dump(),
        "tile_m": tile_m, "tile_k": tile_k, "stages": stages, "threads": threads, "stage_bytes": stage_bytes,
        "product_m": 2 * tile_m if design.pair else tile_m, "columns_of_b": columns_of_b,
        "staging_bytes": staging, "shared_bytes": shared_bytes, "limit_bytes": SHARED_BYTES_PER_BLOCK,
        "barriers": barriers, "descriptors": _descriptors(design, traits, tile_k),
        "a_bytes": tile_m * tile_k * 2, "b_bytes": columns_of_b * tile_k * 2,
        "steps_per_stage": tile_k // 16, "accumulators_per_thread": design.tile_n // 2 if hopper else 0,
        "tmem_columns": parameters["columns"], "flops_per_byte": 2 * tile_m * design.tile_n * tile_k / stage_bytes,
        "guard_n": parameters["guard_n"],
    }  # fmt: skip
    return Plan(parameters, facts, _techniques(design, traits, hopper))


def _possible(design: GemmDesign, traits: Mapping[str, Any], hopper: bool, tile_k: int) -> bool:
    decoupled = design.schedule in ("warp", "warpgroup", "warps")
    rules = (
        hopper == (design.schedule != "warps") or design.schedule == "serial",
        decoupled or not (design.persistent or design.cluster or design.in_flight),
        not (design.persistent and design.cluster),
        not (traits["batched"] and design.cluster),
        design.schedule == "serial" or design.stages >= 2,
        design.schedule != "warpgroup" or design.consumers == 2,
        hopper or (design.store != "staged" and design.consumers == 1),
        hopper or design.persistent or design.accumulators == 1,
        not design.pair or (not hopper and not design.cluster),
        # Each CTA of a pair fetches whole panels of its half of B.
        not (design.pair and traits["b_mn"]) or design.tile_n // 2 % (design.swizzle // 2) == 0,
        # A panel must divide the rows that one CTA of a cluster fetches, and the 64 rows of a consumer.
        not design.cluster or design.swizzle == 128,
        design.cluster != "n" or not traits["a_mn"] or design.consumers == 2 or not hopper,
        design.store != "tma" or design.tile_n >= 64,
        tile_k >= 16,
        not hopper or design.tile_n <= 256,
    )
    return all(rules)


def _staging_bytes(design: GemmDesign, hopper: bool, tile_m: int) -> int:
    match design.store:
        case "tma":
            return 2 * tile_m * 64 * 2
        case "staged":
            return design.consumers * 64 * (design.tile_n + 8) * 2
        case _:
            return 0


def _threads(design: GemmDesign, hopper: bool) -> int:
    if not hopper:
        return 192 if design.schedule == "warps" else 128
    extra = {"warp": 32, "warpgroup": 128}.get(design.schedule, 0)
    return design.consumers * 128 + extra


def _barriers(design: GemmDesign, hopper: bool, stages: int) -> tuple[Barrier, ...]:
    if not hopper:
        return _blackwell_barriers(design, stages)
    full = Barrier("full", stages, 1, "the thread that asks for the copies, with the bytes it expects",
                   "both tiles of the stage have arrived")  # fmt: skip
    if design.schedule not in ("warp", "warpgroup"):
        return (full,)
    if design.cluster:
        who, arrivals = "one thread of each consumer warpgroup of both CTAs", 2 * design.consumers
    else:
        who, arrivals = "one lane of each consumer warp", 4 * design.consumers
    return full, Barrier("empty", stages, arrivals, who, "nobody reads the stage any more")


def _blackwell_barriers(design: GemmDesign, stages: int) -> tuple[Barrier, ...]:
    commit, warps = "tcgen05.commit", "one lane of each storing warp"
    asker = "the thread that asks for the copies, with the bytes it expects"
    arrived, read = "both tiles of the stage have arrived", "the products have read the stage"
    releases = 1
    if design.pair:
        commit = "tcgen05.commit, multicast to both CTAs"
        asker = "the first CTA's thread that asks for copies, with the bytes that both CTAs fetch; only its own is used"
        arrived, read = "the tiles of both CTAs have arrived", "the products have read the stage in both CTAs"
    elif design.cluster:
        asker += ", half of a tile from the other CTA among them"
        read, releases = "the products of both CTAs have read the stage", 2
    full = Barrier("full", stages, 1, asker, arrived)
    if design.schedule == "serial":
        return full, Barrier("done", 1, 1, commit, "the products of the step are complete")
    release = "tcgen05.commit of either CTA, multicast to both" if design.cluster else commit
    empty = Barrier("empty", stages, releases, release, read)
    ready = Barrier("ready", design.accumulators, 1, commit, "a tile's sums are complete")
    if not design.persistent:
        return full, empty, ready
    if design.pair:
        warps = "one lane of each storing warp of both CTAs, at the first CTA's barrier"
    arrivals = 8 if design.pair else 4
    return full, empty, ready, Barrier("drained", design.accumulators, arrivals, warps, "its sums were read")


def _descriptors(design: GemmDesign, traits: Mapping[str, Any], tile_k: int) -> tuple[Field, ...]:
    def field(operand: str, mn: bool) -> Field:
        return Field(
            operand=operand,
            major="MN" if mn else "K",
            leading=tile_k * design.swizzle if mn else 16,
            stride=8 * design.swizzle,
            swizzle=design.swizzle,
            step=design.swizzle if mn else 2,
        )

    return field("A", traits["a_mn"]), field("B", traits["b_mn"])


def _headers(design: GemmDesign, hopper: bool) -> list[str]:
    names = {"address", "descriptors", "fence", "mbarrier", "tensor_map", "tma", "wgmma" if hopper else "tcgen05"}
    names |= {"barrier"} if design.store != "direct" else set()
    names |= {"matrix"} if hopper and design.store != "direct" else set()
    names |= {"cluster"} if design.cluster or design.pair else set()
    names |= {"setmaxnreg"} if design.schedule == "warpgroup" else set()
    return sorted(names)


def _techniques(design: GemmDesign, traits: Mapping[str, Any], hopper: bool) -> tuple[str, ...]:
    found = {
        "tma_load": True,
        "wgmma": hopper,
        "tcgen05": not hopper,
        "ring": design.schedule != "serial",
        "specialised_warps": design.schedule in ("warp", "warpgroup", "warps"),
        "setmaxnreg": design.schedule == "warpgroup",
        "products_in_flight": design.in_flight or design.schedule == "ring",
        "multicast": bool(design.cluster),
        "cta_pair": design.pair,
        "persistent": design.persistent,
        "tma_store": design.store == "tma",
        "stmatrix": hopper and design.store != "direct",
        "mn_major": traits["a_mn"] or traits["b_mn"],
        "narrow_swizzle": design.swizzle != 128,
        "batched": traits["batched"],
        "fused_epilogue": traits["gelu"],
        "f16": traits["dtype"] == "f16",
        "standalone": design.standalone,
    }
    return tuple(name for name, shown in found.items() if shown)


def summary(task: Task, hopper: bool) -> str:
    """One line on what is computed, such as ``C[M,N] = A[M,K] * B[N,K]^T``."""
    shapes = {a.name: a.shape for a in task.arguments}
    parts = {name: f"{name}[{','.join(shapes[name])}]" for name in "ABC"}
    a = parts["A"] + ("^T" if shapes["A"][-1] == "M" else "")
    b = parts["B"] + ("^T" if shapes["B"][-1] == "K" else "")
    result = f"GELU({a} * {b} + bias)" if task.options.get("gelu") else f"{a} * {b}"
    kind = "fp16" if task.matrix_dtype == "f16" else "bf16"
    engine = "Hopper's warpgroup matrix instruction" if hopper else "Blackwell's fifth-generation tensor cores"
    return f"{parts['C']} = {result} in {kind} with fp32 accumulation, on {engine}."


def comment(design: GemmDesign, stages: int) -> list[str]:
    """Lines on the structure, for the head of the file."""
    schedule = {
        "serial": "One stage: load, multiply, load, multiply.",
        "ring": f"A ring of {stages} stages: one thread asks for tiles {stages - 1} steps ahead of the products.",
        "warp": f"A producer warp fills a ring of {stages} stages; consumer warpgroups multiply and hand stages back.",
        "warpgroup": f"A producer warpgroup gives its registers away and fills a ring of {stages} stages.",
        "warps": f"One warp loads into a ring of {stages} stages, one issues the products, four store the results.",
    }
    store = {
        "direct": "Results leave straight from registers.",
        "staged": "Results pass through shared memory and leave as whole rows.",
        "tma": "Results pass through swizzled blocks in shared memory and leave by TMA, which clips them.",
    }
    lines = [schedule[design.schedule]]
    if design.cluster:
        shared = "B" if design.cluster == "m" else "A"
        lines.append(f"Two CTAs of a cluster need the same tile of {shared}: each fetches half and multicasts it.")
    if design.pair:
        lines.append("Two CTAs are a pair (cta_group::2): each has half of A and half of B of a product of 256 rows.")
    if design.persistent:
        lines.append("CTAs stay and walk over the tiles of C; the ring runs on across them.")
    return [*lines, store[design.store]]
