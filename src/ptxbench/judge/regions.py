"""Where elements lie, in words: rows, columns, tiles, warps."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ptxbench.tasks import Mask

_PERIODS = (8, 16, 32, 64, 128, 256)
_MAX_RUNS = 3


def describe_region(mask: Mask, lead: tuple[str, ...] = ()) -> str:
    """The set elements of a mask in words. The last two axes are rows and columns, ``lead`` names those before them."""
    matrices = mask.reshape(-1, *mask.shape[-2:])
    hit = _any(matrices, (1, 2))
    place = _describe_matrix(_any(matrices[hit], 0))
    if hit.all():
        return place
    return f"{'all' if place == 'everywhere' else place} {_describe_matrices(hit.reshape(mask.shape[:-2]), lead)}"


def describe_indices(hit: NDArray[np.bool_], granule: str = "") -> str:
    """Set positions of a one-dimensional mask: ``0-63``, ``16-31 of every 64``, ``3, 8-9, ... (12 runs)``."""
    runs = _runs(hit)
    if len(runs) > 1:
        for period in _PERIODS:
            if hit.size % period or hit.size == period:
                continue
            folded = hit.reshape(-1, period)
            if (folded == folded[0]).all() and len(_runs(folded[0])) == 1:
                return f"{_span(*_runs(folded[0])[0])} of every {period}{granule}"
    shown = ", ".join(_span(*run) for run in runs[:_MAX_RUNS])
    return shown if len(runs) <= _MAX_RUNS else f"{shown}, ... ({len(runs)} runs)"


def _describe_matrices(hit: Mask, lead: tuple[str, ...]) -> str:
    """``of head 1``, ``of batch 0, head 2``: the axes along which not everything is set."""
    along = {
        name: _any(hit, tuple(a for a in range(hit.ndim) if a != axis)) for axis, name in enumerate(lead)
    }
    told = [f"{name} {describe_indices(indices)}" for name, indices in along.items() if not indices.all()]
    if int(hit.sum()) != math.prod(int(indices.sum()) for indices in along.values()):
        return f"in {hit.sum()} of {hit.size} matrices"
    return f"of {', '.join(told)}"


def _describe_matrix(mask: Mask) -> str:
    rows, columns = _any(mask, 1), _any(mask, 0)
    density = mask.sum() / (rows.sum() * columns.sum())
    if columns.size == 1:
        return "everywhere" if rows.all() else f"rows {describe_indices(rows)}{_warp_note(rows)}"
    if rows.sum() == columns.sum() == 1:
        return f"the element at row {describe_indices(rows)}, column {describe_indices(columns)}"
    if density < 0.5:
        return _describe_scattered(mask)
    if rows.all() and columns.all():
        return "everywhere"
    if rows.all():
        return f"columns {describe_indices(columns)} in all rows"
    if columns.all():
        return f"rows {describe_indices(rows)} in all columns{_warp_note(rows)}"
    return f"rows {describe_indices(rows)}, columns {describe_indices(columns)}{_tile_note(rows, columns)}"


def _describe_scattered(mask: Mask) -> str:
    rows, columns = np.flatnonzero(_any(mask, 1)), np.flatnonzero(_any(mask, 0))
    tiles = {(int(r) // 128, int(c) // 128) for r, c in zip(*np.nonzero(mask), strict=True)}
    if len(tiles) > 1 and all(r == c for r, c in tiles):
        return f"scattered in the diagonal 128x128 blocks ({mask.mean():.2%} of the elements)"
    return (
        f"scattered over {mask.mean():.2%} of the elements, between rows {rows[0]}-{rows[-1]} "
        f"and columns {columns[0]}-{columns[-1]}"
    )


def _warp_note(rows: NDArray[np.bool_]) -> str:
    """A warpgroup's 64 rows are divided among its warps in sixteens."""
    starts = {(start % 64 // 16, stop - start) for start, stop in _runs(rows)}
    if len(starts) == 1:
        warp, length = starts.pop()
        if length == 16 and all(start % 16 == 0 for start, _ in _runs(rows)):
            return f" (the 16 rows of warp {warp} of a warpgroup)"
    return ""


def _tile_note(rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> str:
    tall, wide = _runs(rows), _runs(columns)
    if len(tall) > 1 or len(wide) > 1:
        return ""
    (top, bottom), (left, right) = tall[0], wide[0]
    height, width = bottom - top, right - left
    aligned = height >= 8 and width >= 8 and top % height == 0 and left % width == 0
    return f" (one whole {height}x{width} tile)" if aligned else ""


def _any(mask: Mask, axis: int | tuple[int, ...]) -> Mask:
    return np.logical_or.reduce(mask, axis=axis)


def _runs(hit: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Half-open intervals of set positions."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], hit, [False])).astype(np.int8)))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _span(start: int, stop: int) -> str:
    return str(start) if stop == start + 1 else f"{start}-{stop - 1}"
