"""Arrays in device memory, and the little that the verifier needs of a machine to compute on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import KernelNode
from ptxbench.core.plan import Block
from ptxbench.devices.cuda.driver import Bytes, Driver, Handle
from ptxbench.tasks import numpy_dtype

TYPES = ("bf16", "f16", "f32", "f64")
"""Element types that kernels compute on, numbered as in ``common.cuh``."""

_NUMPY: dict[str, np.dtype[Any]] = {
    **{name: numpy_dtype(name) for name in ("bf16", "f16", "f32")},
    "f64": np.dtype(np.float64), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
}

THREADS = 256
"""Threads per block of every kernel."""

_MOST_BLOCKS = 1 << 16


@dataclass(frozen=True)
class Array:
    """A dense row-major array on the device."""

    address: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _NUMPY[self.dtype].itemsize

    @property
    def code(self) -> int:
        """The number of the element type in kernels; `ValueError` for one that is not in `TYPES`."""
        return TYPES.index(self.dtype)

    def part(self, first: int, count: int) -> Array:
        """``count`` entries along the first axis, from ``first``."""
        step = math.prod(self.shape[1:]) * self.itemsize
        return Array(self.address + first * step, (count, *self.shape[1:]), self.dtype)

    def reshaped(self, *shape: int) -> Array:
        """The same elements in another shape."""
        if math.prod(shape) != self.count:
            raise ValueError(f"{self.count} elements do not fill the shape {shape}")
        return Array(self.address, shape, self.dtype)


Field: TypeAlias = Array | int | float | None
"""A field of a kernel's parameter struct: an array's address (null if None), a 64-bit integer, or an fp64 value."""


class Machine(Protocol):
    """What computes: a GPU, or the simulator in tests. Work is done in the order of the calls.

    Allocations that are multiples of ``granule`` bytes share no memory with others.
    """

    granule: int

    def allocate(self, count: int) -> int:
        """The address of ``count`` fresh bytes, 256-byte aligned."""
        ...

    def free(self, address: int) -> None:
        """Gives an allocation back."""
        ...

    def write(self, address: int, data: Bytes) -> None:
        """Copies host bytes to the device."""
        ...

    def read(self, address: int, count: int) -> bytearray:
        """Copies device bytes to the host."""
        ...

    def fill(self, address: int, word: int, count: int) -> None:
        """Repeats a 32-bit word over ``count`` bytes."""
        ...

    def launch(self, kernel: str, grid: tuple[int, int, int], fields: Sequence[Field]) -> None:
        """Launches a kernel with `THREADS` threads per block on a struct of these fields."""
        ...

    def synchronise(self) -> None:
        """Waits for everything."""
        ...


class Gpu:
    """A GPU as a `Machine`, with one module loaded. Errors are `CudaError`."""

    granule = 2 << 20

    def __init__(self, driver: Driver, image: bytes) -> None:
        self._driver = driver
        self._module = driver.load_module(image)
        self._functions: dict[str, Handle] = {}
        self.allocate = driver.allocate
        self.free = driver.free
        self.write = driver.write
        self.read = driver.read
        self.fill = driver.fill
        self.synchronise = driver.synchronise

    def launch(self, kernel: str, grid: tuple[int, int, int], fields: Sequence[Field]) -> None:
        """See `Machine`."""
        if kernel not in self._functions:
            self._functions[kernel] = self._driver.function(self._module, kernel)
        block = np.frombuffer(packed(fields), np.uint8)
        node = KernelNode(
            kernel=kernel, grid=grid, block=(THREADS, 1, 1), cluster=(1, 1, 1), dynamic_shared=0,
            parameters=Block(data=b""),
        )
        self._driver.launch(self._functions[kernel], node, [block.ctypes.data], 0)


def packed(fields: Sequence[Field]) -> bytes:
    """The bytes of a kernel's parameter struct."""
    return b"".join(_packed(field) for field in fields)


def _packed(field: Field) -> bytes:
    if isinstance(field, float):
        return np.float64(field).tobytes()
    number = field.address if isinstance(field, Array) else int(field or 0)
    return (number % (1 << 64)).to_bytes(8, "little")


class Arrays:
    """Makes arrays and gives all of them back together: use it in a ``with`` statement, or `close` it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._addresses: list[int] = []

    def empty(self, shape: Sequence[int], dtype: str) -> Array:
        """An array of undefined content."""
        count = math.prod(shape) * _NUMPY[dtype].itemsize
        address = self.machine.allocate(max(1, count))
        self._addresses.append(address)
        return Array(address, tuple(shape), dtype)

    def upload(self, values: NDArray[Any]) -> Array:
        """A copy of a host array."""
        name = next(name for name, dtype in _NUMPY.items() if dtype == values.dtype)
        array = self.empty(values.shape, name)
        self.machine.write(array.address, np.ascontiguousarray(values).tobytes())
        return array

    def close(self) -> None:
        """Gives everything back."""
        while self._addresses:
            self.machine.free(self._addresses.pop())

    def __enter__(self) -> Arrays:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def download(machine: Machine, array: Array) -> NDArray[Any]:
    """A host copy."""
    content = machine.read(array.address, array.count * array.itemsize)
    return np.frombuffer(content, _NUMPY[array.dtype]).reshape(array.shape)


def over(count: int) -> tuple[int, int, int]:
    """The grid of a kernel whose threads stride over ``count`` elements."""
    return (min(_MOST_BLOCKS, -(-count // THREADS)), 1, 1)
