"""What ptxas really makes of matrix instructions, and what is counted of it."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from ptxbench.build import compile_candidate, find_toolchain
from ptxbench.core import (
    Artifact,
    Block,
    Candidate,
    InstructionReport,
    KernelNode,
    LaunchPlan,
    SassInstruction,
    SiteCount,
    Target,
    families_of,
    matrix_family,
)
from ptxbench.judge import compiled_counts, confirmed_sites, instruction_gate, is_dummy, judge_instructions
from ptxbench.judge.instructions import operand_dtype
from ptxbench.judge.sass import ptx_shape, sass_shape
from ptxbench.native import Cache
from ptxbench.tasks import flops, get_task

SOURCE = (Path(__file__).parent / "wgmma_kernels.cu").read_text()
TASK = get_task("gemm_n7168_k5120")
WGMMA = matrix_family(Target.SM_90A)
SIZES = {"M": 128, "N": 128, "K": 1024}
WORK = flops(TASK, SIZES)
CANDIDATE = Candidate(
    task=TASK.name, target=Target.SM_90A, source=SOURCE, digest=hashlib.sha256(SOURCE.encode()).hexdigest()
)


@pytest.fixture(scope="module")
def artifact(shared_cache: Cache) -> Artifact:
    compiled = compile_candidate(CANDIDATE, TASK, toolchain=find_toolchain(), cache=shared_cache)
    assert isinstance(compiled, Artifact)
    return compiled


def plan(*kernels: str) -> LaunchPlan:
    nodes = tuple(
        KernelNode(kernel=kernel, grid=(1, 1, 1), block=(128, 1, 1), cluster=(1, 1, 1), dynamic_shared=0,
                   parameters=Block(data=b""))
        for kernel in kernels
    )  # fmt: skip
    return LaunchPlan(digest="p", artifact_digest="a", sizes=SIZES, buffers=(), nodes=nodes)


def sites(artifact: Artifact, kernel: str, work: int = WORK) -> list[SiteCount]:
    """Counts of a run in which the wgmma instructions in a kernel's PTX share ``work`` FLOPs equally."""
    body = artifact.ptx.split(f".entry {kernel}(")[1].split(".entry ")[0]
    opcodes = re.findall(r"wgmma\.mma_async\.\S+", body)
    return [
        SiteCount(kernel=kernel, opcode=opcode, executed=400, threads=12800, flops=work // len(opcodes),
                  operand_dtype="bf16", position=i)
        for i, opcode in enumerate(opcodes)
    ]  # fmt: skip


def report(artifact: Artifact, kernel: str, extra: Sequence[SiteCount] = ()) -> InstructionReport:
    counts = [*sites(artifact, kernel), *extra]
    return judge_instructions(TASK, CANDIDATE, artifact, plan(kernel), counts)


def test_ptxas_deletes_products_that_nobody_reads_and_leaves_dummies(artifact: Artifact) -> None:
    code = {k.kernel: [i for i in k.instructions if "GMMA" in i.opcode] for k in artifact.sass}
    assert code["lone_commit"] and all(is_dummy(i) for i in code["lone_commit"])
    assert code["dead"] and all(is_dummy(i) for i in code["dead"])
    assert code["live"] and not any(is_dummy(i) for i in code["live"])
    assert [is_dummy(i) for i in code["masked"]] == [False]


@pytest.mark.parametrize(("kernel", "count"), [("dead", 0), ("lone_commit", 0), ("half_dead", 1), ("masked", 1)])
def test_compiled_counts_leave_dummies_out(artifact: Artifact, kernel: str, count: int) -> None:
    assert compiled_counts(artifact.sass, [kernel], families_of(Target.SM_90A))["wgmma"] == count


def test_only_kernels_of_the_plan_are_counted(artifact: Artifact) -> None:
    families = families_of(Target.SM_90A)
    assert compiled_counts(artifact.sass, ["live"], families)["wgmma"] >= 1
    assert compiled_counts(artifact.sass, [], families)["wgmma"] == 0


