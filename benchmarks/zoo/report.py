"""The page of results: docs/zoo.md, written from the JSON lines of a run."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mirlo.tools.bench.results import describe_machine

from .families import entries
from .judge import DISPUTED, NOT_RUN, RIGHT
from .reasons import difference_of, reason_of
from .run import BAD, NOT_EXPORTED, read_results

Row = dict[str, Any]
SLOW = 1.1

HEAD = """# The zoo

`python -m benchmarks.zoo` builds public architectures with random weights, in small configurations, exports each with
both of torch's exporters, with fixed and with dynamic dims, and compares Mirlo with ONNX Runtime at three shapes.
Nothing is downloaded. `pip install 'mirlo[zoo]'` installs the libraries that the models come from.

```sh
python -m benchmarks.zoo --list                               # the models
python -m benchmarks.zoo --family timm --shapes dynamic       # some of them
python -m benchmarks.zoo --match resnet18 --again             # compare again what has a result
python -m benchmarks.zoo --again-failed                       # after a repair
python -m benchmarks.zoo --report                             # write this page
```

`--out` (`.cache/zoo`) keeps exported models, their inputs and `results.jsonl`; a run goes on where the last one ended.
Each model is exported and compared in a process of its own, with limits of time and memory.

An output is right if no value departs from ONNX Runtime's by more than 2e-4 of the largest value of that output; of
models that round to 8 or 16 bits inside, 3e-2, as a tie that rounds the other way moves all that follows. Where one
does, ONNX Runtime runs the model again without its optimizations, and on inputs that differ by their rounding; a model
whose results depart as much between those is *disputed*: rounding decides a choice in it (a top-k, a routing, an
argmax), and it counts neither way. Times are the least CPU time of the calling thread, of calls of both in turns, with
one thread each; seconds of compilation are CPU time of one process, without any cache.

