"""Everything that nvcc makes of the corpus lowers, and the machine has a handler for all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator_nvcc import HERE, compile_ptx

from ptxbench.core import Target
from ptxbench.simulator import load, lower, ptx
from ptxbench.solutions import include_dir

GEMMS = include_dir().parent / "gemm"
CORPUS = [
    (HERE / "corpus_scalar.cu", Target.SM_90A, ()),
    (HERE / "corpus_scalar.cu", Target.SM_90A, ("-use_fast_math",)),
    (HERE / "corpus_scalar.cu", Target.SM_100A, ()),
    (GEMMS / "sm_90a" / "04_large_tile_tma_store.cu", Target.SM_90A, ()),
    (GEMMS / "sm_100a" / "02_persistent.cu", Target.SM_100A, ()),
]


def kernels_of(module: ptx.Module) -> list[str]:
    return [item.name for item in module.items if isinstance(item, ptx.Function) and item.kind == "entry"]


@pytest.mark.parametrize(("source", "target", "options"), CORPUS, ids=lambda value: getattr(value, "stem", None))
def test_corpus_loads(source: Path, target: Target, options: tuple[str, ...], tmp_path: Path) -> None:
    text = compile_ptx(source, target, tmp_path, "-I", str(include_dir()), *options)
    module = ptx.parse(text)
    names = kernels_of(module)
    image = lower.lower(module, names)
    assert load(text, names).image == image
    assert len({(kernel.name, i.ptx_line, i.op) for kernel in image.kernels for i in kernel.code}) > 50


def test_frames_point_into_the_source(tmp_path: Path) -> None:
    source = HERE / "corpus_scalar.cu"
    module = ptx.parse(compile_ptx(source, Target.SM_90A, tmp_path))
    lines = source.read_text().split("\n")
    (kernel,) = lower.lower(module, ["floats"]).kernels
    first = next(number for number, line in enumerate(lines, 1) if "__global__ void floats" in line)
    last = lines.index("}", first) + 1
    for instruction in kernel.code:
        file, line = instruction.frames[-1]
        assert file.endswith("corpus_scalar.cu")
        assert first <= line <= last
    assert any(len(instruction.frames) > 1 for instruction in kernel.code)
    (calls,) = lower.lower(module, ["calls"]).kernels
    assert any(len(i.frames) == 2 for i in calls.code)