def test_kept_products_are_confirmed_also_where_ptxas_unrolls(artifact: Artifact) -> None:
    counted = sites(artifact, "live")
    assert len(confirmed_sites(counted, artifact.sass, WGMMA)) == len(counted)
    assert report(artifact, "live").families["wgmma"].carried == pytest.approx(1, abs=0.01)


def test_deleted_products_are_never_counted(artifact: Artifact) -> None:
    found = report(artifact, "dead").families["wgmma"]
    assert found.claimed == 1 and (found.compiled, found.executed, found.carried) == (0, 0, 0)
    rejection = instruction_gate(report(artifact, "dead"), Target.SM_90A)
    assert rejection is not None and "although the source has" in rejection.reason
    assert "never read" in rejection.advice


def test_a_kernel_that_keeps_half_of_its_products_gets_half(artifact: Artifact) -> None:
    found = report(artifact, "half_dead")
    assert found.families["wgmma"].carried == pytest.approx(0.5)
    rejection = instruction_gate(found, Target.SM_90A)
    assert rejection is not None and "carried 50.0%" in rejection.reason


def test_of_unequal_survivors_the_least_is_credited(artifact: Artifact) -> None:
    first, second = sites(artifact, "half_dead")
    small, large = first.model_copy(update={"flops": 10}), second.model_copy(update={"flops": 1000})
    assert confirmed_sites([large, small], artifact.sass, WGMMA) == [small]


def test_products_that_are_kept_but_masked_are_left_to_the_perturbation(artifact: Artifact) -> None:
    found = report(artifact, "masked")
    assert instruction_gate(found, Target.SM_90A) is None
    knocked_out = found.model_copy(update={"perturbation_followed": 0.0})
    rejection = instruction_gate(knocked_out, Target.SM_90A)
    assert rejection is not None and "Only 0.0% of the output" in rejection.reason


def test_sites_that_never_ran_need_no_machine_code(artifact: Artifact) -> None:
    first, second = sites(artifact, "half_dead")
    idle = first.model_copy(update={"executed": 0, "threads": 0, "flops": 0})
    assert confirmed_sites([idle, second], artifact.sass, WGMMA) == [second]


def test_other_shapes_and_types_do_not_confirm(artifact: Artifact) -> None:
    live = sites(artifact, "live")[0]
    wide = live.model_copy(update={"opcode": live.opcode.replace("n8", "n16")})
    half = live.model_copy(update={"opcode": live.opcode.replace("bf16", "f16")})
    assert confirmed_sites([wide, half], artifact.sass, WGMMA) == []


def test_operands_of_another_type_do_not_carry_a_bf16_task(artifact: Artifact) -> None:
    counts = [s.model_copy(update={"operand_dtype": "f16"}) for s in sites(artifact, "live")]
    found = judge_instructions(TASK, CANDIDATE, artifact, plan("live"), counts)
    assert found.families["wgmma"].carried == 0
    assert found.other_math_share == pytest.approx(1.0)


def test_moves_and_sums_by_the_integer_multiplier_are_no_products() -> None:
    integer = next(family for family in families_of(Target.SM_90A) if family.name == "integer_fma")
    products = ("IMAD", "IMAD.WIDE", "IMAD.WIDE.U32", "IMAD.HI.U32", "UIMAD", "UIMAD.WIDE")
    others = ("IMAD.MOV.U32", "IMAD.IADD", "IMAD.SHL.U32", "IMAD.X", "IMAD.U32", "UIMAD.SHL", "IADD3", "VIMNMX")
    assert all(integer.matches_sass(opcode) for opcode in products)
    assert not any(integer.matches_sass(opcode) for opcode in others)


