"""cuBLASLt through its C library: C = A·Bᵀ with every algorithm that its heuristics propose, the fastest of them kept.

Enumerators are those of `cublasLt.h`, `cublas_api.h` and `library_types.h` (CUDA 13).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ptxbench.core import DeviceError, Dtype

LIBRARY = "libcublasLt.so.13"
PROPOSALS = 32
FINALISTS = 4
WORKSPACE_BYTES = 64 << 20

_COMPUTE_32F = 68
_R_32F = 0
_TYPES: dict[str, int] = {"bf16": 14, "f16": 2}
_OPERATION_N, _OPERATION_T = 0, 1
_DESC_TRANSA, _DESC_TRANSB = 3, 4
_PREF_MAX_WORKSPACE_BYTES = 1

Launch = Callable[[], None]


class _Configuration(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Algorithm(ctypes.Structure):
    """What the heuristics propose (`cublasLtMatmulHeuristicResult_t`); it serves equal products at other addresses."""

    _fields_ = [
        ("configuration", _Configuration), ("workspace_bytes", ctypes.c_size_t), ("state", ctypes.c_int),
        ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    ]


def fastest_algorithm(matmul: Matmul, compare: Callable[[Sequence[Launch]], Sequence[float]]) -> Algorithm:
    """The fastest of the algorithms that the heuristics propose.

    ``compare`` times launches beside each other, the fastest `FINALISTS` of them twice, because some differ by less
    than one comparison can tell. `DeviceError` where the library proposes none.
    """
    algorithms = matmul.proposals()
    if not algorithms:
        raise DeviceError(f"cuBLASLt proposes no algorithm for M, N, K = {matmul.extents}.")
    for keep in (FINALISTS, 1):
        times = compare([matmul.with_algorithm(algorithm) for algorithm in algorithms])
        order = sorted(range(len(algorithms)), key=times.__getitem__)
        algorithms = [algorithms[index] for index in order[:keep]]
    return algorithms[0]


class Matmul:
    """C[M, N] = A[M, K]·B[N, K]ᵀ, row-major. cuBLASLt is column-major, so Cᵀ = op(B)·A is computed, on the same bytes.
    """

    def __init__(
        self, extents: tuple[int, int, int], dtype: Dtype, addresses: tuple[int, int, int], workspace: int, stream: int
    ) -> None:
        """``extents`` are M, N and K, ``addresses`` those of A, B and C, ``workspace`` that of `WORKSPACE_BYTES` bytes.
        `DeviceError` where the library refuses.
        """
        self._c = ctypes.CDLL(LIBRARY)
        self.extents = extents
        m, n, k = extents
        self._a, self._b, self._result = (ctypes.c_void_p(address) for address in addresses)
        self._workspace, self._stream = ctypes.c_void_p(workspace), ctypes.c_void_p(stream)
        self._handle = self._create("cublasLtCreate")
        self._operation = self._create("cublasLtMatmulDescCreate", _COMPUTE_32F, _R_32F)
        for attribute, value in ((_DESC_TRANSA, _OPERATION_T), (_DESC_TRANSB, _OPERATION_N)):
            self._set("cublasLtMatmulDescSetAttribute", self._operation, attribute, ctypes.c_int32(value))
        self._layouts = [self._layout(dtype, rows, columns) for rows, columns in ((k, n), (k, m), (n, m))]
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def proposals(self) -> list[Algorithm]:
        """What the heuristics propose, best guess first."""
        preference = self._create("cublasLtMatmulPreferenceCreate")
        limit = ctypes.c_size_t(WORKSPACE_BYTES)
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, _PREF_MAX_WORKSPACE_BYTES, limit)
        found, count = (Algorithm * PROPOSALS)(), ctypes.c_int(0)
        b, a, c = self._layouts
        self._call(
            "cublasLtMatmulAlgoGetHeuristic", self._handle, self._operation, b, a, c, c, preference, PROPOSALS, found,
            ctypes.byref(count),
        )
        return [found[index] for index in range(count.value) if found[index].state == 0]

    def with_algorithm(self, algorithm: Algorithm) -> Launch:
        """What enqueues the product with one algorithm."""
        b, a, c = self._layouts

        def launch() -> None:
            self._call(
                "cublasLtMatmul", self._handle, self._operation, ctypes.byref(self._one), self._b, b, self._a, a,
                ctypes.byref(self._zero), self._result, c, self._result, c, ctypes.byref(algorithm.configuration),
                self._workspace, ctypes.c_size_t(WORKSPACE_BYTES), self._stream,
            )

        return launch

    def _layout(self, dtype: Dtype, rows: int, columns: int) -> ctypes.c_void_p:
        return self._create(
            "cublasLtMatrixLayoutCreate", _TYPES[dtype], ctypes.c_uint64(rows), ctypes.c_uint64(columns),
            ctypes.c_int64(rows),
        )

    def _create(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call(function, ctypes.byref(made), *arguments)
        return made

    def _set(self, function: str, target: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(function, target, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _call(self, function: str, *arguments: Any) -> None:
        status = int(self._c[function](*arguments))
        if status != 0:
            raise DeviceError(f"{function} failed with status {status}.")
