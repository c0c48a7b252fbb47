"""PTX's fundamental types: their widths and kinds, and the sets that rules choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Type:
    """A type: ``bits`` of a value (1 for predicates) and the bits of the register rows that hold it (32, 64, 128)."""

    name: str
    bits: int
    kind: Literal["bits", "unsigned", "signed", "float", "predicate"]

    @property
    def storage(self) -> int:
        """Bits a lane occupies in rows; predicates take one row for all lanes and count as 1."""
        return self.bits if self.bits in (1, 64, 128) else 32


def _table() -> dict[str, Type]:
    rows: list[Type] = [Type("pred", 1, "predicate"), Type("b128", 128, "bits")]
    for bits in (8, 16, 32, 64):
        rows += [Type(f"b{bits}", bits, "bits"), Type(f"u{bits}", bits, "unsigned"), Type(f"s{bits}", bits, "signed")]
    for name, bits in (
        ("f16", 16), ("bf16", 16), ("f32", 32), ("tf32", 32), ("f64", 64), ("f16x2", 32), ("bf16x2", 32), ("f32x2", 64),
        ("u16x2", 32), ("s16x2", 32), ("u8x4", 32), ("s8x4", 32),
        ("e4m3", 8), ("e5m2", 8), ("ue8m0", 8), ("e4m3x2", 16), ("e5m2x2", 16), ("ue8m0x2", 16),
        ("e2m1x2", 8), ("e2m3x2", 16), ("e3m2x2", 16), ("e4m3x4", 32), ("e5m2x4", 32),
    ):  # fmt: skip
        rows.append(Type(name, bits, "float"))
    return {row.name: row for row in rows}


TYPES: Final = _table()

UNSIGNED: Final = ("u16", "u32", "u64")
SIGNED: Final = ("s16", "s32", "s64")
INTEGERS: Final = UNSIGNED + SIGNED
BITS: Final = ("b16", "b32", "b64")


def plain(bits: int) -> str:
    """The untyped type of a width: ``b32`` for 32."""
    return f"b{bits}"
