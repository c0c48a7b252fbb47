"""From the plan's relocations to bytes: parameter blocks with addresses, tensor maps as driver arguments. Pure."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxbench.core import Address, Block, TensorMap

Addresses = Mapping[str, int]
"""Device address of every buffer of a plan, by name."""

_FUNCTIONS = {"tiled": "cuTensorMapEncodeTiled", "im2col": "cuTensorMapEncodeIm2col"}
"""By mode; those of maps along W are encoded by a third."""


def resolve(address: Address, addresses: Addresses) -> int:
    """The device address that a plan's place has here."""
    return addresses[address.buffer] + address.offset


def patch_block(block: Block, addresses: Addresses, encode: Callable[[TensorMap, int], bytes]) -> bytearray:
    """The block's bytes with every hole filled.

    ``encode`` turns a tensor map and its base address into 128 bytes. `ValueError` if a patch lies outside the block.
    """
    data = bytearray(block.data)
    for patch in block.patches:
        if patch.kind == "pointer":
            filling = struct.pack("<Q", resolve(patch.to, addresses))
        else:
            filling = encode(patch.map, resolve(patch.map.base, addresses))
        if patch.at < 0 or patch.at + len(filling) > len(data):
            raise ValueError(f"a patch of {len(filling)} bytes at {patch.at} leaves its block of {len(data)} bytes")
        data[patch.at : patch.at + len(filling)] = filling
    return data


@dataclass(frozen=True)
class EncodeArguments:
    """One call of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col` or `cuTensorMapEncodeIm2colWide`.

    ``enumerators`` are (C enumeration, C enumerator) of dtype, interleave, swizzle, L2 promotion and fill, in order;
    of maps along W the mode stands behind the interleave.
    """

    map: TensorMap
    address: int

    @property
    def function(self) -> str:
        """The driver function's name."""
        return _FUNCTIONS.get(self.map.mode, "cuTensorMapEncodeIm2colWide")

    @property
    def enumerators(self) -> tuple[tuple[str, str], ...]:
        """The enumerators by name, so that their values come from the driver's own bindings."""
        spec = self.map
        return (
            ("CUtensorMapDataType", f"CU_TENSOR_MAP_DATA_TYPE_{spec.dtype.upper()}"),
            ("CUtensorMapInterleave", f"CU_TENSOR_MAP_INTERLEAVE_{spec.interleave.upper()}"),
            *self._wide_mode,
            ("CUtensorMapSwizzle", f"CU_TENSOR_MAP_SWIZZLE_{spec.swizzle.upper()}"),
            ("CUtensorMapL2promotion", f"CU_TENSOR_MAP_L2_PROMOTION_{spec.l2_promotion.upper()}"),
            ("CUtensorMapFloatOOBfill", f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{spec.oob_fill.upper()}"),
        )

    @property
    def _wide_mode(self) -> tuple[tuple[str, str], ...]:
        if self.map.mode in _FUNCTIONS:
            return ()
        along = self.map.mode.removeprefix("im2col_").upper()
        return (("CUtensorMapIm2ColWideMode", f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{along}"),)

    def c_values(self, enumerators: Sequence[int]) -> list[Any]:
        """The C arguments after the destination, given the enumerators' values."""
        spec = self.map
        dtype, *layout = (ctypes.c_int(value) for value in enumerators)
        head = [
            dtype, ctypes.c_uint32(len(spec.dims)), ctypes.c_void_p(self.address),
            _array(ctypes.c_uint64, spec.dims), _array(ctypes.c_uint64, spec.strides),
        ]
        if spec.mode == "tiled":
            middle = [_array(ctypes.c_uint32, spec.box), _array(ctypes.c_uint32, spec.element_strides)]
        else:
            channels, pixels = spec.box
            middle = [
                *self._corners, ctypes.c_uint32(channels), ctypes.c_uint32(pixels),
                _array(ctypes.c_uint32, spec.element_strides),
            ]
        return [*head, *middle, *layout]

    @property
    def _corners(self) -> list[Any]:
        corners = (self.map.lower_corner, self.map.upper_corner)
        if self.map.mode in _FUNCTIONS:
            return [_array(ctypes.c_int, corner) for corner in corners]
        return [ctypes.c_int(offset) for (offset,) in corners]


def _array(element: Any, values: Sequence[int]) -> Any:
    # One spare element: C may not have arrays of length zero (a rank-1 map has no strides).
    return (element * (len(values) + 1))(*values)
