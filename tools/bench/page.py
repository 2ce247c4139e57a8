"""Results as one page of HTML: tables, drawings, and the code of kernels. It needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mirlo.runtime.names import html
from mirlo.tools.bench.measure import ModelRow
from mirlo.tools.bench.plot import svg
from mirlo.tools.bench.results import KERNEL_HEAD, Results, cost_table, kernel_cells, latency_table
from mirlo.tools.bench.timeline import memory_plan, timeline

_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}"
    "pre{font-size:12px;background:#f6f6f6;padding:1em;overflow-x:auto}summary{cursor:pointer}"
)
_HEAD = (*KERNEL_HEAD, "code", "source")
_OPEN = (
    "addEventListener('hashchange',()=>{const found=document.getElementById(location.hash.slice(1));"
    "if(found){found.open=true;found.scrollIntoView()}})"
)
"""Opens the code that a link leads to."""


def page(results: Results) -> str:
    """Return the text of the page."""
    parts = ["<!DOCTYPE html><html><head><meta charset='utf-8'><title>mirlo bench</title>"]
    parts.append(f"<style>{_STYLE}</style></head><body><h1>mirlo bench</h1>")
    versions = ", ".join(f"{name} {version}" for name, version in results.versions().items())
    parts.append(f"<p>{html(results.machine)}; {results.date}; {html(versions)}</p>")
    parts += [_table(_cells(latency_table(results))), _table(_cells(cost_table(results)))]
    for number, row in enumerate(results.rows):
        if row.kernels is not None:
            parts += _section(row, number)
    return "\n".join(parts) + f"<script>{_OPEN}</script></body></html>\n"


def _section(row: ModelRow, number: int) -> Iterator[str]:
    """Yield the drawings, the kernels and the code of a model."""
    assert row.kernels is not None
    yield f"<h2>{html(row.model)}, {row.threads} thread{'s' if row.threads > 1 else ''}</h2>"
    for drawing in (timeline(row), memory_plan(row), svg(row)):
        if drawing:
            yield f"<div>{drawing}</div>"
    kernels = sorted(row.kernels["kernels"], key=lambda kernel: -kernel["microseconds"])
    total = sum(kernel["microseconds"] for kernel in kernels) or 1.0
    code: Mapping[str, Mapping[str, str]] = row.kernels.get("code", {})
    order = {name: at for at, name in enumerate(code)}
    body = [list(map(html, _HEAD))]
    for kernel in kernels:
        name = kernel["kernel"]
        links = [f"<a href='#{_anchor(number, order[name], form)}'>{html(form)}</a>" for form in code.get(name, {})]
        cells = kernel_cells(kernel, row.kernels, total)
        body.append([*map(html, cells), " ".join(links), html(kernel["source"])])
    yield _table(body)
    for name, forms in code.items():
        for form, text in forms.items():
            yield f"<details id='{_anchor(number, order[name], form)}'><summary>{html(name)}: {html(form)}</summary>"
            yield f"<pre>{html(text)}</pre></details>"


def _anchor(row: int, kernel: int, form: str) -> str:
    return html(f"code-{row}-{kernel}-{form}")


def _cells(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(map(html, row)) for row in rows]


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are HTML, the first row being its head."""
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body]
    return f"<table>{''.join(lines)}</table>"
