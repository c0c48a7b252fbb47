"""Snippets in the documents that call themselves complete compile for the targets they are for."""

from __future__ import annotations

import re

import pytest

from ptxbench.build import find_toolchain
from ptxbench.build.sandbox import Limits
from ptxbench.core import Target
from ptxbench.prompts import load_parts

COMPLETE = re.compile(r"^```cuda complete(?: (?P<target>\w+))?\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
SNIPPETS = [
    pytest.param(match["text"], Target(match["target"] or "sm_90a"), id=f"{part.name}-{number}")
    for part in load_parts().values()
    for number, match in enumerate(COMPLETE.finditer(part.template))
]


def test_there_are_some() -> None:
    assert len(SNIPPETS) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(("text", "target"), SNIPPETS)
def test_complete_snippets_compile(text: str, target: Target) -> None:
    toolchain = find_toolchain()
    functions = re.findall(r"^__device__ void (\w+)\(", text, re.MULTILINE)
    called = [f"__device__ auto* volatile use_{name} = &{name};" for name in functions]  # so that ptxas sees them
    done = toolchain.sandbox.run(
        toolchain.nvcc(target),
        read_only=toolchain.mounts(),
        inputs={"unit.cu": "\n".join([text, *called, ""]).encode()},
        outputs=[],
        limits=Limits(),
    )
    assert functions
    assert done.returncode == 0, done.stderr.decode()
