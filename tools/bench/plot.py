"""The roofline plot: arithmetic intensity and speed of each kernel, below the machine's limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import replacing
from mirlo.tools.bench import drawing
from mirlo.tools.bench.drawing import BOTTOM, COLORS, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from mirlo.tools.bench.measure import ModelRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotError(MirloError):
    """A plot that cannot be drawn on this machine."""

    error_code = "MIR0713"
    remedy = "Install matplotlib, or write another form of report."


def _points(row: ModelRow) -> list[tuple[float, float, float, str, str]]:
    """Return operations per byte, 10^9 operations per second, share, kind and text of each kernel that computes."""
    assert row.kernels is not None
    total = sum(kernel["microseconds"] for kernel in row.kernels["kernels"]) or 1.0
    points = []
    for kernel in row.kernels["kernels"]:
        if kernel["flops"] and kernel["bytes"] and kernel["microseconds"] > 0:
            speed = kernel["flops"] / kernel["microseconds"] * 1e-3
            text = f"{kernel['kernel']}: {kernel['microseconds']:.1f} us, {speed:.1f} GFLOP/s ({kernel['source']})"
            share = kernel["microseconds"] / total
            points.append((kernel["flops"] / kernel["bytes"], speed, share, kernel["kind"] or "other", text))
    return points


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
    yield from drawing.frame(title, "operations for a byte that must be moved", "GFLOP/s")
    for power in range(x_low, x_high + 1):
        yield drawing.line(x(10.0**power), TOP, x(10.0**power), HEIGHT - BOTTOM, "#ddd")
        yield drawing.text(x(10.0**power), HEIGHT - BOTTOM + 16, f"{10.0**power:g}", "middle")
    for power in range(y_low, y_high + 1):
        yield drawing.line(LEFT, y(10.0**power), WIDTH - RIGHT, y(10.0**power), "#ddd")
        yield drawing.text(LEFT - 6, y(10.0**power) + 4, f"{10.0**power:g}", "end")
    for name, speed in _roofs(row):
        knee = min(max(peak / speed, 10.0**x_low), 10.0**x_high)
        start = max(10.0**x_low, 10.0**y_low / speed)
        yield drawing.line(x(start), y(start * speed), x(knee), y(knee * speed), "#555")
        yield drawing.text(x(start) + 6, y(start * speed) - 6, f"{name}, {speed:.0f} GB/s", "start")
    first = min(max(peak / max(speed for _, speed in _roofs(row)), 10.0**x_low), 10.0**x_high)
    yield drawing.line(x(first), y(peak), WIDTH - RIGHT, y(peak), "#555")
    yield drawing.text(WIDTH - RIGHT - 4, y(peak) - 6, f"multiply-adds, {peak:.0f} GFLOP/s", "end")
    kinds = list(dict.fromkeys(p[3] for p in points))
    for intensity, speed, share, kind, text in points:
        yield drawing.circle(x(intensity), y(speed), 3 + 14 * math.sqrt(share), kinds.index(kind), text)
    yield from drawing.legend(kinds)
    yield drawing.text(WIDTH - RIGHT + 14, TOP + 24 + 20 * len(kinds), "area: share of the time", "start")
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

    lines = drawing.frame(title, x_title, y_title)
    for power in range(x_low, x_high + 1):
        lines += [drawing.line(x(10.0**power), TOP, x(10.0**power), HEIGHT - BOTTOM, "#ddd")]
        lines += [drawing.text(x(10.0**power), HEIGHT - BOTTOM + 16, f"{10.0**power:g}", "middle")]
    step = 10.0 ** math.floor(math.log10(top / 2))
    for count in range(int(top / step) + 1):
        lines += [drawing.line(LEFT, y(count * step), WIDTH - RIGHT, y(count * step), "#ddd")]
        lines += [drawing.text(LEFT - 6, y(count * step) + 4, f"{count * step:g}", "end")]
    lines += [drawing.line(LEFT, y(level), WIDTH - RIGHT, y(level), "#555") for level in levels]
    kinds = list(dict.fromkeys(p[2] for p in points))
    lines += [drawing.circle(x(p[0]), y(p[1]), 4, kinds.index(p[2]), p[3]) for p in points]
    return "\n".join([*lines, *drawing.legend(kinds), "</svg>"]) + "\n"


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
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=130)
    pyplot.close(figure)


def _draw(row: ModelRow, axis: Axes) -> None:
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
