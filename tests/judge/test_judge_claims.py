from ptxbench.core import Target, families_of
from ptxbench.judge import claimed_counts, claimed_opcodes

FAMILIES = families_of(Target.SM_90A)


def claims(source: str, ptx: str = "") -> dict[str, int]:
    return {name: count for name, count in claimed_counts(source, ptx, FAMILIES).items() if count}


def test_opcodes_in_asm_strings_are_claims() -> None:
    source = r"""
        asm volatile("{\n\t.reg .pred p;\n\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1}, %2;\n}" : : );
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(a));
    """
    assert claims(source) == {"wgmma": 1, "mbarrier": 1}


def test_comments_and_code_claim_nothing() -> None:
    source = r"""
        // asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16");
        /* "wgmma.mma_async.sync" */
        const char* url = "https://example.org/x"; // "fma.rn.f32"
        auto x = wgmma.mma_async.sync;
    """
    assert claims(source) == {}


def test_adjacent_literals_are_one_text() -> None:
    source = 'asm("wgmma.mma_async.sync.aligned."\n   // the shape\n   "m64n256k16.f32.bf16.bf16 {%0}");'
    assert claimed_opcodes(source) == ["wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"]


def test_raw_strings_quotes_and_character_literals() -> None:
    source = r'''char q = '"'; const char* s = "say \"hi\""; asm(R"ptx(
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];
        fma.rn.f32 %f1, %f2, %f3, %f4;)ptx");'''
    assert claims(source) == {"tma_load": 1, "f32_fma": 1}


def test_registers_and_directives_are_no_opcodes() -> None:
    assert claimed_opcodes('asm("mov.u32 %r1, %tid.x; .reg .b32 r;");') == ["mov.u32"]


def test_instructions_of_a_header_are_claimed_through_the_ptx() -> None:
    ptx = """
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, 1, 1, 1, 0, 0;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %rd3, %rd4, 1, 1, 1, 0, 0;
        fma.rn.f32 %f5, %f6, %f7, %f8;
    """
    assert claims("#include <ptxbench/ptx/wgmma.cuh>", ptx) == {"wgmma": 2}
    assert claims('asm("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16");', ptx) == {"wgmma": 1}
