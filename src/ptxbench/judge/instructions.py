"""Tier 2: claimed, compiled, executed, carried, from the simulator's counts per PTX instruction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxbench.core import (
    Artifact,
    Candidate,
    Family,
    FamilyReport,
    InstructionReport,
    LaunchPlan,
    SiteCount,
    Task,
    families_of,
    matrix_family,
)
from ptxbench.judge.claims import claimed_counts
from ptxbench.judge.sass import compiled_counts, confirmed_sites
from ptxbench.tasks import flops, input_bytes, output_bytes

CARRIED_LOWER = 0.95
"""Least share of the task's FLOPs in the target's matrix instruction (padding and recomputation only raise it)."""

OTHER_MATH_UPPER = 0.10
"""Largest share of the task's FLOPs in other arithmetic. Measured: honest GEMM 0, honest attention 0.006 to 0.011."""

FOLLOWED_LOWER = 0.95
"""Least share of output blocks that must follow when the matrix instruction's products are scaled."""


def judge_instructions(
    task: Task,
    candidate: Candidate,
    artifact: Artifact,
    plan: LaunchPlan,
    counts: Sequence[SiteCount],
    perturbation_followed: float | None = None,
) -> InstructionReport:
    """The four numbers per family of the target, from one run of ``plan`` in mode COUNT on the simulator.

    ``counts`` has a record per PTX instruction. Families of which nothing was claimed, compiled or executed are left
    out, the matrix family never. ``carried`` is a share of the task's FLOPs for the matrix family (only operands of the
    task's matrix dtype, and only what the machine code confirms); of the input bytes for bulk loads and of the output
    bytes for bulk stores (more than 1 where tiles are moved repeatedly); None for the rest.
    """
    families = families_of(candidate.target)
    matrix = matrix_family(candidate.target)
    claimed = claimed_counts(candidate.source, families)
    compiled = compiled_counts(artifact.sass, plan.kernels(), families)
    sites = {family.name: [s for s in counts if _family_of(s, families) is family] for family in families}
    confirmed = confirmed_sites(sites[matrix.name], artifact.sass, matrix)
    work = flops(task, plan.sizes)

    def carried(family: Family) -> float | None:
        own = sites[family.name]
        if family is matrix:
            return sum(s.flops for s in confirmed if s.operand_dtype == task.matrix_dtype) / work
        if family.role == "bulk_copy":
            whole = output_bytes if family.name == "tma_store" else input_bytes
            return sum(s.bytes for s in own) / whole(task, plan.sizes)
        return None

    reports = {
        family.name: FamilyReport(
            claimed=claimed[family.name],
            compiled=compiled[family.name],
            executed=sum(s.executed for s in (confirmed if family is matrix else sites[family.name])),
            carried=carried(family),
        )
        for family in families
    }
    return InstructionReport(
        families={
            name: report for name, report in reports.items()
            if name == matrix.name or report.claimed or report.compiled or report.executed
        },
        other_math_share=other_math_flops(counts, families) / work,
        perturbation_followed=perturbation_followed,
        source="simulator: PTX instructions that the machine code confirms",
    )


def other_math_flops(counts: Iterable[SiteCount], families: tuple[Family, ...]) -> float:
    """FLOPs of arithmetic that could have made the result another way: as the site reports, else per active thread."""
    total = 0.0
    for site in counts:
        family = _family_of(site, families)
        if family is not None and family.role == "other_math":
            total += site.flops or family.flops_per_thread * site.threads
    return total


def _family_of(site: SiteCount, families: tuple[Family, ...]) -> Family | None:
    return next((family for family in families if family.matches_ptx(site.opcode)), None)
