"""Small data sets, written as `ptxbench data build` writes them."""

from __future__ import annotations

from pathlib import Path

from ptxbench.adapt import Message, Provenance, Recipe, Row, write_data_set
from ptxbench.adapt.data.build import Built
from ptxbench.core import Target

FAMILIES = ("gemm_f16", "mha_fwd_d64", "gemm_bias_gelu")
HELD_OUT = "gemm_bias_gelu"


def kernel(number: int) -> str:
    return f"""```cuda
#include <cuda_bf16.h>
__global__ void scale_{number}(float* x) {{ x[threadIdx.x] *= {number}.0f; }}
extern "C" int launch(float* x, cudaStream_t stream) {{
    scale_{number}<<<1, {32 * (number + 1)}, 0, stream>>>(x);
    return 0;
}}
```
"""


def row(kind: str, number: int, *, reasoning: str = "field", long: int = 0) -> Row:
    family = FAMILIES[number % 3]
    thought = f"Scale by {number}: one block of {32 * (number + 1)} threads."
    asked = (
        Message(role="system", content="You write CUDA kernels."),
        Message(role="user", content=f"Task {family}, number {number}." + " more" * long),
    )
    code = kernel(number)
    answer = Message(role="assistant", content=code, reasoning_content=thought)
    if reasoning == "inline":
        answer = Message(role="assistant", content=f"{thought}\n\n{code}")
    told = (
        Message(role="assistant", content=kernel(number + 1)),
        Message(role="user", content="wrong_result: every element differs."),
    )
    conversation = {"messages": (*asked, answer)} if kind == "expert" else {
        "prompt": (*asked, *told), "completion": (answer,), "failure": "wrong_result", "fault": "wrong_scale"
    }  # fmt: skip
    return Row.model_validate({
        "kind": kind, "task": family, "task_family": family, "target": Target.SM_90A, "kernel_family": "scale",
        "techniques": ("wgmma",), "condition": "bare", "sizes": {"M": 1}, "tokens": 100,
        "split": "validation" if family == HELD_OUT else "train",
        "provenance": Provenance(origin=f"scale_{number}", good=f"{number:064x}"), **conversation,
    })  # fmt: skip


def write(folder: Path, kind: str, count: int = 9, *, reasoning: str = "field", long: int = 0) -> Path:
    rows = [row(kind, number, reasoning=reasoning, long=long if number == 0 else 0) for number in range(count)]
    recipe = Recipe.model_validate({"name": kind, "kind": kind})
    write_data_set(Built(recipe=recipe, rows=rows, dropped=()), folder)
    return folder


RECIPE = """
kind = "supervised"
name = "{name}"
max_tokens = {max_tokens}
[model]
base = "nowhere"
architecture = "{architecture}"
[lora]
rank = 4
alpha = 8
targets = {targets}
[[data]]
name = "expert"
path = "{folder}/expert"
loss = "assistant"
[[data]]
name = "repair"
path = "{folder}/repair"
loss = "completion"
[[phases]]
name = "write"
share = {{ expert = 1.0 }}
[[phases]]
name = "repair"
epochs = 2
share = {{ expert = 0.5, repair = 1.0 }}
[optimizer]
learning_rate = 5e-3
"""


def recipe_file(folder: Path, *, architecture: str = "qwen3_5", max_tokens: int = 2048, more: str = "") -> Path:
    targets = '["q_proj", "in_proj_qkv", "out_proj", "down_proj"]' if architecture == "qwen3_5" else '["q_proj"]'
    path = folder / "recipe.toml"
    path.write_text(
        RECIPE.format(name="test", max_tokens=max_tokens, architecture=architecture, targets=targets, folder=folder)
        + more
    )
    return path
