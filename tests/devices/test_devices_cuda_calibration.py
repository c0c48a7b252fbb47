"""Our counts equal Nsight Compute's, and what libraries execute lies within both gates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from cuda_ncu import Counted, profiled

from ptxbench.core import Artifact, Target, families_of, make_candidate, matrix_family
from ptxbench.devices import CudaDevice
from ptxbench.devices.cuda import Case, write_bundle
from ptxbench.devices.cuda.bundle import executable
from ptxbench.devices.cuda.counters import flops_of
from ptxbench.devices.cuda.counting import KernelCounts, count_plan
from ptxbench.evaluate import LocalEvaluator
from ptxbench.judge import CARRIED_LOWER, OTHER_MATH_UPPER
from ptxbench.solutions import solutions
from ptxbench.tasks import draw_inputs, flops, get_task

TARGET = Target.SM_90A
COMPARED = ("gemm/sm_90a/06_persistent.cu", "attention/sm_90a/forward_02_warp_specialised.cu",
            "attention/sm_90a/backward_02_warp_specialised.cu")  # fmt: skip
LIBRARIES = [
    ("gemm_n7168_k5120", "cublas"),
    *((f"mha_{kind}", name) for kind in ("fwd_d128", "fwd_d128_causal", "bwd_d128", "bwd_d128_causal")
      for name in ("cudnn", "flash_attention_4", "flash_attention_2")),
]  # fmt: skip
WAITS = ("SYNCS.PHASECHK", "USETMAXREG.TRY_ALLOC")
"""Waits for a barrier or for registers: they are tried as often as it takes, with what else stands in their loops."""

INSTRUCTION_BYTES = 16

WITHOUT_WGMMA = {"flash_attention_2"}
"""FlashAttention-2 was written for older chips."""


@pytest.mark.gpu
@pytest.mark.parametrize("file", COMPARED)
def test_counts_equal_nsight_computes(
    file: str, gpu: CudaDevice, judge: LocalEvaluator, tmp_path: Path, results: Any
) -> None:
    row = next(row for row in solutions(target=TARGET) if row.file == file)
    task = get_task(row.task)
    workload = task.of_tier("small")[0]
    artifact = judge.compile(make_candidate(row.source(), task=row.task, target=row.target, origin=row.file))
    assert isinstance(artifact, Artifact), artifact
    plans = judge.record(artifact, task, [workload])
    assert isinstance(plans, tuple), plans
    drawn = draw_inputs(task, workload.sizes, "normal", 1, without=("O", "LSE"))
    inputs = {a.name: drawn[a.name].tobytes() if a.name in drawn else bytes(a.nbytes(workload.sizes))
              for a in task.inputs}  # fmt: skip
    ours = count_plan(artifact, plans[0], inputs, gpu.counters, 60.0)
    case = Case(name="case", artifact=executable(artifact), plan=plans[0], inputs=inputs)
    write_bundle(tmp_path, {"case": case})
    theirs = profiled(tmp_path / "report.ncu-rep", "case", str(tmp_path / "case"))
    found: dict[str, Any] = {}
    for kernel, counted in theirs.items():
        own = _summed(kernel, ours)
        other = {one.instruction.offset: (one.warps, one.threads) for one in counted if one.warps}
        differing = {offset: (own.get(offset), other.get(offset)) for offset in {*own, *other}
                     if own.get(offset) != other.get(offset)}  # fmt: skip
        names = {one.instruction.offset: one.instruction.opcode for one in counted}
        found[kernel] = {
            "instructions": len(other), "warp_instructions": sum(warps for warps, _ in other.values()),
            "ours": sum(warps for warps, _ in own.values()),
            "differing": {f"{offset:#x} {names.get(offset)}": pair for offset, pair in sorted(differing.items())[:40]},
            "outside_waits": [f"{offset:#x}" for offset in sorted(outside_waits(names, differing))],
        }
    results.record("nsight", **{file: found})
    results.write()
    assert set(theirs) == set(plans[0].kernels())
    for entry in found.values():
        assert not entry["outside_waits"], entry["differing"]


def outside_waits(names: Mapping[int, str], differing: Collection[int]) -> set[int]:
    """The differing instructions that no loop around a wait explains.

    Explained are runs of neighbours with a wait among them, and branches on their own: where a loop ends, and where
    warps that left it at different times meet again.
    """
    runs: list[list[int]] = []
    for offset in sorted(differing):
        if runs and offset == runs[-1][-1] + INSTRUCTION_BYTES:
            runs[-1].append(offset)
        else:
            runs.append([offset])
    return {
        offset for run in runs if not any(names.get(each, "").startswith(WAITS) for each in run)
        for offset in run if names.get(offset) != "BRA"
    }  # fmt: skip


def test_a_difference_is_explained_by_a_wait_beside_it_only() -> None:
    opcodes = ("S2UR", "SYNCS.PHASECHK.TRANS64.TRYWAIT", "BRA", "HGMMA", "BRA", "FADD")
    names = dict(zip(range(0, 0x60, 0x10), opcodes, strict=True))
    assert outside_waits(names, {0x00, 0x10, 0x20, 0x40}) == set()
    assert outside_waits(names, {0x40, 0x50}) == {0x50}


def _summed(kernel: str, counts: Any) -> dict[int, tuple[int, int]]:
    assert isinstance(counts, tuple), counts
    totals: dict[int, tuple[int, int]] = {}
    kernels: tuple[KernelCounts, ...] = counts
    for counted in (one for one in kernels if one.kernel == kernel):
        for row in counted.rows:
            warps, threads = totals.get(row.offset, (0, 0))
            totals[row.offset] = (warps + row.warps, threads + row.threads)
    return {offset: both for offset, both in totals.items() if both[0]}


@pytest.mark.gpu
@pytest.mark.parametrize(("task_name", "library"), LIBRARIES)
def test_libraries_are_within_the_gates(task_name: str, library: str, tmp_path: Path, results: Any) -> None:
    if library == "flash_attention_4":
        pytest.importorskip("flash_attn.cute")
    task = get_task(task_name)
    work = flops(task, task.of_tier("core")[0].sizes)
    kernels = profiled(tmp_path / "report.ncu-rep", "library", task_name, library)
    totals: defaultdict[str, int] = defaultdict(int)
    for one in (one for counted in kernels.values() for one in counted):
        totals[_family(one)] += flops_of(TARGET, one.instruction, one.warps, one.threads)
    matrix = matrix_family(TARGET).name
    other = {family.name: totals[family.name] for family in families_of(TARGET) if family.role == "other_math"}
    found = {
        "kernels": list(kernels), "carried": totals[matrix] / work, "other_math_share": sum(other.values()) / work,
        "other": {name: value / work for name, value in other.items() if value},
    }
    results.record("library_gates", **{f"{task_name} {library}": found})
    results.write()
    if library in WITHOUT_WGMMA:
        assert found["carried"] == 0 and found["other_math_share"] > OTHER_MATH_UPPER
    else:
        assert found["carried"] >= CARRIED_LOWER
        assert found["other_math_share"] <= OTHER_MATH_UPPER


def _family(one: Counted) -> str:
    matches = (family.name for family in families_of(TARGET) if family.matches_sass(one.instruction.opcode))
    return next(matches, "")
