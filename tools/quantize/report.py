"""The report of a static quantization: the error of the whole and of each node, as text, JSON and a page of HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mirlo.runtime.files import write_regular
from mirlo.runtime.names import html, terminal
from mirlo.runtime.records import dataclass

_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:left}"
    ".bar{background:#1f6fb4;height:.8em}.f32{background:#d8660b}"
)
_HEAD = ("node", "operator", "computed in", "error alone", "error of the outputs", "range of the result", "why")
FULL_BAR = 240
"""Pixels of the bar of the largest error."""


@dataclass(frozen=True)
class QuantizedNode:
    """The result of quantizing a node."""

    node: str
    operator: str
    is_int8: bool
    own_error: float | None = None
    """The relative RMS error of its result, before the activation, with exact data."""
    effect: float | None = None
    """The relative RMS error of the model's outputs if no other node is int8."""
    range: tuple[float, float] | None = None
    """What its result is clipped to."""
    why: str = ""
    """Why it stays in f32."""


@dataclass(frozen=True)
class OutputError:
    """The difference of an output from that of the f32 model."""

    name: str
    rms: float
    """The root of the mean squared difference, relative to that of the f32 output."""
    largest: float
    """The largest absolute difference."""
    same_top: float | None
    """The share of rows whose largest element is at the same place; None for outputs that are no rows of scores."""


@dataclass(frozen=True)
class StaticReport:
    """The errors of an int8 model on the calibration data."""

    model: str
    samples: int
    outputs: tuple[OutputError, ...]
    nodes: tuple[QuantizedNode, ...]

    @property
    def error(self) -> float:
        """Return the largest relative RMS error of an output."""
        return max((output.rms for output in self.outputs), default=0.0)

    @property
    def int8_nodes(self) -> int:
        return sum(node.is_int8 for node in self.nodes)

    def as_json(self) -> str:
        return json.dumps({**asdict(self), "error": self.error}, indent=1)

    def as_text(self) -> str:
        """Return a table of the nodes, those with the largest effect first."""
        lines = [self.summary()]
        rows = [_HEAD, *(_cells(node) for node in self._sorted())]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join(lines)

    def summary(self) -> str:
        parts = [f"{self.int8_nodes} of {len(self.nodes)} nodes int8, {self.samples} samples"]
        for output in self.outputs:
            same = "" if output.same_top is None else f", the same best class in {output.same_top:.2%}"
            error = f"relative RMS error {output.rms:.3g}, largest {output.largest:.3g}"
            parts.append(f"output '{terminal(output.name)}': {error}{same}")
        return "\n".join(parts)

    def as_html(self) -> str:
        """Return a page that needs no network: bars of the effect of each node."""
        top = max((node.effect or 0.0 for node in self.nodes), default=0.0) or 1.0
        head = "".join(f"<th>{html(cell)}</th>" for cell in (*_HEAD, ""))
        rows = [
            "<tr>" + "".join(f"<td>{html(cell)}</td>" for cell in _cells(node)) + f"<td>{_bar(node, top)}</td></tr>"
            for node in self._sorted()
        ]
        summary = "<br>".join(html(line) for line in self.summary().splitlines())
        return (
            f"<!DOCTYPE html><html><head><meta charset='utf-8'><title>{html(self.model)}</title><style>{_STYLE}</style>"
            f"</head><body><h1>{html(self.model)}</h1><p>{summary}</p><table><tr>{head}</tr>{''.join(rows)}</table>"
            "</body></html>\n"
        )

    def save(self, path: str | Path) -> None:
        """Write the report: JSON, HTML, or text, whichever the name ends with."""
        forms = {".json": self.as_json, ".html": self.as_html}
        write_regular(path, forms.get(Path(path).suffix.lower(), self.as_text)())

    def _sorted(self) -> Sequence[QuantizedNode]:
        return sorted(self.nodes, key=lambda node: -(node.effect or -1.0))


def _bar(node: QuantizedNode, top: float) -> str:
    if node.effect is None:
        return ""
    kind = "bar" if node.is_int8 else "bar f32"
    return f"<div class='{kind}' style='width:{FULL_BAR * node.effect / top:.0f}px'></div>"


def _cells(node: QuantizedNode) -> tuple[str, ...]:
    return (
        terminal(node.node), terminal(node.operator), "int8" if node.is_int8 else "f32", _number(node.own_error),
        _number(node.effect), "" if node.range is None else f"{node.range[0]:.4g} to {node.range[1]:.4g}", node.why,
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
