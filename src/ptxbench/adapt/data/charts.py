"""Charts as inline SVG: horizontal bars, histograms, tables of counts as shades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from markupsafe import Markup

_ROW = 18
_LABEL = 210
_WIDTH = 360


def bars(counts: Mapping[str, float], *, marks: Mapping[str, float] | None = None) -> Markup:
    """Horizontal bars with their values; ``marks`` draws a line at a value of a bar (a minimum)."""
    if not counts:
        return Markup('<p class="soft">nothing</p>')
    largest = max([*counts.values(), *(marks or {}).values(), 1])
    parts: list[str] = []
    for i, (name, value) in enumerate(counts.items()):
        y, width = i * _ROW, value / largest * _WIDTH
        parts.append(
            f'<text x="{_LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(name.replace("_", " "))}</text>'
            f'<rect x="{_LABEL}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}"/>'
            f'<text x="{_LABEL + width + 6:.1f}" y="{y + 13}" class="value">{value:g}</text>'
        )
        if marks and name in marks:
            x = _LABEL + marks[name] / largest * _WIDTH
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y + 1}" y2="{y + _ROW - 1}"/>')
    return _svg("".join(parts), _LABEL + _WIDTH + 60, len(counts) * _ROW + 4)


def histogram(counts: Sequence[int], *, limit: float | None = None) -> Markup:
    """Counts in equal bins from 0 to 1; ``limit`` draws a line at a value."""
    largest, height = max([*counts, 1]), 120
    step = _WIDTH / len(counts)
    parts = [
        f'<rect x="{30 + i * step:.1f}" y="{height - count / largest * height + 4:.1f}" width="{step - 1.5:.1f}" '
        f'height="{count / largest * height:.1f}"><title>{i / len(counts):.2f} to {(i + 1) / len(counts):.2f}: '
        f"{count}</title></rect>"
        for i, count in enumerate(counts)
    ]
    parts += [f'<text x="{30 + at * _WIDTH:.1f}" y="{height + 20}" text-anchor="middle">{at:g}</text>'
              for at in (0, 0.25, 0.5, 0.75, 1)]  # fmt: skip
    if limit is not None:
        x = 30 + limit * _WIDTH
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height + 6}"/>')
    return _svg("".join(parts), _WIDTH + 60, height + 26)


def grid(table: Mapping[str, Mapping[str, int]]) -> Markup:
    """A table of counts, darker where there are more."""
    columns = sorted({name for row in table.values() for name in row})
    largest = max([*(count for row in table.values() for count in row.values()), 1])
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = [f"<tr><th></th>{head}</tr>"]
    for name, row in table.items():
        cells = "".join(
            f'<td class="n" style="--share:{row.get(column, 0) / largest:.3f}">{row.get(column, 0) or "·"}</td>'
            for column in columns
        )
        lines.append(f"<tr><th>{escape(name.replace('_', ' '))}</th>{cells}</tr>")
    return Markup(f'<div class="scroll"><table class="grid">{"".join(lines)}</table></div>')


def _svg(body: str, width: float, height: float) -> Markup:
    return Markup(f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img">{body}</svg>')
