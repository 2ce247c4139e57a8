"""Results as a file: a page, a plot, a trace, or JSON, by its suffix."""

from __future__ import annotations

import json
from pathlib import Path

from mirlo.runtime.names import html
from mirlo.tools.bench.plot import PlotError, svg, write_png
from mirlo.tools.bench.results import Results, cost_table, kernel_cells, latency_table, markdown
from mirlo.tools.bench.timeline import memory_plan, timeline, write_trace

SUFFIXES = (".html", ".svg", ".png", ".json", ".md")
TRACE = ".trace.json"
"""The end of the name of a file for Chrome's trace viewer and Perfetto."""
_STYLE = "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}"  # noqa: E501
_KERNEL_HEAD = ("kernel", "kind", "us", "share", "GFLOP/s", "of peak", "GB/s", "of copy", "of limit", "source")


def check_path(path: Path) -> None:
    """Raise an error for a file that `write` cannot write, before anything is measured."""
    if path.suffix not in SUFFIXES:
        raise PlotError(f"{path}: the suffix of a report is one of {', '.join(SUFFIXES)}, {TRACE}")
    if not path.absolute().parent.is_dir():
        raise PlotError(f"{path}: there is no folder '{path.parent}'")


def write(results: Results, path: Path) -> list[Path]:
    """Write the report; several models give several SVG files, `out-MODEL-2.svg`."""
    plotted = [row for row in results.rows if row.kernels is not None]
    is_trace = path.name.endswith(TRACE)
    if (path.suffix in (".svg", ".png") or is_trace) and not plotted:
        raise PlotError(f"{path}: no kernels were measured, so there is nothing to draw")
    if is_trace:
        write_trace(plotted, path)
    elif path.suffix == ".png":
        write_png(plotted, path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(results.as_json(), indent=1) + "\n", encoding="utf-8")
    elif path.suffix == ".md":
        path.write_text(markdown(results), encoding="utf-8")
    elif path.suffix == ".html":
        path.write_text(_page(results), encoding="utf-8")
    elif len(plotted) == 1:
        path.write_text(svg(plotted[0]), encoding="utf-8")
    else:
        written = [path.with_name(f"{path.stem}-{row.model}-{row.threads}.svg") for row in plotted]
        for row, file in zip(plotted, written, strict=True):
            file.write_text(svg(row), encoding="utf-8")
        return written
    return [path]


def _page(results: Results) -> str:
    parts = ["<!DOCTYPE html><html><head><meta charset='utf-8'><title>mirlo bench</title>"]
    parts.append(f"<style>{_STYLE}</style></head><body><h1>mirlo bench</h1>")
    versions = ", ".join(f"{name} {version}" for name, version in results.versions().items())
    parts.append(f"<p>{html(results.machine)}; {results.date}; {html(versions)}</p>")
    parts += [_table(latency_table(results)), _table(cost_table(results))]
    for row in results.rows:
        if row.kernels is None:
            continue
        kernels = sorted(row.kernels["kernels"], key=lambda kernel: -kernel["microseconds"])
        total = sum(kernel["microseconds"] for kernel in kernels) or 1.0
        body = [(*kernel_cells(kernel, row.kernels, total), kernel["source"]) for kernel in kernels]
        title = html(f"{row.model}, {row.threads} thread{'s' if row.threads > 1 else ''}")
        drawings = "".join(
            f"<div>{drawing}</div>" for drawing in (timeline(row), memory_plan(row), svg(row)) if drawing
        )
        parts.append(f"<h2>{title}</h2>{drawings}{_table([_KERNEL_HEAD, *body])}")
    return "\n".join(parts) + "</body></html>\n"


def _table(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{html(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html(cell)}</td>" for cell in row) + "</tr>" for row in body]
    return f"<table>{''.join(lines)}</table>"
