"""A thin, typed layer over the CUDA driver API: one process, one device, its primary context.

The bindings ship no type stubs, so every untyped value stays behind this module: handles leave it as the opaque alias
`Handle`, addresses as plain integers.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

from ptxbench.core import DeviceError, FaultKind, KernelNode
from ptxbench.devices.cuda.encode import EncodeArguments

Handle: TypeAlias = Any
"""A driver object (module, function, stream, event, graph); only passed back to this layer."""

Bytes: TypeAlias = bytes | bytearray | memoryview

# CUresult values (cuda.h) that tell of the kernel, not of the machine.
_EXECUTION_FAULTS = {
    700: FaultKind.ILLEGAL_ADDRESS,
    702: FaultKind.TIME_LIMIT,
    710: FaultKind.TRAP,
    714: FaultKind.ILLEGAL_ADDRESS,
    715: FaultKind.ILLEGAL_INSTRUCTION,
    716: FaultKind.MISALIGNED_ADDRESS,
    717: FaultKind.ILLEGAL_ADDRESS,
    718: FaultKind.ILLEGAL_INSTRUCTION,
    719: FaultKind.TRAP,
}
# CUDA_ERROR_INVALID_VALUE, ..._LAUNCH_OUT_OF_RESOURCES, ..._COOPERATIVE_LAUNCH_TOO_LARGE, ..._INVALID_CLUSTER_SIZE.
_LAUNCH_REFUSALS = {1, 701, 720, 912}
_LAUNCH_CALLS = {"cuLaunchKernelEx", "cuFuncSetAttribute"}
_OUT_OF_MEMORY = 2

# Larger clusters need the kernel's permission first (CUDA C++ Programming Guide).
_PORTABLE_CLUSTER_SIZE = 8


class CudaError(DeviceError):
    """A driver call that did not succeed; ``code`` is its `CUresult`."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        super().__init__(f"{call} failed: {name} ({text}).")
        self.call = call
        self.code = code
        self.name = name
        self.text = text

    @property
    def fault_kind(self) -> FaultKind | None:
        """What the kernel did wrong, or None where the failure is not the kernel's."""
        if self.call in _LAUNCH_CALLS and self.code in _LAUNCH_REFUSALS:
            return FaultKind.IMPOSSIBLE_LAUNCH
        if self.code == _OUT_OF_MEMORY:
            return FaultKind.OUT_OF_MEMORY
        return _EXECUTION_FAULTS.get(self.code)


