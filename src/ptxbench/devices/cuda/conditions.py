"""Clocks, power, temperature and throttle reasons of a GPU, from the driver's management library (NVML). Only read."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Sequence
from types import TracebackType

from ptxbench.core import DeviceError, Record

LIBRARY = "libnvidia-ml.so.1"

# nvml.h: nvmlClockType_t, nvmlTemperatureSensors_t, nvmlClocksEventReasons.
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_SENSOR_GPU = 0
REASONS = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "software_power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "software_thermal_slowdown",
    0x040: "hardware_thermal_slowdown",
    0x080: "hardware_power_brake",
    0x100: "display_clocks",
}
INVALIDATING = {"hardware_slowdown", "software_thermal_slowdown", "hardware_thermal_slowdown", "hardware_power_brake"}
"""With one of these active a time says more about the cooling than about the kernel. A software power cap is normal."""


class Condition(Record):
    """The device at one moment: MHz, watts, degrees Celsius, and why its clocks are not higher."""

    sm_mhz: int
    memory_mhz: int
    watts: float
    celsius: int
    reasons: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """Whether times taken now count."""
        return INVALIDATING.isdisjoint(self.reasons)


class Conditions:
    """Reads one device's state, about 1 ms each time. A context manager."""

    def __init__(self, pci_bus_id: str) -> None:
        """Finds the device. `DeviceError` where the library is missing or does not know it."""
        try:
            self._c = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DeviceError(f"The driver's {LIBRARY} is missing, so clocks cannot be read ({error}).") from error
        self._call("nvmlInit_v2")
        self._device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.encode(), ctypes.byref(self._device))

    def read(self) -> Condition:
        """The state now."""
        bits = self._reasons()
        return Condition(
            sm_mhz=self._number("nvmlDeviceGetClockInfo", _CLOCK_SM),
            memory_mhz=self._number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
            watts=self._number("nvmlDeviceGetPowerUsage") / 1e3,
            celsius=self._number("nvmlDeviceGetTemperature", _SENSOR_GPU),
            reasons=reason_names(bits),
        )

    def close(self) -> None:
        """Lets go of the library."""
        self._call("nvmlShutdown")

    def _number(self, function: str, *arguments: int) -> int:
        value = ctypes.c_uint32()
        self._call(function, self._device, *arguments, ctypes.byref(value))
        return value.value

    def _reasons(self) -> int:
        value = ctypes.c_uint64()
        self._call("nvmlDeviceGetCurrentClocksEventReasons", self._device, ctypes.byref(value))
        return value.value

    def _call(self, function: str, *arguments: object) -> None:
        status = int(self._c[function](*arguments))
        if status != 0:
            raise DeviceError(f"{function} failed with status {status}; see nvidia-smi.")

    def __enter__(self) -> Conditions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def reason_names(bits: int) -> tuple[str, ...]:
    """The names of the set bits; an unknown one by its number."""
    known = tuple(name for bit, name in REASONS.items() if bits & bit)
    unknown = bits & ~sum(REASONS)
    return (*known, f"{unknown:#x}") if unknown else known


def summarised(conditions: Sequence[Condition]) -> dict[str, object]:
    """What a verdict keeps: [least, median, largest] of each figure, and every reason with how often it was seen."""
    if not conditions:
        return {}
    figures = {
        name: [float(f(getattr(one, name) for one in conditions)) for f in (min, statistics.median, max)]
        for name in ("sm_mhz", "memory_mhz", "watts", "celsius")
    }
    seen = [reason for one in conditions for reason in one.reasons]
    return {**figures, "reasons": {reason: seen.count(reason) for reason in sorted(set(seen))}, "read": len(conditions)}
