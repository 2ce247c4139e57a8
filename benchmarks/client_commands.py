"""Run all commands that open a model over the models of published packages: none may end in an internal error.

    make test-clients
    python -m benchmarks.client_commands [--only TEXT ...] [--timeout SECONDS] [--minutes N]   # the smallest first
    python -m benchmarks.client_commands --write      # moves them to results/client_commands.jsonl, writes the page

A model that ran at this commit does not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from mirlo.benchmarks.checkout import ROOT, WORK, commit
from mirlo.benchmarks.clients import PackagedModel, packaged_models
from mirlo.benchmarks.run_records import append_record, move_records, read_records
from mirlo.tools.fuzz.verdict import ACCEPTED, FAILED, REFUSED, SeedVerdict
from mirlo.tools.fuzz.workers import JobOutcome, run_jobs

COMMITTED = ROOT / "benchmarks" / "results" / "client_commands.jsonl"
"""A line for each model."""
RECENT = WORK / "client_commands.jsonl"
"""The same for the runs of this checkout that are not committed."""
PAGE = ROOT / "docs" / "onnxruntime-clients.md"
LATE = "late"
"""The state of a command that the limit of time ended."""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "info": (), "check": (), "import": ("-o", "out.mlir"), "explain": (), "compile": ("-o", "out.mirlo"),
    "partition": ("--target", "onednn,llvm"), "explorer": ("-o", "out.html"), "run": (), "verify": (),
    "quantize": ("-o", "out.onnx"),
}  # fmt: skip
"""All commands that open a model, with their arguments; `explorer` measures the model that `compile` has cached."""


@dataclass(frozen=True)
class CommandRun:
    """The outcomes of all commands on a model."""

    model: str
    """The package, and the name of the file in it."""
    size: int
    commit: str
    date: str
    seconds: dict[str, float]
    """By command, its time."""
    outcomes: dict[str, str]
    """By command, its state, and after a colon what it says if that is an error."""


def command_line(command: str, model: Path, folder: Path) -> list[str]:
    """Return the arguments of `mirlo` for a command on a model, which writes to the folder."""
    return [command, str(model), *(str(folder / each) if "." in each else each for each in COMMANDS[command])]


def is_internal_error(code: int, errors: str) -> bool:
    """Return whether a command ended in an error that is not the user's, by its exit code and standard error.

    Errors of users are an operator that is not supported, or a model that needs sizes.
    """
    return code not in (0, 1) or "internal error" in errors or "this is a bug" in errors or "Traceback" in errors


def run_command(pairs: Sequence[tuple[str, Path]], folder: Path, index: int) -> SeedVerdict:
    """Run one of the commands in this process."""
    from mirlo.tools.cli import main as mirlo

    command, model = pairs[index]
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = mirlo(command_line(command, model, folder))
    text = errors.getvalue()
    state = FAILED if is_internal_error(code, text) else ACCEPTED if code == 0 else REFUSED
    return SeedVerdict(state, "" if state == ACCEPTED else text if state == FAILED else _message(text))


def _message(errors: str) -> str:
    """Return the line of an error."""
    lines = [line for line in errors.splitlines() if re.match(r"mirlo\w*: error", line)]
    return (lines or errors.strip().splitlines() or [""])[0][:300]


def run_models(models: Iterable[PackagedModel], timeout: float, folder: Path) -> Iterator[CommandRun]:
    """Yield what the commands make of each model; one has `timeout` seconds of processor time."""
    for model in models:
        pairs = [(command, model.path) for command in COMMANDS]
        done = list(run_jobs(partial(run_command, pairs, folder), range(len(pairs)), 1, timeout))
        yield CommandRun(
            f"{model.package}/{model.name}", model.path.stat().st_size, commit(),
            f"{datetime.now(timezone.utc):%Y-%m-%d}", {pairs[each.seed][0]: round(each.seconds, 1) for each in done},
            {pairs[each.seed][0]: _outcome(each, model.path, folder) for each in done},
        )  # fmt: skip


def _outcome(outcome: JobOutcome, model: Path, folder: Path) -> str:
    if outcome.result is None:
        state = LATE if "no result" in (outcome.crash or "") else FAILED
        return f"{state}: {outcome.crash}"
    text = outcome.result.text.replace(str(model), model.name).replace(f"{folder}/", "").replace(f"{ROOT}/", "")
    return f"{outcome.result.state}: {text}" if text else outcome.result.state


def read_runs(*paths: Path) -> dict[str, CommandRun]:
    """Return the last run of each model."""
    return {each.model: each for each in read_records(CommandRun, *paths)}


def write_runs() -> None:
    """Move the runs of this checkout to the file that is committed, and write the table on the page."""
    runs = sorted(read_runs(COMMITTED, RECENT).values(), key=lambda run: (run.size, run.model))
    move_records(runs, RECENT, COMMITTED)
    head, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- commands -->\n")
    tail = rest.partition("<!-- end of commands -->")[2]
    PAGE.write_text(f"{head}<!-- commands -->\n{table(runs)}\n<!-- end of commands -->{tail}", encoding="utf-8")


def table(runs: Sequence[CommandRun]) -> str:
    """Return how many models each command takes, with the errors of the others."""
    lines = [
        "| command | done | refused | late | internal errors | longest | what is refused |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for command in COMMANDS:
        outcomes = [run.outcomes[command].partition(": ") for run in runs if command in run.outcomes]
        states = Counter(state for state, _, _ in outcomes)
        reasons = Counter(_reason(text) for state, _, text in outcomes if state == REFUSED)
        longest = max((run.seconds.get(command, 0.0) for run in runs), default=0.0)
        numbers = " | ".join(str(states[each]) for each in (ACCEPTED, REFUSED, LATE, FAILED))
        texts = "; ".join(f"{count} times: {text}" for text, count in reasons.most_common(3))
        lines.append(f"| `{command}` | {numbers} | {longest:.0f} s | {texts} |")
    packages = {run.model.partition("/")[0] for run in runs}
    dates, commits = sorted({run.date for run in runs}), sorted({run.commit for run in runs})
    count = (
        f"{len(runs)} models of {len(packages)} packages, up to {max((run.size for run in runs), default=0) >> 20} MiB"
    )
    when = f"{dates[0]} to {dates[-1]}" if len(dates) > 1 else "".join(dates)
    return "\n".join([*lines, "", f"{count}; {when}, at {', '.join(commits)}."])


def _reason(text: str) -> str:
    """Return what an error says of all models, without the file, nodes and numbers."""
    text = re.sub(r"^mirlo\w*: error(\[\w+\])?: ([^:]*\.\w+: )?", "", text)
    return re.sub(r"'[^']*'", "'...'", re.sub(r"\d+", "N", text))[:160].replace("|", "\\|")


def problems(runs: Iterable[CommandRun]) -> list[str]:
    """Return the commands that ended in an internal error."""
    commands: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        for command, outcome in run.outcomes.items():
            if outcome.startswith(f"{FAILED}: "):
                commands[outcome].append(f"{command} {run.model}")
    return [f"{', '.join(where)}: {outcome}" for outcome, where in commands.items()]


def main() -> int:
    """Run the commands, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the paths of the files")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of processor time of a command")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no model after these")
    parser.add_argument("--write", action="store_true", help="write the record and the table")
    arguments = parser.parse_args()
    if arguments.write:
        write_runs()
        return 0
    end, at = time.monotonic() + 60 * arguments.minutes, commit()
    done = {name for name, run in read_runs(COMMITTED, RECENT).items() if run.commit == at}
    models = sorted(packaged_models(), key=lambda model: model.path.stat().st_size)
    chosen = [model for model in models if any(part in f"{model.package}/{model.name}" for part in arguments.only)]
    left = [model for model in chosen if f"{model.package}/{model.name}" not in done]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for run in run_models((model for model in left if time.monotonic() < end), arguments.timeout, Path(folder)):
            states = " ".join(f"{name}={text.partition(':')[0]}" for name, text in run.outcomes.items())
            print(f"{run.model} ({run.size:,} bytes): {states}; {sum(run.seconds.values()):.0f} s", flush=True)
            append_record(RECENT, run)
            runs.append(run)
    print("\n".join(problems(runs)) or f"{len(runs)} models, no internal error")
    return 1 if problems(runs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
