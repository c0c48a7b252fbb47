"""Fused attention by Triton kernels: the variants, and how each is launched. Inputs and bounds are those of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import oracles_attention as attention
from oracles_expected import Oracle, of_problem
from oracles_run import Array
from oracles_triton import Descriptor, launch

from ptxbench.core import Dtype, Target, Workload
from ptxbench.tasks import Problem, get_task, make_problem


@dataclass(frozen=True)
class Attention:
    """Attention over ``heads`` of ``length`` by ``depth``; ``block`` is that of queries and of keys."""

    dtype: Dtype = "f16"
    block: tuple[int, int] = (128, 64)
    depth: int = 64
    length: int = 256
    heads: int = 2
    warps: int = 4
    stages: int = 2
    specialised: bool = False

    def problem(self, direction: str, *, causal: bool) -> Problem:
        """A task's problem with operands of this type."""
        task = get_task(f"mha_{direction}_d{self.depth}" + ("_causal" if causal else ""))
        arguments = tuple(
            argument if argument.dtype == "f32" else argument.model_copy(update={"dtype": self.dtype})
            for argument in task.arguments
        )
        task = task.model_copy(update={"arguments": arguments, "matrix_dtype": self.dtype})
        sizes = {"B": 1, "H": self.heads, "S": self.length, "D": self.depth}
        return make_problem(task, Workload(tier="small", sizes=sizes), "normal", 5)


FORWARD = {
    "d64": Attention(),
    "d128": Attention("bf16", (128, 128), 128, warps=8),
    "specialised": Attention(block=(64, 64), specialised=True),
}
BACKWARD = {"d64": Attention(block=(64, 128), heads=1), "d128": Attention("bf16", (64, 64), 128, heads=1)}


def forward(case: Attention, target: Target, *, causal: bool) -> Oracle:
    """One block of queries per program, by tensor copies."""
    rows, columns = case.block
    arguments: dict[str, Any] = {
        "q": Descriptor("in_q", (rows, case.depth)), "k": Descriptor("in_k", (columns, case.depth)),
        "v": Descriptor("in_v", (columns, case.depth)), "o": Descriptor("o", (rows, case.depth)), "lse": "lse",
    }  # fmt: skip
    constants = {"SPECIALISED": case.specialised}
    return _forward(attention.forward, case, target, arguments, constants, causal)


def forward_through_pointers(case: Attention, target: Target, *, causal: bool) -> Oracle:
    """The same without tensor copies."""
    arguments = {"q": "in_q", "k": "in_k", "v": "in_v", "o": "o", "lse": "lse"}
    return _forward(attention.forward_pointers, case, target, arguments, {}, causal)


def _forward(
    function: Any, case: Attention, target: Target, arguments: dict[str, Any], constants: dict[str, Any], causal: bool
) -> Oracle:
    problem = case.problem("fwd", causal=causal)
    flat = {f"in_{name.lower()}": array.reshape(-1, case.depth) for name, array in problem.inputs.items()}
    o, lse = np.zeros_like(flat["in_q"]), np.zeros((case.heads, case.length), np.float32)
    made = launch(
        function, {**arguments, "length": case.length, "scale": case.depth**-0.5},
        {**constants, "BM": case.block[0], "BN": case.block[1], "D": case.depth, "CAUSAL": causal},
        (case.length // case.block[0], case.heads, 1), {**flat, "o": o, "lse": lse}, target=target, warps=case.warps,
        stages=case.stages,
    )  # fmt: skip
    return Oracle(made, {"o": of_problem(problem, "O", o), "lse": of_problem(problem, "LSE", lse)})


def backward(case: Attention, target: Target, *, causal: bool) -> Oracle:
    """One block of keys per program; dQ in fp32, by atomics."""
    problem = case.problem("bwd", causal=causal)
    given = {name: array[0] for name, array in problem.inputs.items()}
    delta = (given["O"].astype(np.float32) * given["dO"].astype(np.float32)).sum(-1)
    inputs: dict[str, Array] = {f"in_{name.lower()}": given[name] for name in ("Q", "K", "V", "dO", "LSE")}
    inputs["in_delta"] = delta
    shape = given["Q"].shape
    outputs: dict[str, Array] = {
        "dq": np.zeros(shape, np.float32), "dk": np.zeros_like(given["Q"]), "dv": np.zeros_like(given["Q"]),
    }  # fmt: skip
    arguments = {name.removeprefix("in_"): name for name in (*inputs, *outputs)}
    made = launch(
        attention.backward, {**arguments, "length": case.length, "scale": case.depth**-0.5},
        {"BM": case.block[0], "BN": case.block[1], "D": case.depth, "CAUSAL": causal},
        (case.length // case.block[1], case.heads, 1), {**inputs, **outputs}, target=target, warps=case.warps,
        stages=case.stages,
    )  # fmt: skip
    return Oracle(made, {name: of_problem(problem, f"d{name[1].upper()}", array) for name, array in outputs.items()})
