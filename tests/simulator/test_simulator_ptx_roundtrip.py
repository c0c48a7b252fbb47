"""The parser's invariant over a corpus that nvcc makes now: parse, emit, parse is a fixed point; ptxas accepts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator_nvcc import HERE, assemble, compile_ptx

from ptxbench.core import Target
from ptxbench.simulator import ptx
from ptxbench.solutions import include_dir

GEMMS = include_dir().parent / "gemm"
CORPUS = [
    (HERE / "corpus_scalar.cu", Target.SM_90A, ()),
    (HERE / "corpus_scalar.cu", Target.SM_100A, ("-use_fast_math",)),
    (GEMMS / "sm_90a" / "05_cluster_multicast.cu", Target.SM_90A, ()),
    (GEMMS / "sm_100a" / "02_persistent.cu", Target.SM_100A, ()),
]


@pytest.fixture(scope="module", params=CORPUS, ids=lambda row: f"{row[0].stem}-{row[1]}")
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Target, Path]:
    source, target, options = request.param
    folder = tmp_path_factory.mktemp("ptx")
    return compile_ptx(source, target, folder, "-I", str(include_dir()), *options), target, folder


def test_parse_emit_parse_is_a_fixed_point_and_assembles(sample: tuple[str, Target, Path]) -> None:
    text, target, folder = sample
    module = ptx.parse(text)
    emitted = ptx.emit(module)
    assert ptx.parse(emitted) == module
    assert ptx.emit(ptx.parse(emitted)) == emitted
    assemble(emitted, target, folder)


def test_lines_are_those_of_the_text(sample: tuple[str, Target, Path]) -> None:
    text = sample[0]
    lines = text.split("\n")
    for function in ptx.parse(text).items:
        if isinstance(function, ptx.Function):
            for instruction in instructions(function.body or ()):
                assert instruction.opcode in lines[instruction.line - 1]


def instructions(body: tuple[ptx.Statement, ...]) -> list[ptx.Instruction]:
    found: list[ptx.Instruction] = []
    for statement in body:
        if isinstance(statement, ptx.Scope):
            found += instructions(statement.body)
        elif isinstance(statement, ptx.Instruction):
            found.append(statement)
    return found
