"""A call of a model over time: its kernels one after the other, and the live buffers of the arena."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from mirlo.runtime.files import write_regular
from mirlo.tools.bench import drawing
from mirlo.tools.bench.drawing import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from mirlo.tools.bench.kernels import RooflineRow
from mirlo.tools.bench.measure import ModelRow

BAR_HEIGHT = 60
PLAN_HEIGHT = 360
_SPAN = WIDTH - LEFT - RIGHT
_LABEL = 7.0
"""Pixels of a character, at most, of a kernel's name in its bar."""


def timeline(row: ModelRow) -> str:
    """Return the kernels of a call as bars, as long as they take."""
    kernels = _kernels(row)
    starts = _starts(kernels)
    total = starts[-1] or 1.0
    height = TOP + BAR_HEIGHT + BOTTOM
    kinds = _kinds(kernels)
    lines = drawing.frame(f"a call of {row.model}, {starts[-1] / 1e3:.3f} ms", "microseconds", "", height)
    for kernel, start in zip(kernels, starts, strict=False):
        x, width = LEFT + _SPAN * start / total, _SPAN * kernel["microseconds"] / total
        lines.append(drawing.rectangle(x, TOP, width, BAR_HEIGHT, kinds.index(_kind(kernel)), _text(kernel)))
        if width > _LABEL * len(kernel["kernel"]):
            lines.append(drawing.text(x + width / 2, TOP + BAR_HEIGHT / 2 + 4, kernel["kernel"], "middle"))
    for part in range(5):
        at = LEFT + _SPAN * part / 4
        lines.append(drawing.text(at, TOP + BAR_HEIGHT + 16, f"{total * part / 4:.4g}", "middle"))
    return "\n".join([*lines, *drawing.legend(kinds), "</svg>"]) + "\n"


def memory_plan(row: ModelRow) -> str:
    """Return the buffers of the arena as rectangles: from the first to the last kernel call, at their offsets.

    An empty text if sizes are dynamic, or if no buffer is between two kernels.
    """
    kernels = _kernels(row)
    assert row.kernels is not None
    buffers = [buffer for buffer in row.kernels["buffers"] if buffer["bytes"]]
    if not buffers or max(buffer["last"] for buffer in buffers) >= len(kernels):
        return ""
    top = max(buffer["offset"] + buffer["bytes"] for buffer in buffers)
    inner = PLAN_HEIGHT - TOP - BOTTOM
    lines = drawing.frame(f"memory of a call, {top / 2**20:.2f} MiB", "kernel calls", "MiB", PLAN_HEIGHT)
    column = _SPAN / len(kernels)
    for number, buffer in enumerate(sorted(buffers, key=lambda entry: entry["first"])):
        x, width = LEFT + column * buffer["first"], column * (buffer["last"] - buffer["first"] + 1)
        y = TOP + inner * (1 - (buffer["offset"] + buffer["bytes"]) / top)
        writer, reader = (kernels[buffer[end]]["kernel"] for end in ("first", "last"))
        title = f"{buffer['bytes'] / 2**10:.1f} KiB at {buffer['offset']}: from {writer} to {reader}"
        lines.append(drawing.rectangle(x, y, width, inner * buffer["bytes"] / top, number, title))
    for part in range(5):
        lines.append(drawing.text(LEFT - 6, TOP + inner * (1 - part / 4) + 4, f"{top / 2**20 * part / 4:.3g}", "end"))
        at = LEFT + _SPAN * part / 4
        lines.append(drawing.text(at, PLAN_HEIGHT - BOTTOM + 16, str(round(len(kernels) * part / 4)), "middle"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def write_trace(rows: Sequence[ModelRow], path: Path) -> None:
    """Write the kernels as events of Chrome's trace format, which chrome://tracing and Perfetto display."""
    events = [event for number, row in enumerate(rows) for event in _events(row, number)]
    write_regular(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")


def _events(row: ModelRow, number: int) -> Iterator[dict[str, object]]:
    """Yield the name of a model's row and its kernels; times are microseconds."""
    kernels = _kernels(row)
    name = f"{row.model}, {row.threads} thread{'s' if row.threads > 1 else ''}"
    yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
    for kernel, start in zip(kernels, _starts(kernels), strict=False):
        yield {
            "ph": "X", "name": kernel["kernel"], "cat": _kind(kernel), "pid": number, "tid": 0,
            "ts": start, "dur": kernel["microseconds"],
            "args": {key: kernel[key] for key in ("source", "flops", "bytes")},
        }  # fmt: skip


def _kernels(row: ModelRow) -> list[RooflineRow]:
    assert row.kernels is not None
    return row.kernels["kernels"]


def _starts(kernels: Sequence[RooflineRow]) -> list[float]:
    """Return when each kernel starts, and when the last one ends."""
    return list(accumulate((kernel["microseconds"] for kernel in kernels), initial=0.0))


def _kind(kernel: RooflineRow) -> str:
    return kernel["kind"] or "other"


def _kinds(kernels: Sequence[RooflineRow]) -> list[str]:
    return list(dict.fromkeys(map(_kind, kernels)))


def _text(kernel: RooflineRow) -> str:
    return f"{kernel['kernel']}: {kernel['microseconds']:.1f} us, {_kind(kernel)} ({kernel['source']})"