"""


def write_page(results: Path, page: Path) -> None:
    """Write the page from the newest result of each model."""
    rows = list(read_results(results).values())
    if not rows:
        raise SystemExit(f"{results} has no results: run `python -m benchmarks.zoo` first")
    date = time.strftime("%Y-%m-%d", time.gmtime(results.stat().st_mtime))
    commits = Counter(row.get("commit") or "unknown" for row in rows)
    part = (
        f"{describe_machine()}; {date}; {len(rows)} of the {len(list(entries()))} exports of the zoo were tried. "
        f"Commits, with the number of results of each (`+`: with changes): "
        f"{', '.join(f'{commit} ({count})' for commit, count in commits.most_common())}.\n"
    )
    parts = [_summary(rows, part), _table(rows), _failures(rows), _slow(rows), _architectures(rows)]
    page.write_text(HEAD + "\n".join(parts).rstrip("\n") + "\n", encoding="utf-8")


def _summary(rows: list[Row], part: str) -> str:
    exported = [row for row in rows if row["status"] != NOT_EXPORTED]
    run = [row for row in exported if row["status"] != NOT_RUN]
    right, disputed = _with(run, RIGHT), _with(run, DISPUTED)
    judged = len(run) - len(disputed)
    entries = {(row["family"], row["entry"]) for row in exported}
    return "\n".join([
        "## Results", "", part,
        f"{len(entries)} architectures, {len(exported)} exported models. ONNX Runtime runs {len(run)}; of those, "
        f"{len(disputed)} are disputed, and Mirlo is right on {len(right)} of the other {judged} "
        f"({100 * len(right) / max(judged, 1):.1f} %). {len(_with(run, 'crashed'))} crash.", "",
        f"Mirlo's time by ONNX Runtime's, geometric mean over all models and shapes: {_mean(_ratios(right)):.2f}; "
        f"compilation takes {statistics.median(row['compile_seconds'] for row in right):.1f} s at the median, "
        f"{max(row['compile_seconds'] for row in right):.0f} s at most." if right else "", "",
    ])  # fmt: skip


def _table(rows: list[Row]) -> str:
    lines = [
        "| family | exporter | dims | exported | ONNX Runtime runs | right | disputed | failed | time ratio |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for key in sorted({_key(row) for row in rows}):
        part = [row for row in rows if _key(row) == key and row["status"] != NOT_EXPORTED]
        run = [row for row in part if row["status"] != NOT_RUN]
        failed = [row for row in run if row["status"] in BAD]
        cells = (*key, len(part), len(run), len(_with(run, RIGHT)), len(_with(run, DISPUTED)), len(failed))
        ratios = _ratios(_with(run, RIGHT))
        lines.append(f"| {' | '.join(map(str, cells))} | {f'{_mean(ratios):.2f}' if ratios else ''} |")
    return "\n".join([*lines, ""])


def _failures(rows: list[Row]) -> str:
    lines = ["## What fails", ""]
    for title, statuses in (("Mirlo", BAD), ("Disputed", (DISPUTED,))):
        failures = [row for row in rows if row["status"] in statuses]
        if failures:
            lines += [f"### {title}", "", "| model | what happens | reason |", "| --- | --- | --- |"]
            lines += [
                f"| {row['model']} | {row['status']} | {_cell(row['reason'])}{difference_of(row['model'])} |"
                for row in _sorted(failures)
            ] + [""]
    for title, status in (("ONNX Runtime does not run", NOT_RUN), ("The exporter does not export", NOT_EXPORTED)):
        failures = [row for row in rows if row["status"] == status]
        if failures:
            counts = Counter(f"{row['family']}, {row['exporter']}, {row['variant']}" for row in failures)
            lines += [f"### {title}", "", "; ".join(f"{k}: {n}" for k, n in sorted(counts.items())) + ".", ""]
            lines += ["| model | reason |", "| --- | --- |"]
            lines += [f"| {row['model']} | {_cell(row['reason'], 120)} |" for row in _sorted(failures)] + [""]
    return "\n".join(lines)


def _slow(rows: list[Row]) -> str:
    slow = [(max(_ratios([row])), row) for row in rows if row["status"] == RIGHT and max(_ratios([row])) > SLOW]
    lines = [f"## Above {SLOW} of ONNX Runtime's time", "", "At one shape at least; milliseconds of each shape.", ""]
    lines += ["| model | ratio | Mirlo | ONNX Runtime | why |", "| --- | ---: | --- | --- | --- |"]
    for ratio, row in sorted(slow, key=lambda each: -each[0]):
        times = (" ".join(f"{ms:.3g}" for ms in row[key]) for key in ("mirlo_ms", "onnxruntime_ms"))
        lines.append(f"| {row['model']} | {ratio:.2f} | {' | '.join(times)} | {reason_of(row['model'])} |")
    return "\n".join([*lines, ""])


def _architectures(rows: list[Row]) -> str:
    """List each architecture: exports tried, and how many of them came to what."""
    lines = ["## By architecture", "", "The worst ratio of times, and the longest compilation, of all its exports.", ""]
    for family in sorted({row["family"] for row in rows}):
        lines += [f"### {family}", "", "| architecture | exports | right | not right | ratio | compilation |"]
        lines += ["| --- | ---: | ---: | --- | ---: | ---: |"]
        for name in sorted({row["entry"] for row in rows if row["family"] == family}, key=str.lower):
            part = [row for row in rows if (row["family"], row["entry"]) == (family, name)]
            right = _with(part, RIGHT)
            other = Counter(row["status"] for row in part if row["status"] != RIGHT)
            statuses = ", ".join(f"{count} {status}" for status, count in sorted(other.items()))
            ratio = f"{max(_ratios(right)):.2f}" if right else ""
            seconds = f"{max(row['compile_seconds'] for row in right):.1f} s" if right else ""
            lines.append(f"| {name} | {len(part)} | {len(right)} | {statuses} | {ratio} | {seconds} |")
        lines.append("")
    return "\n".join(lines)


def _key(row: Row) -> tuple[str, str, str]:
    return row["family"], row["exporter"], row["variant"]


def _with(rows: Iterable[Row], status: str) -> list[Row]:
    return [row for row in rows if row["status"] == status]


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["model"])


def _ratios(rows: Iterable[Row]) -> list[float]:
    return [a / b for row in rows for a, b in zip(row["mirlo_ms"], row["onnxruntime_ms"], strict=True)]


def _mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(each) for each in ratios)) if ratios else float("nan")


def _cell(text: str, length: int = 200) -> str:
    """Return text that fits a cell of a table, without the colors of terminals."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for old, new in (("|", "\\|"), ("<", "&lt;"), (">", "&gt;"), ("`", "'")):
        text = text.replace(old, new)
    return text if len(text) <= length else text[: length - 1] + "…"
