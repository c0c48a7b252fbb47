"""The libraries that candidates are compared with: the task's work by each, on given PyTorch tensors.

Everything of PyTorch is untyped here; only `baseline`, a program of its own, imports this module.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxbench.core import Task
from ptxbench.devices.cuda.cublaslt import WORKSPACE_BYTES, Matmul, fastest_algorithm

Tensors = Mapping[str, Any]
Work = Callable[[], tuple[Any, ...]]
"""Enqueues the work on PyTorch's current stream; the outputs in the order of the task's row."""


@dataclass(frozen=True)
class Library:
    """One library's way to do a task. ``renew`` must run before ``work`` where inputs changed and results matter."""

    name: str
    version: str
    work: Work
    renew: Callable[[], None] = lambda: None


class Absent(Exception):
    """A library is not here or cannot do this task; the message says so in one sentence."""


@dataclass(frozen=True)
class Setting:
    """What a library is to do: PyTorch, the task, its tensors by name, and the raw stream.

    ``compare`` times several ways to enqueue work beside each other, in milliseconds. ``choices`` holds what libraries
    chose by such times, by name: what one place of a task has chosen is used in all its places.
    """

    torch: Any
    task: Task
    sizes: Mapping[str, int]
    tensors: Tensors
    stream: int
    compare: Callable[[Sequence[Callable[[], None]]], Sequence[float]]
    choices: dict[str, Any]

    @property
    def causal(self) -> bool:
        """Whether the task masks keys behind the query."""
        return self.task.options.get("causal", False)


Builder = Callable[[Setting], Library]


def builders(task: Task) -> dict[str, Builder]:
    """Every library to be tried for a task, by name: what its row lists, and variants of the same libraries."""
    operation = {"gemm": _GEMM, "attention_forward": _FORWARD, "attention_backward": _BACKWARD}[task.operation]
    return {name: build for listed, name, build in operation if listed in task.baselines}


def _operands(setting: Setting) -> tuple[Any, Any]:
    """A as [..., M, K] and B as [..., K, N]."""
    shapes = {argument.name: argument.shape for argument in setting.task.inputs}
    a, b = setting.tensors["A"], setting.tensors["B"]
    return (
        a if shapes["A"][-1] == "K" else a.transpose(-1, -2),
        b.transpose(-1, -2) if shapes["B"][-1] == "K" else b,
    )


def _cublas(setting: Setting) -> Library:
    torch, c = setting.torch, setting.tensors["C"]
    a, b = _operands(setting)
    bias, gelu = setting.tensors.get("bias"), setting.task.options.get("gelu", False)

    def plain() -> tuple[Any, ...]:
        torch.matmul(a, b, out=c)
        return (c,)

    def with_epilogue() -> tuple[Any, ...]:
        product = torch.addmm(bias, a, b) if bias is not None else torch.matmul(a, b)
        return (torch.nn.functional.gelu(product) if gelu else product,)

    return Library("cublas", _version("nvidia-cublas"), with_epilogue if gelu or bias is not None else plain)


def _cublaslt(setting: Setting) -> Library:
    task, sizes = setting.task, setting.sizes
    shapes = [argument.shape for argument in task.arguments]
    if shapes != [("M", "K"), ("N", "K"), ("M", "N")] or task.options.get("gelu", False):
        raise Absent("cublaslt is only compared where C = A·Bᵀ is the whole task")
    a, b, c = (setting.tensors[name] for name in "ABC")
    workspace = setting.torch.empty(WORKSPACE_BYTES, dtype=setting.torch.uint8, device="cuda")
    matmul = Matmul(
        (sizes["M"], sizes["N"], sizes["K"]), task.matrix_dtype, (a.data_ptr(), b.data_ptr(), c.data_ptr()),
        workspace.data_ptr(), setting.stream,
    )
    if "cublaslt" not in setting.choices:
        setting.choices["cublaslt"] = fastest_algorithm(matmul, setting.compare)
    launch = matmul.with_algorithm(setting.choices["cublaslt"])

    def work(kept: Any = workspace) -> tuple[Any, ...]:
        launch()
        return (c,)

    return Library("cublaslt", _version("nvidia-cublas"), work)


Attention = Callable[[Any, Any, Any], tuple[Any, Any]]
"""Q, K and V as [B, H, S, D] to O and LSE (natural logarithm, [B, H, S])."""


Found = tuple[str, Attention]
"""Version and function of a library."""


def _cudnn(setting: Setting) -> Found:
    torch = setting.torch
    run = torch.ops.aten._scaled_dot_product_cudnn_attention
    return str(torch.backends.cudnn.version()), lambda q, k, v: _pair(run(q, k, v, None, True, 0.0, setting.causal), q)


def _flash_attention_2(setting: Setting) -> Found:
    torch = setting.torch
    run = torch.ops.aten._scaled_dot_product_flash_attention
    return f"PyTorch {torch.__version__}", lambda q, k, v: _pair(run(q, k, v, 0.0, setting.causal), q)


def _pair(results: Any, q: Any) -> tuple[Any, Any]:
    return results[0], results[1].reshape(q.shape[:3])


def _flash_attention_4(setting: Setting) -> Found:
    try:
        function = importlib.import_module("flash_attn.cute").flash_attn_func
    except ImportError as error:
        raise Absent(f"flash-attn-4 is not installed ({error}); pip install ptxbench[gpu]") from error
    options: dict[str, Any] = {"causal": setting.causal}
    if "return_lse" in inspect.signature(function).parameters:
        options["return_lse"] = True

    def attention(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
        out, lse = function(*(x.transpose(1, 2) for x in (q, k, v)), **options)[:2]
        return out.transpose(1, 2), lse

    return _version("flash-attn-4"), attention


def _forward(name: str, find: Callable[[Setting], Found]) -> Builder:
    def build(setting: Setting) -> Library:
        version, attention = find(setting)
        q, k, v = (setting.tensors[tensor] for tensor in "QKV")

        def work() -> tuple[Any, ...]:
            with setting.torch.no_grad():
                return attention(q, k, v)

        return Library(name, version, work)

    return build


def _backward(name: str, find: Callable[[Setting], Found]) -> Builder:
    def build(setting: Setting) -> Library:
        version, attention = find(setting)
        leaves = tuple(setting.tensors[tensor].detach().requires_grad_() for tensor in "QKV")
        forward: list[Any] = []

        def renew() -> None:
            forward[:] = attention(*leaves)[:1]

        def work() -> tuple[Any, ...]:
            return setting.torch.autograd.grad(forward[0], leaves, setting.tensors["dO"], retain_graph=True)

        return Library(name, version, work, renew)

    return build


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# (name in a task's row, name of the library or variant, builder)
_Rows = tuple[tuple[str, str, Builder], ...]
_GEMM: _Rows = (("cublas", "cublas", _cublas), ("cublas", "cublaslt", _cublaslt))
_FINDERS = (
    ("flash_attention_4", "flash_attention_4", _flash_attention_4),
    ("cudnn", "cudnn", _cudnn),
    ("flash_attention_4", "flash_attention_2", _flash_attention_2),
)
_FORWARD: _Rows = tuple((listed, name, _forward(name, find)) for listed, name, find in _FINDERS)
_BACKWARD: _Rows = tuple((listed, name, _backward(name, find)) for listed, name, find in _FINDERS)

