# ruff: noqa: E402 - the DSL reads its settings from the environment when it is imported
"""Compiles FlashAttention-4 for a target and keeps what it launches, without a GPU and without a driver.

``python cute_record.py TARGET forward|backward CAUSAL FOLDER``; FOLDER holds ``inputs.npz`` ([B, S, H, D], bf16 as
int16) and ``recorder.so`` (cute_recorder.c). It writes ``launches.json`` and the DSL's own PTX and cubin files there.
It runs in a process of its own because it puts itself between the library and PyTorch's and CUDA's Python parts.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TARGET, DIRECTION, CAUSAL, FOLDER = sys.argv[1], sys.argv[2], sys.argv[3] == "causal", Path(sys.argv[4])
MULTIPROCESSORS = 148 if TARGET == "sm_100a" else 132
os.environ |= {
    "FLASH_ATTENTION_NUM_SMS": str(MULTIPROCESSORS), "FLASH_ATTENTION_ARCH": TARGET[:-1], "CUTE_DSL_ARCH": TARGET,
    "CUTE_DSL_KEEP": "ptx,cubin", "CUTE_DSL_DUMP_DIR": str(FOLDER), "CUTE_DSL_LIBS": str(FOLDER / "recorder.so"),
}  # fmt: skip

import cuda.bindings.driver as driver
import cutlass.cute as cute
import cutlass.utils
import numpy as np
import torch
from cutlass.cute.runtime import from_dlpack
from cutlass.cutlass_dsl import cuda_jit_executor
from flash_attn.cute import cute_dsl_utils, interface

_SIZES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "b32": 4, "f32": 4, "u64": 8, "s64": 8, "b64": 8}
_CUDA = 2  # kDLCUDA
_LAUNCHED = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
)


class DataSheet:
    """What the DSL asks the device about."""

    def __init__(self, device: int = 0) -> None:
        self.device = device

    def get_device_multiprocessor_count(self) -> int:
        return MULTIPROCESSORS

    def get_max_active_clusters(self, cluster_size: int) -> int:
        return MULTIPROCESSORS // cluster_size


class OnDevice:
    """A tensor of the CPU that says it is on a CUDA device, so that the DSL takes its addresses for global memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.tensor.__dlpack__()
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # DLTensor begins with the data's address; its device's type is what follows.
        ctypes.c_int32.from_address(address(capsule, b"dltensor") + 8).value = _CUDA
        return capsule


class Launches:
    """Every launch with its parameters, and every tensor that a parameter may point to."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self._callback = _LAUNCHED(self._launched)
        ctypes.CDLL(os.environ["CUTE_DSL_LIBS"]).recorder_start(self._callback, MULTIPROCESSORS)

    def _launched(self, name: bytes, extents: Any, shared: int, parameters: Any) -> None:
        stem, sizes = _parameter_sizes(name.decode())
        held = [ctypes.string_at(parameters[place], size).hex() for place, size in enumerate(sizes)]
        self.found.append({
            "kernel": name.decode(), "module": stem, "grid": extents[0:3], "block": extents[3:6],
            "cluster": extents[6:9], "shared": shared, "parameters": held,
        })  # fmt: skip

    def watched(self, make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """``make``, a function that allocates, whose tensors are kept, with zeros where nothing is defined."""

        def allocate(*arguments: Any, **options: Any) -> torch.Tensor:
            tensor = make(*arguments, **options).zero_()
            self.tensors[f"scratch{len(self.tensors)}"] = tensor
            return tensor

        return allocate


def _parameter_sizes(kernel: str) -> tuple[str, list[int]]:
    """The module that holds the kernel, and the sizes of its parameters."""
    for path in FOLDER.glob("*.ptx"):
        entry = re.search(rf"\.entry {re.escape(kernel)}\((.*?)\n\)", path.read_text().rstrip("\0"), re.DOTALL)
        if entry:
            declared = re.findall(r"\.param (?:\.align \d+ )?\.(\w+) \S*?(?:\[(\d+)\])?,?\n", entry[1] + "\n")
            return path.stem, [int(count) if count else _SIZES[kind] for kind, count in declared]
    raise KeyError(kernel)


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    """``cute.compile`` for plain pointers: what it gives takes PyTorch's tensors of the CPU, and no stream."""

    def compile_plainly(function: Any, *arguments: Any, options: str = "") -> Callable[..., None]:
        compiled = original(function, *arguments)

        def call(*given: Any) -> None:
            values = iter(given)
            compiled(*(a if isinstance(a, driver.CUstream) else _converted(next(values), a) for a in arguments))

        return call

    return compile_plainly


def _converted(value: Any, like: Any) -> Any:
    """A tensor as the compiled function takes it: ``like`` is what it was compiled with."""
    if not isinstance(value, torch.Tensor):
        return value
    tensor = from_dlpack(OnDevice(value.detach()), assumed_align=16)
    return tensor.mark_layout_dynamic(leading_dim=list(value.stride()).index(1))


def intervene(launches: Launches) -> None:
    """Takes the place of what would need a device."""
    cutlass.utils.HardwareInfo = DataSheet
    cuda_jit_executor.CudaDialectJitCompiledFunction.num_devices = 1
    torch.Tensor.is_cuda = property(lambda tensor: True)  # every check for a device passes
    cute.runtime.make_fake_stream = lambda **options: driver.CUstream(0)
    cute_dsl_utils.from_dlpack = lambda tensor, **options: from_dlpack(OnDevice(tensor), **options)
    plain = cute_dsl_utils.to_cute_tensor
    interface.to_cute_tensor = lambda tensor, *a, **o: plain(tensor, *a, **{**o, "enable_tvm_ffi": False})
    cute.compile = _compile(cute.compile)
    for name in ("empty", "zeros", "empty_like", "zeros_like"):
        setattr(torch, name, launches.watched(getattr(torch, name)))


def main() -> None:
    launches = Launches()
    intervene(launches)
    with np.load(FOLDER / "inputs.npz") as stored:
        given = {
            name: torch.from_numpy(array).view(torch.bfloat16) if array.dtype == np.int16 else torch.from_numpy(array)
            for name, array in ((name, stored[name].copy()) for name in stored.files)
        }  # fmt: skip
    if DIRECTION == "forward":
        made = interface._flash_attn_fwd(given["q"], given["k"], given["v"], causal=CAUSAL, return_lse=True)[:2]
        outputs = dict(zip(("o", "lse"), made, strict=True))
    else:
        names = ("q", "k", "v", "o", "do", "lse")
        made = interface._flash_attn_bwd(*(given[name] for name in names), causal=CAUSAL)[:3]
        outputs = dict(zip(("dq", "dk", "dv"), made, strict=True))
    addresses = {tensor.data_ptr() for tensor in outputs.values()}
    scratch = {name: tensor for name, tensor in launches.tensors.items() if tensor.data_ptr() not in addresses}
    buffers = {
        name: [tensor.data_ptr(), tensor.numel() * tensor.element_size()]
        for name, tensor in {**given, **outputs, **scratch}.items()
    }  # fmt: skip
    (FOLDER / "launches.json").write_text(json.dumps({"launches": launches.found, "buffers": buffers}))


if __name__ == "__main__":
    main()
