"""Compare the kernels of many models with their definitions, exactly: of published packages, the zoo, and folders.

    python -m benchmarks.verify_models [--target c] [--only TEXT ...] [--timeout SECONDS] [--minutes N]
    python -m benchmarks.verify_models --folder .cache/zoo      # models of a folder: what benchmarks.zoo exports
    python -m benchmarks.verify_models --write                  # moves runs to results/verify_models.jsonl, writes page

The packages are those of `make test-clients`, the smallest models first. A model that has a result for a target is not
compared again; `--again` compares those that were late, crashed or were not compiled. Verdicts of kernels that are
equal are kept, so that a model that was late goes on from there.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from mirlo.benchmarks.checkout import ROOT, WORK, commit
from mirlo.benchmarks.clients import packaged_models
from mirlo.benchmarks.run_records import append_record, move_records, read_records
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL, OUTSIDE
from mirlo.tools.fuzz.verdict import ACCEPTED, FAILED, SeedVerdict, verdict_of_error
from mirlo.tools.fuzz.workers import JobOutcome, run_jobs

COMMITTED = ROOT / "benchmarks" / "results" / "verify_models.jsonl"
"""A line for each model and target."""
RECENT = WORK / "verify_models.jsonl"
"""The same for the runs of this checkout that are not committed."""
KEPT = WORK / "verdicts"
"""The cache of the verdicts of kernels."""
PAGE = ROOT / "docs" / "exact.md"
BEGIN, END = "<!-- models -->\n", "<!-- end of models -->"
PACKAGES = "packages"
COMPARED, REFUSED, LATE, CRASHED = "compared", "not compiled", "late", "crashed"
"""The states of a model."""
MEMORY = 12 << 30


@dataclass(frozen=True)
class ModelFile:
    """A model's file."""

    group: str
    """`PACKAGES`, or the name of the folder."""
    name: str
    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size


@dataclass(frozen=True)
class ModelRun:
    """The comparison of a model's kernels for a target."""

    group: str
    model: str
    """The package or folder, and the file's path in it."""
    size: int
    target: str
    commit: str
    date: str
    seconds: float
    """Time of the clock, passes included, with what else ran on the machine."""
    state: str
    counts: dict[str, int]
    """Kernels by status."""
    reasons: dict[str, int]
    """Why kernels are not equal, with their number, or why the model was not compared."""


def models_of_packages() -> Iterator[ModelFile]:
    """Yield the models of the packages that are installed."""
    for each in packaged_models():
        yield ModelFile(PACKAGES, f"{each.package}/{each.name}", each.path)


def models_in(folder: Path) -> Iterator[ModelFile]:
    """Yield the models of a folder."""
    group = folder.resolve().name
    for path in sorted(folder.rglob("*.onnx")):
        yield ModelFile(group, f"{group}/{path.relative_to(folder)}", path)


def compare_model(models: Sequence[ModelFile], target: str, kept: Path, index: int) -> SeedVerdict:
    """Compare the kernels of one of the models in this process; the verdict's text is JSON.

    Verdicts of kernels that are equal are kept in the folder `kept`, also those of a model that is stopped.
    """
    from mirlo.tools.verify.model import verify_model

    try:
        verdicts = verify_model(str(models[index].path), target, tune=False, cache=kept).verdicts
    except Exception as error:
        return verdict_of_error(error)
    counts = Counter(each.status for each in verdicts)
    reasons = Counter(f"{each.status}: {each.why}" for each in verdicts if each.status != EQUAL)
    return SeedVerdict(ACCEPTED, json.dumps([counts, reasons]))


def run_models(
    models: Sequence[ModelFile], target: str, timeout: float, seconds: float, kept: Path = KEPT
) -> Iterator[ModelRun]:
    """Yield the comparison of each model, for which `timeout` seconds of processor time are permitted."""
    jobs = run_jobs(partial(compare_model, models, target, kept), range(len(models)), 1, timeout, MEMORY, seconds)
    for outcome in jobs:
        model = models[outcome.seed]
        state, counts, reasons = _result(outcome, model)
        date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
        yield ModelRun(
            model.group,
            model.name,
            model.size,
            target,
            commit(),
            date,
            round(outcome.seconds, 1),
            state,
            counts,
            reasons,
        )


def _result(outcome: JobOutcome, model: ModelFile) -> tuple[str, dict[str, int], dict[str, int]]:
    if outcome.result is None:
        crash = outcome.crash or ""
        return LATE if "no result" in crash else CRASHED, {}, {crash: 1}
    if outcome.result.state == ACCEPTED:
        counts, reasons = json.loads(outcome.result.text)
        return COMPARED, counts, reasons
    state = CRASHED if outcome.result.state == FAILED else REFUSED
    text = outcome.result.text.replace(str(model.path), model.path.name)
    return state, {}, {" ".join(text.split())[:300]: 1}


def read_runs(*paths: Path) -> dict[tuple[str, str], ModelRun]:
    """Return the last run of each model for each target."""
    return {(each.model, each.target): each for each in read_records(ModelRun, *paths)}


