"""Parameterised attention kernels: which designs fit a task and a target, and what there is to say of them."""

from __future__ import annotations

import math
from typing import Any, Literal

from ptxbench.adapt.data.plan import SHARED_BYTES_PER_BLOCK, Barrier, Field, Plan, laid_out
from ptxbench.core import Record, Target, Task


class AttentionDesign(Record):
    """One choice of structure and constants.

    ``schedule`` is ``serial``, ``double`` (two stages, loads ahead) or ``warp`` (a producer warp) for forward kernels
    on Hopper; ``two_pass`` (maxima in a pass of their own), ``online`` or ``warps`` (specialised warps) on Blackwell;
    ``serial``, ``double`` or, on Blackwell, ``warps`` for backward kernels. ``correction`` gives the rescaling of O to
    a warpgroup of its own (``warps``). ``tile`` is the number of keys, or rows walked over, per step. ``weights`` says
    where P lies when it is multiplied with V. ``recompute`` ignores the given O and LSE (backward).
    """

    schedule: Literal["serial", "double", "warp", "two_pass", "online", "warps"]
    warpgroups: Literal[1, 2] = 1
    tile: Literal[64, 128] = 128
    stages: int = 2
    swizzle: Literal[64, 128] = 128
    weights: Literal["registers", "shared", "tmem"] = "registers"
    rescale: Literal["always", "lazy"] = "always"
    exponential: Literal["unit", "polynomial"] = "unit"
    correction: bool = False
    recompute: bool = False
    standalone: bool = False


