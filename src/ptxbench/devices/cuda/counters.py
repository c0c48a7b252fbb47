"""Executed counts per SASS instruction on the device, from CUPTI's SASS metrics."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType

from ptxbench.core import Artifact, DeviceError, Record, SassInstruction, SiteCount, Target, ToolchainError, families_of
from ptxbench.native import Cache, build_library

CHIPS: dict[Target, str] = {Target.SM_90A: "GH100", Target.SM_100A: "GB100"}
"""CUPTI's names of the chips. (GH100 was seen to work on an H200; GB100 has not been tried.)"""

_SYSTEM_ROOTS = (Path("/usr/local/cuda"), Path("/usr/local/cuda/extras/CUPTI"))


class Row(Record):
    """One instruction of one launch: ``warps`` counts issues by warps, ``threads`` lanes whose predicate was true."""

    kernel: str
    offset: int
    warps: int
    threads: int


class _CRow(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_char_p), ("offset", ctypes.c_uint64),
        ("warps", ctypes.c_uint64), ("threads", ctypes.c_uint64),
    ]


class Counters:
    """CUPTI's SASS metrics for the current context of this process; a context manager.

    Good for one measurement in the life of a process, with no other device work between this object's creation and the
    measured kernel. It patches code, so a process that counts never times.
    """

    def __init__(self, library: Path, chip: str, device_index: int = 0) -> None:
        """``library`` is what `counters_library` built. `DeviceError` if CUPTI refuses the device."""
        self._c = _load(library)
        self._handle = self._c.counters_open()
        self._check(self._c.counters_configure(self._handle, chip.encode(), device_index))

    def measure(self, kernel: str, launch: Callable[[], None], synchronise: Callable[[], None]) -> list[Row]:
        """Counts of one launch of one kernel. ``launch`` must enqueue that kernel and nothing else.

        `DeviceError` where CUPTI returned no record of the kernel, which it does silently (see above).
        """
        rows = self.measure_any(launch, synchronise)
        if not any(row.kernel == kernel for row in rows):
            raise DeviceError(
                f"CUPTI returned {len(rows)} records, none of kernel {kernel}; count one kernel per process, with no "
                "other device work after the counters were made."
            )
        return [row for row in rows if row.kernel == kernel]

    def measure_any(self, work: Callable[[], None], synchronise: Callable[[], None]) -> list[Row]:
        """Whatever records CUPTI has after ``work``, complete or not."""
        self._check(self._c.counters_enable(self._handle))
        try:
            work()
            synchronise()
            count = self._check(self._c.counters_flush(self._handle))
            rows = self._c.counters_rows(self._handle)
            return [_row(rows[index]) for index in range(count)]
        finally:
            self._c.counters_disable(self._handle)

    def _check(self, status: int) -> int:
        if status < 0:
            raise DeviceError(f"CUPTI failed: {self._c.counters_error(self._handle).decode()}.")
        return status

    def __enter__(self) -> Counters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._c.counters_close(self._handle)


def _row(row: _CRow) -> Row:
    return Row(kernel=row.function.decode(), offset=row.offset, warps=row.warps, threads=row.threads)


def _load(library: Path) -> ctypes.CDLL:
    try:
        c = ctypes.CDLL(str(library))
    except OSError as error:
        raise DeviceError(f"The counter library does not load ({error}); reinstall nvidia-cuda-cupti.") from error
    handle = ctypes.c_void_p
    c.counters_open.restype = handle
    c.counters_close.argtypes = [handle]
    c.counters_error.argtypes, c.counters_error.restype = [handle], ctypes.c_char_p
    c.counters_configure.argtypes = [handle, ctypes.c_char_p, ctypes.c_uint32]
    c.counters_enable.argtypes = [handle]
    c.counters_disable.argtypes = [handle]
    c.counters_flush.argtypes, c.counters_flush.restype = [handle], ctypes.c_long
    c.counters_rows.argtypes, c.counters_rows.restype = [handle], ctypes.POINTER(_CRow)
    return c


