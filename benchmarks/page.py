"""Write results into docs/performance.md: `python -m benchmarks.page [--models FILE] [--peers FILE] ...`.

    python -m benchmarks.whole --folder OUT
    python -m benchmarks.page --models OUT/models.json --peers OUT/peers.json OUT/peers-transformers.json
    python -m benchmarks.page --compile OUT/compile.json --sweep OUT/sweep.json --spaced OUT/spaced.json

Each file replaces its section of the page, between two comments, and the pictures that belong to it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compile.peers import CompileTimes
from benchmarks.compile.peers import markdown as compile_table
from benchmarks.kernels.sweep import Row, svg
from benchmarks.kernels.sweep import markdown as sweep_tables
from mirlo.tools.bench import plot
from mirlo.tools.bench.measure import EngineRow, ModelRow
from mirlo.tools.bench.results import Results, describe_machine, latency_table, markdown

DOCS = Path(__file__).resolve().parents[1] / "docs"
PLOTTED = ("resnet50", "bert_base")
"""Models whose roofline plots are on the page, for one thread."""


def results_of(*paths: Path) -> Results:
    """Return what runs of `mirlo bench --report FILE.json` wrote, as one table."""
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    models = (row for data in reports for row in data["models"])
    rows = [ModelRow(**{**row, "engines": [EngineRow(**e) for e in row["engines"]]}) for row in models]
    return Results(rows, reports[0]["date"], reports[0]["machine"])


def models_part(results: Results, pictures: Path) -> str:
    """Return the tables, then the plots."""
    parts = [markdown(results)]
    for row in results.rows:
        if row.model in PLOTTED and row.threads == 1 and row.kernels is not None:
            name = f"roofline-{row.model}.svg"
            (pictures / name).write_text(plot.svg(row), encoding="utf-8")
            parts.append(f"![Roofline of {row.model}, one thread](images/{name})\n")
    return "\n".join(parts)


def spaced_part(results: Results) -> str:
    """Return the table of latencies."""
    head, *body = latency_table(results)
    lines = [head, tuple("---" for _ in head), *body]
    return f"{results.machine}; {results.date}.\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def sweep_part(path: Path, date: str, pictures: Path) -> str:
    """Return the tables of the sweep and its plot."""
    from benchmarks.kernels.onednn import version

    rows = [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    title = f"random shapes, Mirlo beside oneDNN {version()}, 1 thread"
    (pictures / "sweep.svg").write_text(svg(rows, title), encoding="utf-8")
    head = f"{describe_machine()}; {date}; oneDNN {version()}, one thread."
    return f"{head}\n\n{sweep_tables(rows)}\n![{title}](images/sweep.svg)\n"


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with another text between the comments of this name."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no part '{name}'")
    return pattern.sub(lambda _: f"{begin}\n{text.rstrip()}\n{end}", page)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, help="the models, beside the fastest libraries")
    parser.add_argument("--peers", type=Path, nargs="+", help="models beside compilers")
    parser.add_argument("--compile", type=Path, help="compile times beside compilers")
    parser.add_argument("--spaced", type=Path, help="models with gaps between calls")
    parser.add_argument("--sweep", type=Path, help="random shapes beside oneDNN")
    parser.add_argument("--page", type=Path, default=DOCS / "performance.md")
    arguments: Any = parser.parse_args(argv)
    pictures = arguments.page.parent / "images"
    pictures.mkdir(exist_ok=True)
    page = arguments.page.read_text(encoding="utf-8")
    if arguments.models:
        page = replaced(page, "models", models_part(results_of(arguments.models), pictures))
    if arguments.peers:
        page = replaced(page, "peers", markdown(results_of(*arguments.peers)))
    if arguments.spaced:
        page = replaced(page, "spaced", spaced_part(results_of(arguments.spaced)))
    if arguments.compile:
        times = CompileTimes.from_json(json.loads(arguments.compile.read_text(encoding="utf-8")))
        page = replaced(page, "compile", compile_table(times))
    if arguments.sweep:
        import time

        stamp = time.strftime("%Y-%m-%d", time.gmtime(arguments.sweep.stat().st_mtime))
        page = replaced(page, "sweep", sweep_part(arguments.sweep, stamp, pictures))
    arguments.page.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
