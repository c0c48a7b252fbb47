"""What the templates may say of a task and its target: derived from the task's row and the data sheet only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ptxbench.core import BYTES_PER_ELEMENT, Argument, Dtype, Target, Task
from ptxbench.tasks import flops

_BASELINES = {"cublas": "cuBLAS", "cudnn": "cuDNN", "flash_attention_4": "FlashAttention-4"}
_DTYPES: Mapping[Dtype, str] = {"bf16": "bf16", "f16": "fp16", "f32": "fp32"}


def context(task: Task, target: Target, *, headers: bool, header_text: str) -> dict[str, object]:
    """The names that templates can use.

    Workloads of the held-out tier are not among them, nor anything that follows from these.
    """
    core, small = task.of_tier("core"), task.of_tier("small")
    return {
        "title": task.title,
        "operation": task.operation,
        "options": {name for name, on in task.options.items() if on},
        "arguments": task.arguments,
        "dtypes": _DTYPES,
        "element_bytes": BYTES_PER_ELEMENT,
        "formula": product_formula(task) if task.operation == "gemm" else "",
        "has_bias": any(argument.name == "bias" for argument in task.inputs),
        "sizes": task.sizes,
        "size_rules": task.size_rules,
        "fixed_sizes": task.fixed_sizes,
        "free_sizes": [s for s in task.sizes if s not in task.fixed_sizes and task.size_rules.get(s, 1) == 1],
        "core": [workload.sizes for workload in core],
        "small": [workload.sizes for workload in small],
        "core_gflop": [flops(task, workload.sizes) / 1e9 for workload in core],
        "head_dim": task.fixed_sizes.get("D", 0),
        "matrix_dtype": _DTYPES[task.matrix_dtype],
        "signature": signature(task),
        "workspace_signature": f'extern "C" size_t workspace_bytes({_parameters(("int", s) for s in task.sizes)})',
        "baselines": [_BASELINES.get(name, name) for name in task.baselines],
        "target": target.value,
        "sheet": target.sheet,
        "family": target.sheet.matrix_family,
        "headers": headers,
        "header_text": header_text,
    }


def signature(task: Task) -> str:
    """The declaration of ``launch``, broken after each group of arguments."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for c_type, name in task.parameters():
        kind = "sizes" if c_type == "int" else "rest" if name in ("workspace", "stream") else "tensors"
        groups.setdefault(kind, []).append((c_type, name))
    lines = [_parameters(group) for group in groups.values()]
    return 'extern "C" int launch(' + (",\n" + " " * 22).join(lines) + ")"


def product_formula(task: Task) -> str:
    """The matrix product of a ``gemm`` row with its indices, such as ``C[m, n] = Σ_k A[m, k] · B[n, k]``."""
    shapes = {argument.name: argument for argument in task.arguments}
    return f"{_indexed(shapes['C'])} = Σ_k {_indexed(shapes['A'])} · {_indexed(shapes['B'])}"


def _indexed(argument: Argument) -> str:
    return f"{argument.name}[{', '.join(size.lower() for size in argument.shape)}]"


def _parameters(parameters: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{c_type} {name}" for c_type, name in parameters)