def write_runs() -> None:
    """Move the runs of this checkout to the file that is committed, and write the tables on the page."""
    runs = sorted(read_runs(COMMITTED, RECENT).values(), key=lambda run: (run.group, run.target, run.size, run.model))
    move_records(runs, RECENT, COMMITTED)
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    known = {run.model for run in runs}
    left = [model.name for model in models_of_packages() if model.name not in known]
    PAGE.write_text(f"{head}{BEGIN}{tables(runs, left)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def tables(runs: Sequence[ModelRun], left: Sequence[str] = ()) -> str:
    """Return how many models and kernels of each group were compared, then which models were not, and why.

    `left` are models that no run began.
    """
    lines = [
        "| models | target | compared | equal | different | outside | share equal | not compared |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for group, target in sorted({(run.group, run.target) for run in runs}):
        own = [run for run in runs if (run.group, run.target) == (group, target)]
        compared = [run for run in own if run.state == COMPARED]
        counts = sum((Counter(run.counts) for run in compared), Counter[str]())
        share = f"{100 * counts[EQUAL] / max(counts.total(), 1):.2f} %"
        cells = [
            group, f"`{target}`", len(compared), *(f"{counts[each]:,}" for each in (EQUAL, DIFFERENT, OUTSIDE)), share,
            len(own) - len(compared),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    dates, commits = sorted({run.date for run in runs}), list(dict.fromkeys(run.commit for run in runs))
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    lines += ["", f"Measured: `python -m benchmarks.verify_models`; {', '.join(commits)}; {when}."]
    lines += ["", *_list("Outside", _kernels_by_reason(runs))]
    lines += ["", *_list("Not compared", _models_by_reason(runs))]
    if left:
        lines += ["", f"{len(left)} models of packages were not begun: {', '.join(left)}."]
    return "\n".join(lines)


def _list(title: str, rows: Iterable[str]) -> list[str]:
    items = list(rows)
    return [f"{title}:", "", *(f"- {row}" for row in items)] if items else [f"{title}: none."]


def _kernels_by_reason(runs: Iterable[ModelRun]) -> Iterator[str]:
    counts: Counter[tuple[str, str]] = Counter()
    for run in runs:
        if run.state == COMPARED:
            for reason, count in run.reasons.items():
                counts[run.target, _shortened(reason)] += count
    for (target, reason), count in counts.most_common():
        yield f"`{target}`: {count} times {reason}"


def _models_by_reason(runs: Iterable[ModelRun]) -> Iterator[str]:
    models: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        if run.state != COMPARED:
            reason = _shortened("; ".join(run.reasons))
            models.setdefault((run.target, run.state, reason), []).append(f"{run.model} ({run.size / 2**20:.1f} MiB)")
    for (target, state, reason), names in models.items():
        yield f"`{target}`, {state}: {', '.join(names)}: {reason}"


def _shortened(reason: str) -> str:
    """Return a reason without the numbers of one model."""
    return re.sub(r"\d{3,}", "N", reason)[:200].replace("|", "\\|")


def main() -> int:
    """Compare models, or write the tables; the exit code is 1 if a kernel differs or a comparison crashes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="c", help="what models are compiled for (c)")
    parser.add_argument("--folder", type=Path, action="append", help="models of a folder in place of packages")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the models' names")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of processor time of a model")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after these")
    parser.add_argument("--again", action="store_true", help="compare again what was late, crashed or was not compiled")
    parser.add_argument("--write", action="store_true", help="write the record and the tables")
    arguments = parser.parse_args()
    if arguments.write:
        write_runs()
        return 0
    models = (
        [each for folder in arguments.folder for each in models_in(folder)]
        if arguments.folder
        else list(models_of_packages())
    )
    known = read_runs(COMMITTED, RECENT)
    left = sorted(
        (
            model
            for model in models
            if any(part in model.name for part in arguments.only) and _is_left(known, model, arguments)
        ),
        key=lambda model: (model.size, model.name),
    )
    wrong = []
    start = time.monotonic()
    for run in run_models(left, arguments.target, arguments.timeout, 60 * arguments.minutes):
        listed = ", ".join(f"{count} {status}" for status, count in run.counts.items()) or next(iter(run.reasons), "")
        print(f"{run.model} ({run.size:,} bytes): {run.state}: {listed}; {run.seconds:.1f} s", flush=True)
        append_record(RECENT, run)
        if run.counts.get(DIFFERENT) or run.state == CRASHED:
            wrong.append(run)
    print(f"{len(left)} models, {len(wrong)} with a kernel that differs or a crash; {time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


def _is_left(known: dict[tuple[str, str], ModelRun], model: ModelFile, arguments: argparse.Namespace) -> bool:
    run = known.get((model.name, arguments.target))
    return run is None or (arguments.again and run.state != COMPARED)


if __name__ == "__main__":
    raise SystemExit(main())
