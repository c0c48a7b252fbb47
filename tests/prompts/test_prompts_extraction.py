"""Kernels taken out of replies: every style that models write, and every way in which there is none."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.prompts import ExtractionOutcome, extract_kernel

Is = ExtractionOutcome

LAUNCH = 'extern "C" int launch(const float* A, float* C, int M, void* workspace, cudaStream_t stream) {\n'
KERNEL = (
    "#include <cuda.h>\n\n__global__ void kernel(const float* a, float* c) { c[threadIdx.x] = a[threadIdx.x]; }\n\n"
    + LAUNCH
    + "    kernel<<<1, 32, 0, stream>>>(A, C);\n    return 0;\n}\n"
)
OTHER = KERNEL.replace("<<<1,", "<<<2,")
SNIPPET = "asm volatile(\"wgmma.fence.sync.aligned;\");\n"
CUT = KERNEL[: KERNEL.index("return")]


def fenced(text: str, info: str = "cuda", mark: str = "```") -> str:
    return f"{mark}{info}\n{text}{mark}\n"


COMPLETE = {
    "cuda": (fenced(KERNEL), KERNEL),
    "cpp": (fenced(KERNEL, "cpp"), KERNEL),
    "no language": (fenced(KERNEL, ""), KERNEL),
    "language with attributes": (fenced(KERNEL, 'cuda title="kernel.cu" {1-3}'), KERNEL),
    "tildes": (fenced(KERNEL, "cuda", "~~~"), KERNEL),
    "long fence": (fenced(KERNEL, "cuda", "`````"), KERNEL),
    "upper case": (fenced(KERNEL, "CUDA"), KERNEL),
    "prose around": (f"Here it is:\n\n{fenced(KERNEL)}\nIt uses one warp.\n", KERNEL),
    "last of two": (fenced(OTHER) + "Better:\n" + fenced(KERNEL), KERNEL),
    "snippet behind": (fenced(KERNEL) + "The key line:\n" + fenced(SNIPPET), KERNEL),
    "snippet before": (fenced(SNIPPET) + fenced(KERNEL), KERNEL),
    "shell behind": (fenced(KERNEL) + fenced("nvcc -arch=sm_90a kernel.cu\n", "bash"), KERNEL),
    "call is no definition": (fenced(KERNEL) + fenced("int main() { return launch(a, c, 1, w, s); }\n"), KERNEL),
    "thought with code": (f"<think>Try\n{fenced(OTHER)}no.</think>\n{fenced(KERNEL)}", KERNEL),
    "thought with an open fence": (f"<think>Try\n```cuda\n{OTHER}</think>\n{fenced(KERNEL)}", KERNEL),
    "thought without its beginning": (f"Let me see.\n{fenced(OTHER)}</think>\n{fenced(KERNEL)}", KERNEL),
    "reasoning tag": (f"<reasoning>{fenced(OTHER)}</reasoning>{fenced(KERNEL)}", KERNEL),
    "two thoughts": (f"<think>a</think>{fenced(KERNEL)}<think>{fenced(OTHER)}</think>", KERNEL),
    "wrapped in Markdown": (fenced(f"# Answer\n{fenced(KERNEL)}", "markdown", "````"), KERNEL),
    "wrapped in equal Markdown": (f"```markdown\n# Answer\n{fenced(KERNEL)}```\nDone.\n", KERNEL),
    "started afresh": (f"```cuda\n{CUT}```cuda\n{KERNEL}```\n", KERNEL),
    "only the closing fence is missing": (f"```cuda\n{KERNEL}", KERNEL),
    "in a list": ("1. The file:\n   ```cuda\n" + KERNEL + "   ```\n", KERNEL),
    "a fence in a comment": (fenced("// use ``` here\n" + KERNEL), "// use ``` here\n" + KERNEL),
    "carriage returns": (fenced(KERNEL).replace("\n", "\r\n"), KERNEL.replace("\n", "\r\n")),
    "wrong signature": (fenced(KERNEL.replace("extern \"C\" int", "void")), KERNEL.replace("extern \"C\" int", "void")),
    "a later one is cut off": (fenced(KERNEL) + "Or:\n```cuda\n" + CUT, KERNEL),
}


@pytest.mark.parametrize(("reply", "source"), COMPLETE.values(), ids=COMPLETE.keys())
def test_complete_files_in_fences(reply: str, source: str) -> None:
    found = extract_kernel(reply)
    assert (found.outcome, found.source) == (Is.FENCED, source)
    assert found.usable


def test_a_cut_second_answer_is_mentioned() -> None:
    assert "cut off" in extract_kernel(COMPLETE["a later one is cut off"][0]).note
    assert extract_kernel(COMPLETE["wrapped in equal Markdown"][0]).note == ""
    assert extract_kernel(fenced(KERNEL)).note == ""


UNFENCED = {
    "whole reply": KERNEL,
    "prose around": f"Here is the kernel:\n\n{KERNEL}\nThis should be fast.\n",
    "indented": "The file:\n\n" + "".join(f"    {line}\n" for line in KERNEL.splitlines()) + "\nDone.\n",
    "behind a thought": f"<think>{fenced(OTHER)}</think>\n{KERNEL}",
}


@pytest.mark.parametrize("reply", UNFENCED.values(), ids=UNFENCED.keys())
def test_complete_files_without_fences(reply: str) -> None:
    found = extract_kernel(reply)
    assert found.outcome is Is.UNFENCED
    assert found.usable
    assert [line.strip() for line in found.source.split("\n")] == [line.strip() for line in KERNEL.split("\n")]


NONE = {
    "empty": ("", Is.EMPTY),
    "blank": (" \n\t\n", Is.EMPTY),
    "empty thought": ("<think></think>\n", Is.EMPTY),
    "empty block": ("```cuda\n```\n", Is.PROSE),
    "prose": ("I would use a ring of stages and launch(...) with wgmma.", Is.PROSE),
    "prose with an apostrophe": ("It's simple: don't wait.", Is.PROSE),
    "refusal": ("I'm sorry, but I can't help with that.", Is.REFUSAL),
    "another refusal": ("I cannot write this kernel, because it is too complex.", Is.REFUSAL),
    "unfinished thought": ("<think>First the descriptors, then", Is.UNFINISHED_THOUGHT),
    "unfinished thought with code": (f"<think>Perhaps\n{fenced(KERNEL)}and then", Is.UNFINISHED_THOUGHT),
    "cut off in a fence": (f"Here:\n```cuda\n{CUT}", Is.TRUNCATED),
    "cut off before launch": (f"```cuda\n{KERNEL[:90]}", Is.TRUNCATED),
    "cut off without a fence": (CUT, Is.TRUNCATED),
    "no launch": (fenced("__global__ void kernel() {}\n"), Is.NO_LAUNCH),
    "only declared": (fenced('extern "C" int launch(const float* A);\n'), Is.NO_LAUNCH),
    "only in a comment": (fenced("// int launch(int a) {\n"), Is.NO_LAUNCH),
    "only in a string": (fenced('const char* text = "int launch(int a) {";\n'), Is.NO_LAUNCH),
    "diff": (fenced("--- a/kernel.cu\n+++ b/kernel.cu\n@@ -1,2 +1,2 @@\n-int a;\n+int b;\n", "diff"), Is.PARTIAL_EDIT),
    "diff in a cuda block": (fenced("@@ -10,3 +10,3 @@\n-  wait();\n+  wait2();\n"), Is.PARTIAL_EDIT),
    "search and replace": ("<<<<<<< SEARCH\nint a;\n=======\nint b;\n>>>>>>> REPLACE\n", Is.PARTIAL_EDIT),
    "parts left out": (fenced(f"// ... existing kernels unchanged ...\n{LAUNCH}  return 0;\n}}\n"), Is.PARTIAL_EDIT),
    "rest of the file": (fenced(f"{LAUNCH}  return 0;\n}}\n// rest of the file is the same\n"), Is.PARTIAL_EDIT),
    "several files": (fenced("__global__ void kernel() {}\n") + fenced(LAUNCH + "  return 0;\n}\n"), Is.SPLIT),
}


@pytest.mark.parametrize(("reply", "outcome"), NONE.values(), ids=NONE.keys())
def test_every_way_to_have_no_kernel_has_a_name(reply: str, outcome: ExtractionOutcome) -> None:
    found = extract_kernel(reply)
    assert found.outcome is outcome
    assert not found.usable
    assert found.note.endswith(".")


def test_the_nearest_piece_is_kept_where_there_is_one() -> None:
    assert extract_kernel(NONE["cut off in a fence"][0]).source == CUT
    assert extract_kernel(NONE["no launch"][0]).source == "__global__ void kernel() {}\n"
    assert extract_kernel(NONE["prose"][0]).source == ""


def test_a_complete_file_wins_over_an_edit() -> None:
    edit = fenced("@@ -1 +1 @@\n-a\n+b\n", "diff")
    assert extract_kernel(fenced(KERNEL) + edit).source == KERNEL
    assert extract_kernel(edit + fenced(KERNEL)).source == KERNEL


PIECES = st.sampled_from(
    ["```", "~~~", "````", "```cuda\n", "\n", "\r\n", "<think>", "</think>", "<reasoning>", KERNEL, CUT, LAUNCH,
     SNIPPET, "text ", "'", '"', "/*", "*/", "//", "{", "}", "R\"(", ")\"",
     "@@ -1 +1 @@\n", "    ", "\\", "…", "markdown\n"]
)  # fmt: skip


PROSE = st.text(alphabet=st.characters(exclude_characters="`~<"))


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(PIECES, max_size=14).map("".join)))
def test_any_reply_has_an_outcome_and_its_source_is_a_piece_of_it(reply: str) -> None:
    found = extract_kernel(reply)
    assert found.source in reply
    assert bool(found.source) or not found.usable
    assert (found.note == "") <= (found.outcome is Is.FENCED)
    assert extract_kernel(reply) == found


@settings(max_examples=100, deadline=None)
@given(before=PROSE, after=PROSE)
def test_text_around_a_block_does_not_matter(before: str, after: str) -> None:
    found = extract_kernel(f"{before}\n{fenced(KERNEL)}\n{after}")
    assert (found.outcome, found.source) == (Is.FENCED, KERNEL)


LONG = ["```", "```\n", "<think>", "launch(", "int launch(", "/*", '"', "'", "// ... ", "{", "a ", "@@ ", 'R"(']


@pytest.mark.parametrize("piece", LONG)
def test_long_replies_take_no_longer_than_they_are_long(piece: str) -> None:
    started = time.monotonic()
    extract_kernel(piece * (400_000 // len(piece)))
    assert time.monotonic() - started < 5