@pytest.mark.parametrize(
    ("opcode", "share"),
    [("HGMMA.64x8x16.F32.TF32", 1.0), ("HGMMA.64x8x16.F32", 1.0), ("QGMMA.64x8x32.F32.E4M3.E4M3", 1.0),
     ("HGMMA.64x8x16.F32.BF16", 0.0)],
)  # fmt: skip
def test_products_of_another_type_are_other_arithmetic_on_hardware_too(
    artifact: Artifact, opcode: str, share: float
) -> None:
    product = SiteCount(kernel="live", opcode=opcode, executed=8, threads=256, flops=WORK)
    found = judge_instructions(TASK, CANDIDATE, artifact, plan("live"), [product])
    assert found.other_math_share == pytest.approx(share)
    assert found.families["wgmma"].carried == pytest.approx(1.0 - share)


def test_other_arithmetic_is_measured_in_flops(artifact: Artifact) -> None:
    scalar = SiteCount(kernel="live", opcode="fma.rn.f32", executed=1, threads=WORK // 40)
    older = SiteCount(
        kernel="live", opcode="mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", executed=1, threads=32,
        flops=WORK // 2,
    )  # fmt: skip
    integer = SiteCount(kernel="live", opcode="mad.lo.s32", executed=1, threads=WORK // 100)
    little = report(artifact, "live", [scalar, integer])
    assert little.other_math_share == pytest.approx(0.07, abs=1e-4)
    assert instruction_gate(little, Target.SM_90A) is None
    much = report(artifact, "live", [scalar, older])
    assert much.other_math_share == pytest.approx(0.55, abs=1e-4)
    rejection = instruction_gate(much, Target.SM_90A)
    assert rejection is not None and "Other arithmetic amounts to 55.0%" in rejection.reason


def test_copies_report_the_share_of_the_input_they_moved(artifact: Artifact) -> None:
    load = SiteCount(
        kernel="live", opcode="cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
        executed=4, threads=4, bytes=2 * 128 * 1024,
    )  # fmt: skip
    assert report(artifact, "live", [load]).families["tma_load"].carried == pytest.approx(0.5)


def test_hardware_counts_use_the_same_definition(artifact: Artifact) -> None:
    product = SiteCount(kernel="live", opcode="HGMMA.64x8x16.F32.BF16", executed=8, threads=256, flops=WORK)
    dummy = SiteCount(kernel="live", opcode="HGMMA.64x8x16.F16", executed=5, threads=160)
    scalar = SiteCount(kernel="live", opcode="FFMA", executed=1, threads=10, flops=20)
    found = judge_instructions(TASK, CANDIDATE, artifact, plan("live"), [product, dummy, scalar])
    assert (found.families["wgmma"].executed, found.families["wgmma"].carried) == (8, 1.0)
    assert found.other_math_share == pytest.approx(20 / WORK)
    assert found.source == "hardware counters"


def test_hardware_counts_tell_the_operand_type() -> None:
    opcodes = {"HGMMA.64x64x16.F32.BF16": "bf16", "HGMMA.64x64x16.F32": "f16", "HGMMA.64x64x16.F16": "f16",
               "HGMMA.64x64x8.F32.TF32": "tf32", "QGMMA.64x64x32.F32.E4M3.E4M3": "fp8", "UTCHMMA": ""}  # fmt: skip
    for opcode, dtype in opcodes.items():
        assert operand_dtype(SiteCount(kernel="k", opcode=opcode, executed=1, threads=1)) == dtype


def test_shapes_are_read_from_both_spellings() -> None:
    assert ptx_shape("wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16") == ((64, 256, 32), True)
    assert sass_shape("HGMMA.SP.64x256x32.F32.BF16") == ((64, 256, 32), True)
    assert ptx_shape("tcgen05.mma.cta_group::1.kind::f16") == sass_shape("UTCHMMA") == ((), False)


def test_a_product_with_operands_in_registers_is_real() -> None:
    from_registers = SassInstruction(offset=0, opcode="HGMMA.64x64x16.F32.BF16", operands="R24, R4, gdesc[UR8], R24")
    assert not is_dummy(from_registers)
