"""Results as a file: a page, a plot, a trace, or JSON, by its suffix."""

from __future__ import annotations

import json
from pathlib import Path

from mirlo.runtime.files import write_regular
from mirlo.tools.bench.page import page
from mirlo.tools.bench.plot import PlotError, svg, write_png
from mirlo.tools.bench.results import Results, markdown
from mirlo.tools.bench.timeline import write_trace

SUFFIXES = (".html", ".svg", ".png", ".json", ".md")
TRACE = ".trace.json"
"""The end of the name of a file for Chrome's trace viewer and Perfetto."""


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
        write_regular(path, json.dumps(results.as_json(), indent=1) + "\n")
    elif path.suffix == ".md":
        write_regular(path, markdown(results))
    elif path.suffix == ".html":
        write_regular(path, page(results))
    elif len(plotted) == 1:
        write_regular(path, svg(plotted[0]))
    else:
        written = [path.with_name(f"{path.stem}-{row.model}-{row.threads}.svg") for row in plotted]
        for row, file in zip(plotted, written, strict=True):
            write_regular(file, svg(row))
        return written
    return [path]
