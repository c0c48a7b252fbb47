from __future__ import annotations

import io
import re

from rich.console import Console

from ptxbench.core import (
    CorrectnessReport,
    FamilyReport,
    Hazard,
    InstructionReport,
    Interval,
    LibraryTime,
    Outcome,
    OutputReport,
    Remark,
    Target,
    TimingReport,
    Verdict,
    WorkloadReport,
)
from ptxbench.report import summary, summary_svg, verdict_page, verdict_view


def accepted() -> Verdict:
    output = OutputReport(ok=True, rms_ratio=1.02, max_ratio=1.1, worst_block_ratio=1.05, bad_share=0.0)
    return Verdict(
        outcome=Outcome.CORRECT_UNTIMED, reason="Right, and carried by wgmma.", task="gemm_n7168_k5120",
        target=Target.SM_90A, origin="right.cu", device={"name": "simulator"}, plan_digest="p", artifact_digest="a",
        correctness=CorrectnessReport(workloads=(
            WorkloadReport(sizes={"M": 256, "N": 128, "K": 1024}, tier="small", distribution="normal",
                           schedule="eager copies, eager products, forward", outputs={"C": output}),)),
        instructions=InstructionReport(
            families={"wgmma": FamilyReport(claimed=1, compiled=4, executed=4096, carried=1.0)}, other_math_share=0.0),
        hazards=(Hazard(severity="rule", kind="missing_async_proxy_fence", message="A TMA store reads a generic write.",
                        advice="Add fence.proxy.async.", source_line=42, occurrences=3),),
        versions={"nvcc": "13.0.88"},
    )  # fmt: skip


def refused() -> Verdict:
    return Verdict(
        outcome=Outcome.COMPILE_ERROR, reason="nvcc refused it.", task="gemm_n7168_k5120", target=Target.SM_90A,
        origin="<script>alert(1)</script>.cu", device={"name": "simulator"},
        remarks=(Remark(severity="error", line=7, message="expected a <b>;</b>"),),
    )  # fmt: skip


def timed() -> Verdict:
    timing = TimingReport(
        speedup=Interval(median=0.9268, low=0.9261, high=0.9274), baseline="flash_attention_4", ms=2.4657, tflops=669.0,
        speed_of_light=0.87, absent={"cudnn": "PyTorch was built without it"},
        libraries=(LibraryTime(name="flash_attention_4", version="4.0.0b36", ms=2.285, tflops=722.0),
                   LibraryTime(name="flash_attention_2", version="2.11", ms=4.603, tflops=358.0)),
    )  # fmt: skip
    return accepted().model_copy(update={"outcome": Outcome.PASSED, "timing": timing})


def test_every_library_that_was_timed_is_shown_and_why_others_were_not() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(verdict_view(timed()))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "0.927 × flash_attention_4 [0.926, 0.927], 87% of speed of light" in text
    assert re.search(r"this kernel +\S +\S +2\.4657 +\S +669", text)
    assert re.search(r"flash_attention_4 \(baseline\) +\S +4\.0\.0b36 +\S +2\.2850 +\S +722", text)
    assert "not timed: cudnn: PyTorch was built without it" in text
    page = verdict_page([timed()], title="Timed", made="today", command="x")
    assert "<td>flash_attention_4 (baseline)</td><td>4.0.0b36</td>" in page
    assert '<td>flash_attention_2</td><td>2.11</td><td class="n">4.6030</td><td class="n">358</td>' in page
    assert "Not timed: cudnn: PyTorch was built without it" in page


def test_the_page_is_self_contained_and_escapes_what_candidates_say() -> None:
    page = verdict_page([accepted(), refused()], title="Quick start", made="today", command="ptxbench quickstart")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;.cu" in page
    assert "expected a &lt;b&gt;;&lt;/b&gt;" in page
    assert "http" not in page
    assert "1 <code>correct_untimed</code>" in page
    assert "kernel.cu:42" in page
    assert "4096" in page


def test_the_page_of_nothing_is_a_page() -> None:
    assert "</html>" in verdict_page([], title="Empty", made="today", command="x")


def test_terminal_views_show_the_numbers() -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(summary([accepted(), refused()], width=160))
    console.print(verdict_view(accepted()))
    console.print(verdict_view(refused()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1/4/4096/1.00" in text
    assert "1.02" in text
    assert "kernel.cu:42: A TMA store reads a generic write. (3 times) Add fence.proxy.async." in text
    assert "kernel.cu:7: error: expected a <b>;</b>" in text


def test_a_narrow_summary_keeps_every_reason() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(summary([accepted(), refused()], width=80))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "right.cu: Right, and carried by wgmma. Findings: 1 rule." in text
    assert "nvcc refused it." in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_picture_is_self_contained_and_escapes_what_candidates_say() -> None:
    picture = summary_svg([accepted(), refused()], title="ptxbench quickstart")
    assert "@font-face" not in picture
    assert set(re.findall(r"https?://[^\"' )]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in picture
    assert picture == summary_svg([accepted(), refused()], title="ptxbench quickstart")