class Driver:
    """The driver API with this process's device made current.

    Every method raises `CudaError`; a kernel's fault surfaces at the next synchronising call, as the driver defines it.
    """

    def __init__(self, device_index: int = 0) -> None:
        """Initialises the driver and makes the primary context current. `DeviceError` without a driver or bindings."""
        self._api = _bindings()
        self._library = _driver_library()
        self.call("cuInit", 0)
        self.device_index = device_index
        self._device: Handle = self.call("cuDeviceGet", device_index)
        self.context: Handle = self.call("cuDevicePrimaryCtxRetain", self._device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, function: str, *arguments: Any) -> Any:
        """Calls one driver function; returns its result (None, one value, or a tuple of values)."""
        status, *values = getattr(self._api, function)(*arguments)
        code = int(status)
        if code != 0:
            _, name = self._api.cuGetErrorName(status)
            _, text = self._api.cuGetErrorString(status)
            raise CudaError(function, code, _text(name), _text(text))
        return values[0] if len(values) == 1 else tuple(values) or None

    def enumerator(self, enumeration: str, name: str) -> Any:
        """A value of one of the driver's enumerations, by its full C name."""
        return getattr(getattr(self._api, enumeration), name)

    def properties(self) -> dict[str, Any]:
        """Name, PCI bus identifier, driver version, compute capability, SM count, L2 size and clocks of the device."""
        return {
            "name": _text(self.call("cuDeviceGetName", 256, self._device)).split("\0")[0].strip(),
            "pci_bus_id": _text(self.call("cuDeviceGetPCIBusId", 32, self._device)).split("\0")[0].strip(),
            "driver_version": int(self.call("cuDriverGetVersion")),
            "compute_capability": [self._attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")],
            "sm_count": self._attribute("MULTIPROCESSOR_COUNT"),
            "l2_bytes": self._attribute("L2_CACHE_SIZE"),
            "clock_khz": self._attribute("CLOCK_RATE"),
            "pageable_memory_access": self._attribute("PAGEABLE_MEMORY_ACCESS"),
        }

    def _attribute(self, name: str) -> int:
        key = self.enumerator("CUdevice_attribute", f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", key, self._device))

    # Memory. Addresses and sizes in bytes; the copies below are synchronous.

    def allocate(self, count: int) -> int:
        """The address of ``count`` fresh bytes, at least 256-byte aligned."""
        return int(self.call("cuMemAlloc", count))

    def free(self, address: int) -> None:
        """Gives an allocation back."""
        self.call("cuMemFree", address)

    def write(self, address: int, data: Bytes) -> None:
        """Copies host bytes to the device."""
        if len(data):
            self.call("cuMemcpyHtoD", address, data, len(data))

    def read(self, address: int, count: int) -> bytearray:
        """Copies device bytes to the host."""
        data = bytearray(count)
        if count:
            self.call("cuMemcpyDtoH", data, address, count)
        return data

    def fill(self, address: int, word: int, count: int) -> None:
        """Repeats a 32-bit ``word`` over ``count`` bytes from a 4-byte-aligned address; a tail of 1-3 bytes too."""
        if count >= 4:
            self.call("cuMemsetD32", address, word, count // 4)
        for index in range(count - count % 4, count):
            self.call("cuMemsetD8", address + index, struct.pack("<I", word)[index % 4], 1)

    def synchronise(self) -> None:
        """Waits for all work of the context."""
        self.call("cuCtxSynchronize")

    # Inter-process sharing.

    def export(self, address: int) -> bytes:
        """The 64-byte IPC handle of the allocation that starts at ``address``."""
        return ctypes.string_at(int(self.call("cuIpcGetMemHandle", address).getPtr()), 64)

    def import_(self, handle: bytes) -> int:
        """Maps another process's allocation; the address of its start here."""
        opened = self._api.CUipcMemHandle()
        ctypes.memmove(int(opened.getPtr()), handle, 64)
        flag = self.enumerator("CUipcMem_flags", "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS")
        return int(self.call("cuIpcOpenMemHandle", opened, int(flag)))

    def close_import(self, address: int) -> None:
        """Unmaps what `import_` mapped."""
        self.call("cuIpcCloseMemHandle", address)

    # Modules.

    def load_module(self, image: bytes) -> Handle:
        """Loads a cubin."""
        return self.call("cuModuleLoadData", image)

    def unload_module(self, module: Handle) -> None:
        """Unloads it; its functions and symbols are gone."""
        self.call("cuModuleUnload", module)

    def function(self, module: Handle, name: str) -> Handle:
        """A kernel by its mangled name."""
        return self.call("cuModuleGetFunction", module, name.encode())

    def symbol(self, module: Handle, name: str) -> tuple[int, int]:
        """(address, bytes) of a device variable by its mangled name."""
        address, count = self.call("cuModuleGetGlobal", module, name.encode())
        return int(address), int(count)

    def encode_tensor_map(self, arguments: EncodeArguments) -> bytes:
        """The 128 bytes of a `CUtensorMap`.

        Called through the C library, because the driver writes to a 64-byte-aligned place and the bindings' own
        object does not promise one.
        """
        room = ctypes.create_string_buffer(128 + 64)
        place = (ctypes.addressof(room) + 63) & ~63
        values = [int(self.enumerator(kind, name)) for kind, name in arguments.enumerators]
        code = int(self._library[arguments.function](ctypes.c_void_p(place), *arguments.c_values(values)))
        if code != 0:
            raise CudaError(arguments.function, code, "the driver refused a tensor map", repr(arguments.map))
        return ctypes.string_at(place, 128)

    # Streams, events, graphs.

    def stream(self) -> Handle:
        """A stream that does not wait for the legacy default stream."""
        return self.call("cuStreamCreate", int(self.enumerator("CUstream_flags", "CU_STREAM_NON_BLOCKING")))

    def event(self, timing: bool = False) -> Handle:
        """An event, with or without a time stamp."""
        name = "CU_EVENT_DEFAULT" if timing else "CU_EVENT_DISABLE_TIMING"
        return self.call("cuEventCreate", int(self.enumerator("CUevent_flags", name)))

    def wait(self, stream: Handle, event: Handle) -> None:
        """Makes later work of ``stream`` wait for ``event``."""
        self.call("cuStreamWaitEvent", stream, event, 0)

    def begin_capture(self, stream: Handle) -> None:
        """Starts recording the stream's work (and that of streams joined to it) instead of running it."""
        mode = self.enumerator("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
        self.call("cuStreamBeginCapture", stream, mode)

    def end_capture(self, stream: Handle) -> Handle:
        """Ends the recording; an executable graph."""
        graph = self.call("cuStreamEndCapture", stream)
        executable = self.call("cuGraphInstantiate", graph, 0)
        self.call("cuGraphDestroy", graph)
        return executable

    # Launching.

    def permit(self, function: Handle, dynamic_shared: int, cluster_size: int) -> None:
        """Lets launches of a kernel take that many bytes of dynamic shared memory and CTAs per cluster."""
        attributes = [("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", dynamic_shared)]
        if cluster_size > _PORTABLE_CLUSTER_SIZE:
            attributes.append(("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1))
        for name, value in attributes:
            self.call("cuFuncSetAttribute", function, self.enumerator("CUfunction_attribute", name), value)

    def launch(self, function: Handle, node: KernelNode, arguments: Sequence[int], stream: Handle) -> None:
        """Launches one kernel of a plan. ``arguments`` are host addresses of the parameters, in order."""
        config = self._api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = node.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = node.block
        config.sharedMemBytes = node.dynamic_shared
        config.hStream = stream
        attributes = self._launch_attributes(node)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        pointers = (ctypes.c_void_p * max(1, len(arguments)))(*arguments)
        self.call("cuLaunchKernelEx", config, function, ctypes.addressof(pointers), 0)

    def _launch_attributes(self, node: KernelNode) -> list[Any]:
        attributes: list[Any] = []
        if node.clustered:
            attribute = self._launch_attribute("CLUSTER_DIMENSION")
            shape = attribute.value.clusterDim
            shape.x, shape.y, shape.z = node.cluster
            attributes.append(attribute)
        if node.cooperative:
            attribute = self._launch_attribute("COOPERATIVE")
            attribute.value.cooperative = 1
            attributes.append(attribute)
        if node.programmatic:
            attribute = self._launch_attribute("PROGRAMMATIC_STREAM_SERIALIZATION")
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        return attributes

    def _launch_attribute(self, name: str) -> Any:
        attribute = self._api.CUlaunchAttribute()
        attribute.id = self.enumerator("CUlaunchAttributeID", f"CU_LAUNCH_ATTRIBUTE_{name}")
        return attribute


def _bindings() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DeviceError("The package cuda-bindings is not installed; install ptxbench[gpu].") from error


def _driver_library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError("There is no NVIDIA driver here (libcuda.so.1); use a machine with a GPU.") from error


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
