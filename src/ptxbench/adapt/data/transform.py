"""Changes of a source's text that a replacement pattern cannot express, by the names that ``faults.toml`` uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Change = Callable[[re.Match[str]], str]
"""Turns what was found into what replaces it."""


def _half_box(match: re.Match[str]) -> str:
    return f"{match[0]} / 2"


def _halve_bytes(match: re.Match[str]) -> str:
    if match[0].startswith("STAGE_BYTES"):
        return "STAGE_BYTES = TILE_M * TILE_K"
    return match[0].removeprefix("2 * ")


def _other_shape(match: re.Match[str]) -> str:
    return "TILE_N / 16 << 17" if match[0].startswith("TILE_N") else "ROWS / 2"


def _other_swizzle(match: re.Match[str]) -> str:
    return match[0].replace("128", "64") if "128" in match[0] else match[0].replace("64", "128")


def _half_step(match: re.Match[str]) -> str:
    return match[0].replace("SWIZZLE * step", "SWIZZLE / 2 * step").replace("step * 16", "step * 8")


def _other_type(match: re.Match[str]) -> str:
    return {
        ".f32.f16.f16": ".f32.bf16.bf16",
        "INSTRUCTION = 1u << 4 |": "INSTRUCTION = 1u << 4 | 1u << 7 | 1u << 10 |",
    }.get(match[0], "1u << 4")


def _one_less(match: re.Match[str]) -> str:
    return match[0][:-1] + " - 1;" if match[0].endswith(";") else f"{match[0]} - 1"


def _half_range(match: re.Match[str]) -> str:
    return match[0].replace("/ 16", "/ 32")


def _first_group(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)


def _groups(match: re.Match[str]) -> str:
    return "".join(group for group in match.groups() if group)


def _four_for_eight(match: re.Match[str]) -> str:
    return match[0].replace("8", "4")


def _no_factor_two(match: re.Match[str]) -> str:
    return match[0].removesuffix(" * 2")


def _no_swizzle(match: re.Match[str]) -> str:
    return "(chunk << 4)" if match[0].startswith("((") else f"chunk = {match[1]}"


def _squared(match: re.Match[str]) -> str:
    value = float(match[0].removesuffix("f"))
    return f"{value * value!r}f"


def _without_ln2(match: re.Match[str]) -> str:
    return "top[r] + log2f(total)" if "total" in match[0] else "top * (SCALE * LOG2E) + log2f(sum)"


def _logarithm_only(match: re.Match[str]) -> str:
    return f"{match[1]} * LN2" if match[1] else match[2]


def _no_correction(match: re.Match[str]) -> str:
    return "                (void)o[i];\n" if "if" in match[0] else "o[part][i] +"


def _ones(match: re.Match[str]) -> str:
    return "inverse = 1.0f" if "total" in match[0] else "1.0f"


def _strict(match: re.Match[str]) -> str:
    return match[0].replace(">", ">=")


def _empty_statement(match: re.Match[str]) -> str:
    """Also what follows the condition goes, where it stands on the same line; a loop keeps an empty body."""
    indent = re.match(r"[ \t]*", match[0])
    return (indent[0] if indent else "") + ";\n"


def _diagonal_left_out(match: re.Match[str]) -> str:
    tile = "TILE_KV" if "TILE_Q" in match[0] else "ROWS"
    return f"blocks = q0 / {tile} > 0 ? q0 / {tile} : 1"


def _smaller_grid(match: re.Match[str]) -> str:
    return match[0][:-1] + " - 1,"


def _larger_grid(match: re.Match[str]) -> str:
    if match[1]:
        return match[0][:-1] + " + 1,"
    return f"{match[2]}S / {match[3]}, B * H + 1"


def _exchange_grid(match: re.Match[str]) -> str:
    first, _, rest = match[0].removeprefix("const dim3 grid(").removesuffix(");").partition(", ")
    second, comma, third = rest.partition(", L")
    return f"const dim3 grid({second}, {first}{comma}{third});"


def _wider_pitch(match: re.Match[str]) -> str:
    return match[0].replace("sizeof(element)", "(sizeof(element) + 2)").replace("DIM *", "2 * DIM *")


def _hard_coded(match: re.Match[str]) -> str:
    if match[0].startswith("steps"):
        return "steps = 1536 / TILE_K"
    return match[0].replace("S /", "256 /")


def _cached_map(match: re.Match[str]) -> str:
    indent, letter, others, _, call = match.groups()
    declared = f"{indent}static CUtensorMap map_{letter};\n{indent}static bool encoded = false;\n"
    rest = f"{indent}CUtensorMap {others.removeprefix(', ')};\n" if others else ""
    return f"{declared}{rest}{indent}if (!encoded) {{\n{indent}    if (int error = {call}) return error;\n" \
           f"{indent}    encoded = true;\n{indent}}}\n"  # fmt: skip


def _swap_stream(match: re.Match[str]) -> str:
    if match[0].startswith("int M"):
        return "int N, int M, int K,"
    if match[0].startswith("extern"):
        return f"{match[1]}K, const float* Q"
    return "cudaStream_t stream, void* workspace"


def _read_back(match: re.Match[str]) -> str:
    indent = match[1]
    return f"{indent}float first = 0;\n{indent}cudaMemcpyAsync(&first, workspace, sizeof(first), " \
           f"cudaMemcpyDeviceToHost, stream);\n{match[0]}"  # fmt: skip


def _shift_rows(match: re.Match[str]) -> str:
    text = match[0]
    return f"({text[1:-1]} + 64)" if text.startswith("(row") else f"{text} + 64" if text != "row" else "(row + 64)"


def _scribble(match: re.Match[str]) -> str:
    found = re.search(r"(?<!const )(element|bf16)\* (C|O|dQ)\b", match[0])
    assert found is not None
    return f"{match[0]}    if (threadIdx.x == 0) {found[2]}[-1 - static_cast<int>(blockIdx.x)] = {found[1]}(0.0f);\n"


def _double_array(match: re.Match[str]) -> str:
    return match[0].replace("[TILE_N / 2]", "[TILE_N]").replace("[32]", "[16]").replace(" / 2]", "]")


def _foreign_instruction(match: re.Match[str]) -> str:
    if "tcgen05" in match[0]:
        return f'{match[1]}asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n{match[0]}'
    return f'{match[0]}{match[1]}asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");\n'


CHANGES: Mapping[str, Change] = {
    "half_box": _half_box,
    "halve_bytes": _halve_bytes,
    "other_shape": _other_shape,
    "other_swizzle": _other_swizzle,
    "half_step": _half_step,
    "other_type": _other_type,
    "one_less": _one_less,
    "half_range": _half_range,
    "first_group": _first_group,
    "groups": _groups,
    "four_for_eight": _four_for_eight,
    "no_factor_two": _no_factor_two,
    "no_swizzle": _no_swizzle,
    "squared": _squared,
    "without_ln2": _without_ln2,
    "logarithm_only": _logarithm_only,
    "no_correction": _no_correction,
    "ones": _ones,
    "strict": _strict,
    "empty_statement": _empty_statement,
    "diagonal_left_out": _diagonal_left_out,
    "smaller_grid": _smaller_grid,
    "larger_grid": _larger_grid,
    "exchange_grid": _exchange_grid,
    "wider_pitch": _wider_pitch,
    "hard_coded": _hard_coded,
    "cached_map": _cached_map,
    "swap_stream": _swap_stream,
    "read_back": _read_back,
    "shift_rows": _shift_rows,
    "scribble": _scribble,
    "double_array": _double_array,
    "foreign_instruction": _foreign_instruction,
}
"""The changes above, by name."""
