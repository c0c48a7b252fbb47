"""Tier 2: claimed, compiled, executed, carried, from counts per PTX instruction (simulator) or per SASS instruction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ptxbench.core import (
    Artifact,
    Candidate,
    Family,
    FamilyReport,
    InstructionReport,
    LaunchPlan,
    SiteCount,
    Target,
    Task,
    families_of,
    matrix_family,
    sizes_text,
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

# First match wins: f16 operands have no suffix of their own. fp8 stands for all types of eight bits and fewer.
_SASS_OPERANDS = {
    r"HGMMA\..*\.BF16": "bf16",
    r"HGMMA\..*\.TF32": "tf32",
    r"HGMMA\.": "f16",
    r"QGMMA\.|UTC[QO]MMA": "fp8",
    r"IGMMA\.|UTCIMMA": "s8",
    r"BGMMA\.": "b1",
}


def judge_instructions(
    task: Task,
    candidate: Candidate,
    artifact: Artifact,
    plan: LaunchPlan,
    counts: Sequence[SiteCount],
    perturbation_followed: float | None = None,
) -> InstructionReport:
    """The four numbers per family of the target, from one run of ``plan`` in mode COUNT.

    ``counts`` has a record per PTX instruction (simulator) or SASS instruction (hardware counters). Families of which
    nothing was claimed, compiled or executed are left out, the matrix family never. ``carried`` is a share of the
    task's FLOPs for the matrix family (only operands of the task's matrix dtype, and only what the machine code
    confirms); of the input bytes for bulk loads and of the output bytes for bulk stores (more than 1 where tiles move
    repeatedly; None from hardware counters, which do not see sizes); None for the rest.
    """
    families = families_of(candidate.target)
    matrix = matrix_family(candidate.target)
    claimed = claimed_counts(candidate.source, artifact.ptx, families)
    compiled = compiled_counts(artifact.sass, plan.kernels(), families)
    on_hardware = any(_is_sass(site) for site in counts)
    sites = _by_family(counts, families)
    if on_hardware:
        if matrix.unit == "warp":  # the device gives a dummy product no FLOPs
            sites[matrix.name] = [site for site in sites[matrix.name] if site.flops]
    else:
        sites[matrix.name] = confirmed_sites(sites[matrix.name], artifact.sass, matrix)
    work = flops(task, plan.sizes)
    # Products of another type could have made the result as well as any other arithmetic.
    foreign = sum(s.flops for s in sites[matrix.name] if operand_dtype(s) not in (task.matrix_dtype, ""))

    def carried(family: Family) -> float | None:
        own = sites[family.name]
        if family is matrix:
            return sum(s.flops for s in own if operand_dtype(s) == task.matrix_dtype) / work
        if family.role == "bulk_copy" and not on_hardware:
            whole = output_bytes if family.name == "tma_store" else input_bytes
            return sum(s.bytes for s in own) / whole(task, plan.sizes)
        return None

    reports = {
        family.name: FamilyReport(
            claimed=claimed[family.name],
            compiled=compiled[family.name],
            executed=sum(site.executed for site in sites[family.name]),
            carried=carried(family),
        )
        for family in families
    }
    return InstructionReport(
        families={
            name: report for name, report in reports.items()
            if name == matrix.name or report.claimed or report.compiled or report.executed
        },
        other_math_share=(foreign + sum(_other_math_flops(family, sites[family.name]) for family in families)) / work,
        perturbation_followed=perturbation_followed,
        sizes=dict(plan.sizes),
        source="hardware counters" if on_hardware else "simulator, PTX instructions that the machine code confirms",
    )


def with_simulated(
    seen: InstructionReport | None, simulated: InstructionReport | None, target: Target
) -> InstructionReport | None:
    """A report from hardware counters with what only the simulator can tell.

    That is the knock-out, and for ``tcgen05``, whose shapes the machine code does not show, the share of the task's
    work. Without a report from hardware, the simulator's.
    """
    if seen is None or simulated is None:
        return seen or simulated
    matrix = matrix_family(target)
    report = seen.model_copy(update={"perturbation_followed": simulated.perturbation_followed})
    if matrix.unit == "warp":
        return report
    own = seen.families[matrix.name].model_copy(update={"carried": simulated.families[matrix.name].carried})
    return report.model_copy(update={
        "families": {**seen.families, matrix.name: own},
        "source": f"{seen.source}; shapes of {matrix.name} from the simulator at {sizes_text(simulated.sizes)}",
    })  # fmt: skip


def _other_math_flops(family: Family, sites: Iterable[SiteCount]) -> float:
    """FLOPs of arithmetic that could have made the result another way: as the site reports, else per active thread."""
    if family.role != "other_math":
        return 0.0
    return sum(site.flops or family.flops_per_thread * site.threads for site in sites)


def _by_family(counts: Iterable[SiteCount], families: tuple[Family, ...]) -> dict[str, list[SiteCount]]:
    """Sites per family name; the first row that matches an opcode has it."""
    sites: dict[str, list[SiteCount]] = {family.name: [] for family in families}
    for site in counts:
        matches = Family.matches_sass if _is_sass(site) else Family.matches_ptx
        family = next((family for family in families if matches(family, site.opcode)), None)
        if family is not None:
            sites[family.name].append(site)
    return sites


def _is_sass(site: SiteCount) -> bool:
    """PTX opcodes are lower case, SASS opcodes upper case."""
    return site.opcode[:1].isupper()


def operand_dtype(site: SiteCount) -> str:
    """The operand type of a matrix instruction, as the device read it.

    Hardware counters leave it to the opcode; empty where that does not tell (``UTCHMMA``).
    """
    if site.operand_dtype or not _is_sass(site):
        return site.operand_dtype
    return next((dtype for opcode, dtype in _SASS_OPERANDS.items() if re.match(opcode, site.opcode)), "")
