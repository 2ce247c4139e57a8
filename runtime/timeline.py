"""Time lines: when the parts of a device worked, as an SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from mirlo.runtime.external import DeviceStep

WIDTH, LEFT, ROW, TOP = 1000, 110, 22, 42
"""Pixels: of the drawing without names, of the names, of a row, and above the rows."""
COLORS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d")
GAP = 0.5
"""Pixels between spans that are drawn as one."""


def timeline(steps: Sequence[DeviceStep]) -> str:
    """Return the steps of a device as an SVG: a row for each part, and the names of the steps above them."""
    units = list(dict.fromkeys(unit for step in steps for unit, _, _ in step.spans))
    if not units:
        raise ValueError("no step reports when parts of the device worked: its loader returns no `spans`")
    total = sum(step.amount for step in steps) or 1.0
    scale, height = WIDTH / total, TOP + ROW * len(units)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{height + 24}" '
        'font-family="sans-serif" font-size="11">'
    ]
    for row, unit in enumerate(units):
        lines.append(f'<text x="{LEFT - 6}" y="{TOP + ROW * row + 14}" text-anchor="end">{escape(unit)}</text>')
        begins, every = 0.0, list[tuple[float, float]]()
        for step in steps:
            every += [(begins + first, begins + last) for name, first, last in step.spans if name == unit]
            begins += step.amount
        color = COLORS[row % len(COLORS)]
        for first, last in _joined(every, GAP / scale):
            x, width = LEFT + first * scale, max((last - first) * scale, 0.3)
            lines.append(
                f'<rect x="{x:.1f}" y="{TOP + ROW * row + 2}" width="{width:.1f}" height="{ROW - 4}" fill="{color}"/>'
            )
    begins = 0.0
    for number, step in enumerate(steps):
        x, width = LEFT + begins * scale, step.amount * scale
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height}" stroke="#999" stroke-dasharray="2,3"/>')
        name = step.name if len(step.name) * 6 <= width else step.name[: max(0, int(width / 6) - 1)]
        title = f"<title>{escape(step.name)}: {step.amount:.0f} {escape(step.unit)}</title>"
        lines.append(f'<text x="{x + 3:.1f}" y="{18 + 14 * (number % 2)}">{escape(name)}{title}</text>')
        begins += step.amount
    lines.append(f'<text x="{LEFT}" y="{height + 16}">0</text>')
    end = f"{total:.0f} {escape(steps[0].unit)}"
    lines.append(f'<text x="{LEFT + WIDTH}" y="{height + 16}" text-anchor="end">{end}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _joined(spans: Iterable[tuple[float, float]], gap: float) -> Iterator[tuple[float, float]]:
    """Yield spans in order; those that are nearer than the gap are one."""
    current: tuple[float, float] | None = None
    for first, last in sorted(spans):
        if current is None:
            current = first, last
        elif first - current[1] <= gap:
            current = current[0], max(current[1], last)
        else:
            yield current
            current = first, last
    if current is not None:
        yield current
