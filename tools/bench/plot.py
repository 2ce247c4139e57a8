"""The roofline plot: arithmetic intensity and speed of each kernel, below the machine's limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mirlo.runtime.errors import MirloError
from mirlo.runtime.names import html
from mirlo.tools.bench.measure import ModelRow

WIDTH, HEIGHT = 760, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 40, 50
COLORS = ("#1f6fb4", "#d8660b", "#2d9348", "#c02c2f", "#8357ae", "#7f5146", "#cf5fa9", "#5f6b6d")


class PlotError(MirloError):
    """A plot that cannot be drawn on this machine."""


def _points(row: ModelRow) -> list[tuple[float, float, float, str, str]]:
    """Return operations per byte, 10^9 operations per second, share, kind and text of each kernel that computes."""
    assert row.kernels is not None
    total = sum(kernel["microseconds"] for kernel in row.kernels["kernels"]) or 1.0
    found = []
    for kernel in row.kernels["kernels"]:
        if kernel["flops"] and kernel["bytes"] and kernel["microseconds"] > 0:
            speed = kernel["flops"] / kernel["microseconds"] * 1e-3
            text = f"{kernel['kernel']}: {kernel['microseconds']:.1f} us, {speed:.1f} GFLOP/s ({kernel['source']})"
            share = kernel["microseconds"] / total
            found.append((kernel["flops"] / kernel["bytes"], speed, share, kernel["kind"] or "other", text))
    return found


def _roofs(row: ModelRow) -> list[tuple[str, float]]:
    """Return names and 10^9 bytes per second of copies within the first-level cache and in memory."""
    assert row.kernels is not None
    speeds = {int(size): value for size, value in row.kernels["gbytes"].items()}
    return [("copies in cache", max(speeds.values())), ("copies in memory", speeds[max(speeds)])]


def svg(row: ModelRow) -> str:
    """Return the plot as SVG."""
    return "\n".join(_svg_lines(row)) + "\n"


def _svg_lines(row: ModelRow) -> Iterator[str]:
    assert row.kernels is not None
    points, peak = _points(row), float(row.kernels["gflops"])
    x_low, x_high = _decades([p[0] for p in points] + [0.1, 100])
    y_low, y_high = _decades([p[1] for p in points] + [1.0, peak * 1.2])

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    title = f"{row.model}, {row.threads} thread{'s' if row.threads > 1 else ''}"
    yield from _frame(title, "operations for a byte that must be moved", "GFLOP/s")
    for power in range(x_low, x_high + 1):
        yield _line(x(10.0**power), TOP, x(10.0**power), HEIGHT - BOTTOM, "#ddd")
        yield _text(x(10.0**power), HEIGHT - BOTTOM + 16, f"{10.0**power:g}", "middle")
    for power in range(y_low, y_high + 1):
        yield _line(LEFT, y(10.0**power), WIDTH - RIGHT, y(10.0**power), "#ddd")
        yield _text(LEFT - 6, y(10.0**power) + 4, f"{10.0**power:g}", "end")
    for name, speed in _roofs(row):
        knee = min(max(peak / speed, 10.0**x_low), 10.0**x_high)
        start = max(10.0**x_low, 10.0**y_low / speed)
        yield _line(x(start), y(start * speed), x(knee), y(knee * speed), "#555")
        yield _text(x(start) + 6, y(start * speed) - 6, f"{name}, {speed:.0f} GB/s", "start")
    first = min(max(peak / max(speed for _, speed in _roofs(row)), 10.0**x_low), 10.0**x_high)
    yield _line(x(first), y(peak), WIDTH - RIGHT, y(peak), "#555")
    yield _text(WIDTH - RIGHT - 4, y(peak) - 6, f"multiply-adds, {peak:.0f} GFLOP/s", "end")
    kinds = list(dict.fromkeys(p[3] for p in points))
    for intensity, speed, share, kind, text in points:
        yield _circle(x(intensity), y(speed), 3 + 14 * math.sqrt(share), kinds.index(kind), text)
    yield from _legend(kinds)
    yield _text(WIDTH - RIGHT + 14, TOP + 24 + 20 * len(kinds), "area: share of the time", "start")
    yield "</svg>"


def scatter(
    points: Sequence[tuple[float, float, str, str]], title: str, x_title: str, y_title: str, levels: Sequence[float]
) -> str:
    """Return a plot of (x, y, kind, text) with a logarithmic x axis and lines at some levels of y."""
    x_low, x_high = _decades([p[0] for p in points])
    top = max([p[1] for p in points] + list(levels)) * 1.08

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    lines = _frame(title, x_title, y_title)
    for power in range(x_low, x_high + 1):
        lines += [_line(x(10.0**power), TOP, x(10.0**power), HEIGHT - BOTTOM, "#ddd")]
        lines += [_text(x(10.0**power), HEIGHT - BOTTOM + 16, f"{10.0**power:g}", "middle")]
    step = 10.0 ** math.floor(math.log10(top / 2))
    for count in range(int(top / step) + 1):
        lines += [_line(LEFT, y(count * step), WIDTH - RIGHT, y(count * step), "#ddd")]
        lines += [_text(LEFT - 6, y(count * step) + 4, f"{count * step:g}", "end")]
    lines += [_line(LEFT, y(level), WIDTH - RIGHT, y(level), "#555") for level in levels]
    kinds = list(dict.fromkeys(p[2] for p in points))
    lines += [_circle(x(p[0]), y(p[1]), 4, kinds.index(p[2]), p[3]) for p in points]
    return "\n".join([*lines, *_legend(kinds), "</svg>"]) + "\n"


def write_png(rows: Sequence[ModelRow], path: Path) -> None:
    """Write the plots below each other as PNG, drawn by matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise PlotError(
            f"{path}: PNG needs matplotlib: pip install 'mirlo[plot]', or name a .svg or .html file, which need nothing"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(rows), 1, figsize=(8, 5 * len(rows)), squeeze=False)
    for row, axis in zip(rows, axes[:, 0], strict=True):
        _draw(row, axis)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _draw(row: ModelRow, axis: Any) -> None:
    assert row.kernels is not None
    points, peak = _points(row), float(row.kernels["gflops"])
    low, high = _decades([p[0] for p in points] + [0.1, 100])
    kinds = list(dict.fromkeys(p[3] for p in points))
    for kind, color in zip(kinds, COLORS * len(kinds), strict=False):
        chosen = [p for p in points if p[3] == kind]
        sizes = [20 + 900 * p[2] for p in chosen]
        axis.scatter([p[0] for p in chosen], [p[1] for p in chosen], s=sizes, c=color, alpha=0.55, label=kind)
    for name, speed in _roofs(row):
        xs = [10.0**low, peak / speed, 10.0**high]
        axis.plot(xs, [min(peak, x * speed) for x in xs], color="#555", linewidth=1)
        axis.annotate(f"{name}, {speed:.0f} GB/s", (xs[0], xs[0] * speed), fontsize=8)
    axis.annotate(f"multiply-adds, {peak:.0f} GFLOP/s", (10.0**high, peak), ha="right", va="bottom", fontsize=8)
    axis.set(xscale="log", yscale="log", xlabel="operations for a byte that must be moved", ylabel="GFLOP/s")
    axis.set_title(f"{row.model}, {row.threads} thread{'s' if row.threads > 1 else ''}")
    axis.legend(fontsize=8)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _frame(title: str, x_title: str, y_title: str) -> list[str]:
    """Return the start of an SVG image with its titles."""
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{html(title)}</text>',
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_title, "middle"),
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">{y_title}</text>',
    ]


def _legend(kinds: Sequence[str]) -> Iterator[str]:
    for index, kind in enumerate(kinds):
        at = TOP + 16 + 20 * index
        yield f'<circle cx="{WIDTH - RIGHT + 20}" cy="{at}" r="6" fill="{COLORS[index % len(COLORS)]}"/>'
        yield _text(WIDTH - RIGHT + 32, at + 4, kind, "start")


def _circle(x: float, y: float, radius: float, color: int, text: str) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{COLORS[color % len(COLORS)]}" fill-opacity="0.55">'
        f"<title>{html(text)}</title></circle>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html(text)}</text>'