def counters_library(cache: Cache | None = None, roots: Sequence[Path] | None = None) -> Path:
    """Builds the CUPTI shim into the cache (once per machine) and returns its path.

    ``roots`` are CUDA trees to look through for headers and ``libcupti.so.13``; by default those of the installed
    NVIDIA packages, then the system's. `ToolchainError` where one is missing.
    """
    places = tuple(roots) if roots is not None else (*_package_roots(), *_SYSTEM_ROOTS)
    cupti = _find(places, "include/cupti_sass_metrics.h").parent
    cuda = _find(places, "include/cuda.h").parent
    library = _find(places, "lib/libcupti.so.13", "lib64/libcupti.so.13").parent
    return build_library(
        "ptxbench_counters",
        [Path(__file__).with_name("counters.cpp")],
        flags=[f"-I{cupti}", f"-I{cuda}"],
        link=[f"-L{library}", "-l:libcupti.so.13", f"-Wl,-rpath,{library}"],
        cache=cache,
    )


def _package_roots() -> tuple[Path, ...]:
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    return tuple(Path(folder) / "cu13" for folder in folders or ())


def _find(roots: Iterable[Path], *names: str) -> Path:
    tried = tuple(roots)
    for root in tried:
        for name in names:
            if (root / name).exists():
                return root / name
    raise ToolchainError(
        f"{names[0]} was found in none of {', '.join(map(str, tried))}; install nvidia-cuda-cupti and the CUDA headers "
        "(ptxbench[gpu])."
    )


def site_counts(artifact: Artifact, rows: Iterable[Row]) -> tuple[SiteCount, ...]:
    """Rows of any number of launches, summed per instruction and joined with the artifact's disassembly.

    Sites that never ran are left out. `DeviceError` if an address is not one of the disassembly's, which would mean
    that another binary ran.
    """
    known = {(sass.kernel, one.offset): one for sass in artifact.sass for one in sass.instructions}
    totals: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        key = (row.kernel, row.offset)
        if key not in known:
            raise DeviceError(f"CUPTI counted {row.kernel}+{row.offset:#x}, which is no instruction of the artifact.")
        warps, threads = totals.get(key, (0, 0))
        totals[key] = (warps + row.warps, threads + row.threads)
    return tuple(
        _site(artifact.target, kernel, known[kernel, offset], warps, threads)
        for (kernel, offset), (warps, threads) in totals.items()
        if warps
    )


def _site(target: Target, kernel: str, one: SassInstruction, warps: int, threads: int) -> SiteCount:
    return SiteCount(
        kernel=kernel, opcode=one.opcode, executed=warps, threads=threads, position=one.offset, frames=one.frames,
        flops=flops_of(target, one, warps, threads),
    )


_WARPGROUP_SHAPE = re.compile(r"[HQIB]GMMA(?:\.SP)?\.(\d+)x(\d+)x(\d+)\b")
# ptxas loads constants as -0 * 0 + (low, high): R5, -RZ, RZ, 0, 5.96e-08.
_CONSTANT_LOAD = re.compile(r"R\d+, -?RZ, -?RZ,")
_WARP_SHAPE = re.compile(r"[HI]MMA(?:\.SP)?\.(16|8)(8)(\d+)\b")


def flops_of(target: Target, one: SassInstruction, warps: int, threads: int) -> int:
    """FLOPs (multiply and add counted separately) that executions of a SASS instruction stand for.

    0 where its opcode does not tell (``tcgen05`` shapes are run-time values), for the dummy product of a lone
    ``commit_group`` and for an ``HFMA2`` that only loads a constant.
    """
    shape = _WARPGROUP_SHAPE.match(one.opcode)
    if shape is not None:
        if one.operands.lstrip().startswith("RZ"):
            return 0
        m, n, k = (int(extent) for extent in shape.groups())
        # One count per warp; four warps issue one product.
        return 2 * m * n * k * warps // 4
    shape = _WARP_SHAPE.match(one.opcode)
    if shape is not None:
        m, n, k = (int(extent) for extent in shape.groups())
        return 2 * m * n * k * warps
    if one.opcode.startswith("HFMA2") and _CONSTANT_LOAD.match(one.operands):
        return 0
    family = next((family for family in families_of(target) if family.matches_sass(one.opcode)), None)
    return int(family.flops_per_thread * threads) if family is not None else 0