def plan_attention(task: Task, target: Target, design: AttentionDesign) -> Plan | None:
    """The plan of a design for a task, or None where it does not fit."""
    hopper, dim = target is Target.SM_90A, task.fixed_sizes["D"]
    backward = task.operation == "attention_backward"
    if dim % (design.swizzle // 2) or not _possible(design, hopper, backward, dim):
        return None
    stages = {"serial": 1, "double": 2, "warp": design.stages, "warps": design.stages}.get(design.schedule, 1)
    rows = 64 * design.warpgroups if hopper else 128
    barriers = _barriers(design, hopper, backward, stages)
    members = _members(design, hopper, backward, dim, rows, stages)
    members.append((8 * sum(barrier.count for barrier in barriers), 8))
    if not hopper:
        members.append((4, 4))
    shared_bytes = laid_out(members)
    if shared_bytes > SHARED_BYTES_PER_BLOCK:
        return None
    threads = _threads(design, hopper)
    causal = task.options.get("causal", False)
    wide = design.weights == "tmem" or design.schedule in ("two_pass", "warps")
    output, columns = (256, 512) if wide else (128, 256)
    parameters: dict[str, Any] = {
        **design.model_dump(),
        "dim": dim, "causal": causal, "stages": stages, "threads": threads, "scale": repr(1 / math.sqrt(dim)),
        "tile_kv": design.tile, "tile_y": design.tile, "output": output, "columns": columns,
        "own_wgmma": hopper and design.standalone, "headers": _headers(design, hopper, backward),
        "summary": summary(task, hopper), "comment": comment(design, hopper, backward, causal),
    }  # fmt: skip
    facts: dict[str, Any] = {
        "operation": task.operation, "target": target.value, "hopper": hopper, "backward": backward,
        **design.model_dump(), "dim": dim, "causal": causal, "stages": stages, "threads": threads,
        "rows": rows, "block": design.tile if hopper else 128, "shared_bytes": shared_bytes,
        "limit_bytes": SHARED_BYTES_PER_BLOCK, "barriers": barriers,
        "q_bytes": rows * dim * 2, "kv_bytes": (design.tile if hopper else 128) * dim * 2,
        "p_bytes": (rows if hopper else 128) * (design.tile if hopper else 128) * 2,
        "panels": dim * 2 // design.swizzle, "scale": 1 / math.sqrt(dim),
        "tmem_columns": 512 if backward else columns,
        "descriptors": _descriptors(design, hopper, rows),
    }  # fmt: skip
    return Plan(parameters, facts, _techniques(design, hopper, backward, causal, dim))


def _possible(design: AttentionDesign, hopper: bool, backward: bool, dim: int) -> bool:
    if backward:
        if design.schedule == "warps":
            return not hopper and dim == 64 and design.weights != "registers"
        plain = hopper or not (design.recompute or design.standalone or design.weights == "tmem")
        return design.schedule in ("serial", "double") and dim == 64 and plain
    if hopper:
        return design.schedule in ("serial", "double", "warp") and design.weights != "tmem"
    if design.schedule != "warps" and (design.correction or design.rescale == "lazy" or design.exponential != "unit"):
        return False
    allowed = ("two_pass", "online", "warps")
    return design.schedule in allowed and design.weights != "registers" and design.tile == 128


def _threads(design: AttentionDesign, hopper: bool) -> int:
    if hopper:
        return design.warpgroups * 128 + (32 if design.schedule == "warp" else 0)
    if design.schedule == "warps":
        return 128 + (128 if design.correction else 0) + 64
    return 128


def _members(
    design: AttentionDesign, hopper: bool, backward: bool, dim: int, rows: int, stages: int
) -> list[tuple[int, int]]:
    """(bytes, alignment) of the tiles in shared memory, in order."""
    walked = (design.tile if hopper else 128) * dim * 2
    if backward:
        members = [(rows * dim * 2, 1024)] * 2 + [(stages * walked, 1024)] * 2
        return [*members, (128 * 128 * 2, 1024), (128 * 128 * 2, 1024)] if design.weights == "shared" else members
    members = [(rows * dim * 2, 1024), (stages * walked, 1024), (stages * walked, 1024)]
    if design.weights == "shared":
        members.append((rows * (design.tile if hopper else 128) * 2, 1024))
    if design.correction:
        members.append((3 * rows * 4, 16))  # two sets of factors, and the inverse sums
    return members


def _barriers(design: AttentionDesign, hopper: bool, backward: bool, stages: int) -> tuple[Barrier, ...]:
    asker = "the thread that asks for the copies, with the bytes it expects"
    done = Barrier("done", 1, 1, "tcgen05.commit", "the products are complete")
    if backward:
        stay = Barrier("x_full", 1, 1, asker, "the tiles that stay have arrived")
        full = Barrier("full", stages, 1, asker, "the tiles of a step have arrived")
        if design.schedule == "warps":
            return stay, full, *_backward_warps_barriers(stages)
        return (stay, full) if hopper else (stay, full, done)
    if design.schedule == "warps":
        return _warps_barriers(design, asker, stages)
    if not hopper:
        return Barrier("full", 1, 1, asker, "the tiles of a step have arrived"), done
    found = (
        Barrier("q_full", 1, 1, asker, "the queries have arrived"),
        Barrier("full", stages, 1, asker, "a block of keys and values has arrived"),
    )
    if design.schedule != "warp":
        return found
    empty = Barrier("empty", stages, 4 * design.warpgroups, "one lane of each consumer warp", "a stage is free again")
    return (*found, empty)


def _backward_warps_barriers(stages: int) -> tuple[Barrier, ...]:
    commit, warps = "tcgen05.commit", "one lane of each of warps 0-3"
    return (
        Barrier("empty", stages, 1, commit, "the products have read a stage"),
        Barrier("scores", 2, 1, commit, "the scores of a tile are complete"),
        Barrier("d_weights", 1, 1, commit, "its dP is complete"),
        Barrier("weights", 1, 4, warps, "its scores and dP were read, and P and dS, where wanted, are written"),
        Barrier("consumed", 1, 1, commit, "P and dS have been multiplied"),
    )


def _warps_barriers(design: AttentionDesign, asker: str, stages: int) -> tuple[Barrier, ...]:
    commit, softmax = "tcgen05.commit", "one lane of each softmax warp"
    found = [
        Barrier("q_full", 1, 1, asker, "the queries have arrived"),
        Barrier("k_full", stages, 1, asker, "a block of keys has arrived"),
        Barrier("k_empty", stages, 1, commit, "the scores no longer need it"),
        Barrier("v_full", stages, 1, asker, "a block of values has arrived"),
        Barrier("v_empty", stages, 1, commit, "O no longer needs it"),
        Barrier("scores", 2, 1, commit, "the scores of a block are complete"),
        Barrier("weights", 2, 4, softmax, "its weights can be multiplied"),
        Barrier("output", 1, 1, commit, "its share of O is complete, and its weights may be overwritten"),
    ]
    if design.correction:
        found += [
            Barrier("factored", 2, 4, softmax, "a block's factors for O are in shared memory"),
            Barrier("corrected", 1, 4, "one lane of each correcting warp", "O has been multiplied by them"),
            Barrier("summed", 1, 4, softmax, "the inverse sums are in shared memory"),
        ]
    return tuple(found)


def _descriptors(design: AttentionDesign, hopper: bool, rows: int) -> tuple[Field, ...]:
    walked = design.tile if hopper else 128
    along = Field("both operands of Q*K^T", "K", 16, 8 * design.swizzle, design.swizzle, 2)
    across = Field("V", "MN", walked * design.swizzle, 8 * design.swizzle, design.swizzle, design.swizzle)
    return along, across


def _headers(design: AttentionDesign, hopper: bool, backward: bool) -> list[str]:
    names = {"address", "descriptors", "fence", "math", "mbarrier", "tensor_map", "tma"}
    names.add("wgmma" if hopper else "tcgen05")
    if hopper and design.weights == "shared":
        names |= {"matrix", "barrier"}
    return sorted(names)


def _techniques(design: AttentionDesign, hopper: bool, backward: bool, causal: bool, dim: int) -> tuple[str, ...]:
    found = {
        "tma_load": True,
        "wgmma": hopper,
        "tcgen05": not hopper,
        "online_softmax": not backward and design.schedule != "two_pass",
        "two_pass_softmax": design.schedule == "two_pass",
        "recomputation": backward,
        "ring": design.schedule in ("double", "warp", "warps"),
        "specialised_warps": design.schedule in ("warp", "warps"),
        "correction_warps": design.correction,
        "weights_in_registers": hopper and design.weights == "registers",
        "weights_in_shared": design.weights == "shared",
        "weights_in_tmem": design.weights == "tmem",
        "stmatrix": hopper and design.weights == "shared",
        "lazy_rescale": design.rescale == "lazy",
        "polynomial_exponential": design.exponential == "polynomial",
        "causal_skipping": causal,
        "mn_major": True,
        "narrow_swizzle": design.swizzle != 128,
        "standalone": design.standalone,
    }
    return tuple(name for name, shown in found.items() if shown)


def summary(task: Task, hopper: bool) -> str:
    """One line on what is computed."""
    mask = "Causal attention" if task.options.get("causal") else "Attention"
    what = {
        "attention_forward": "O = softmax(Q*K^T / sqrt(D)) * V and its log-sum-exp",
        "attention_backward": "gradients dQ, dK, dV from dO",
    }[task.operation]
    engine = "Hopper's warpgroup matrix instruction" if hopper else "Blackwell's fifth-generation tensor cores"
    return f"{mask}: {what}, D = {task.fixed_sizes['D']}, on {engine}."


def comment(design: AttentionDesign, hopper: bool, backward: bool, causal: bool) -> list[str]:
    """Lines on the structure, for the head of the file."""
    if backward:
        lines = [
            "One kernel walks over the queries for a tile of keys (dK, dV), one over the keys for a tile of queries",
            "(dQ); both compute S and dP again, so that nothing is added up across CTAs.",
        ]
        if design.schedule == "warps":
            where = "tensor memory" if design.weights == "tmem" else "shared memory"
            lines.append(f"A producer warp, a multiplying warp, and four that form P and dS and leave them in {where}.")
        if design.recompute:
            lines.append("LSE and delta are found in a pass of their own.")
        return lines
    schedule = {
        "serial": "One stage: load a block of keys and values, multiply, softmax, multiply.",
        "double": "Two stages: the next block of keys and values is on its way while this one is worked on.",
        "warp": "A producer warp fills a ring with keys and values; every other warpgroup has 64 queries.",
        "two_pass": "A first pass finds the maxima of all rows, so that the second never rescales.",
        "warps": "A producer warp, a multiplying warp and four softmax warps; scores of two blocks take turns.",
        "online": "Each block's P*V is a fresh product; O is summed up in registers, a row a thread.",
    }
    weights = {
        "registers": "Weights stay in registers: accumulators, rounded, are A fragments.",
        "shared": "Weights go through shared memory.",
        "tmem": "Weights are written to tensor memory and multiplied from there.",
    }
    lines = [schedule[design.schedule], weights[design.weights]]
    if design.correction:
        lines.append("Four more warps keep O in step with the maxima while the softmax goes on.")
    return lines
