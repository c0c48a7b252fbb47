"""From CUPTI's rows to counts per site, and the parent's timing arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.core import Artifact, DeviceError, KernelFacts, KernelSass, SassInstruction, Target, ToolchainError
from ptxbench.devices.cuda.counters import Row, counters_library, flops_of, site_counts

SASS = (
    SassInstruction(offset=0x00, opcode="S2R", operands="R0, SR_TID.X"),
    SassInstruction(
        offset=0x10, opcode="HGMMA.64x128x16.F32.BF16", operands="R24, gdesc[UR4], R24", frames=(("c.cu", 9),)
    ),
    SassInstruction(offset=0x20, opcode="HGMMA.64x8x16.F32", operands="RZ, gdesc[URZ], RZ"),
    SassInstruction(offset=0x30, opcode="FFMA", operands="R1, R2, R3, R4"),
    SassInstruction(offset=0x40, opcode="EXIT", operands=""),
)


def artifact() -> Artifact:
    return Artifact(
        digest="d", source_digest="s", target=Target.SM_90A, ptx="", cubin=b"", host_library=b"",
        kernels=(KernelFacts(name="k", parameters=(), registers=64, static_shared=0, local=0),),
        sass=(KernelSass(kernel="k", instructions=SASS),), remarks=(), versions={},
    )


def test_launches_add_up_and_sites_that_never_ran_are_left_out() -> None:
    rows = [
        Row(kernel="k", offset=0x10, warps=4096, threads=131072),
        Row(kernel="k", offset=0x10, warps=4, threads=128),
        Row(kernel="k", offset=0x40, warps=0, threads=0),
    ]
    (site,) = site_counts(artifact(), rows)
    assert (site.kernel, site.opcode, site.executed, site.threads, site.position) == (
        "k", "HGMMA.64x128x16.F32.BF16", 4100, 131200, 0x10
    )
    assert site.frames == (("c.cu", 9),)
    assert site.flops == 2 * 64 * 128 * 16 * 4100 // 4


def test_an_address_of_another_binary_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match=r"k\+0x18"):
        site_counts(artifact(), [Row(kernel="k", offset=0x18, warps=1, threads=1)])


@pytest.mark.parametrize(("opcode", "operands", "warps", "threads", "flops"), [
    # A 1024x1024x1024 product in 64x64x16 pieces: 65,536 issues by warps (seen on an H200) are exactly 2MNK.
    ("HGMMA.64x64x16.F32.BF16", "R24, gdesc[UR4], R24", 65536, 0, 2 * 1024**3),
    ("QGMMA.64x256x32.F32.E4M3.E4M3", "R24, gdesc[UR4], R24", 4, 128, 2 * 64 * 256 * 32),
    ("HGMMA.64x8x16.F32", "RZ, gdesc[URZ], RZ", 8, 256, 0),
    ("HMMA.16816.F32.BF16", "R4, R8, R12, R4", 10, 320, 10 * 2 * 16 * 8 * 16),
    ("IMMA.16832.S8.S8", "R4, R8, R12, R4", 1, 32, 2 * 16 * 8 * 32),
    ("FFMA", "R1, R2, R3, R4", 2, 50, 100),
    ("FADD.FTZ", "R1, R2, R3", 2, 50, 50),
    ("HFMA2.MMA", "R5, -RZ, RZ, 0, 5.9604644775390625e-08", 2, 64, 0),
    ("HFMA2.BF16_V2", "R5, R6, R7, R8", 2, 64, 256),
    ("UTMALDG.2D", "[UR8], [UR4]", 1, 1, 0),
    ("IMAD", "R1, R2, R3, R4", 2, 64, 128),
    ("IMAD.MOV.U32", "R1, RZ, RZ, R4", 2, 64, 0),
])
def test_flops_come_from_the_opcode(opcode: str, operands: str, warps: int, threads: int, flops: int) -> None:
    one = SassInstruction(offset=0, opcode=opcode, operands=operands)
    assert flops_of(Target.SM_90A, one, warps, threads) == flops


def test_missing_headers_are_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"cupti_sass_metrics\.h"):
        counters_library(roots=[tmp_path])
