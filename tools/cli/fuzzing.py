"""`mirlo fuzz`: tests with random models and hostile input."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TypedDict

from mirlo.passes.byoc.target_list import Targets
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.errors import CommandError
from mirlo.tools.cli.progress import Progress
from mirlo.tools.fuzz.modes import CRASHED, MODES, Mode
from mirlo.tools.fuzz.workers import run_jobs
from mirlo.tools.tables import columns

DISPUTED = "disputed"


class SeedFinding(TypedDict):
    """A seed that shows a bug."""

    seed: int
    state: str
    what: str


class FuzzReport(TypedDict):
    """What `--json` prints."""

    subject: str
    first_seed: int
    count: int
    states: dict[str, int]
    seconds: float
    longest: float
    used: dict[str, int]
    found: list[SeedFinding]
    disputed: list[SeedFinding]


def _mode(arguments: Arguments) -> Mode:
    """Return the mode of the subject; a target must be one that it takes."""
    mode = MODES[arguments.subject]
    flags = [flag for flag in ("target", "opt_level") if getattr(arguments, flag) is not None]
    if not mode.takes_target and flags:
        takes = ", ".join(name for name, each in MODES.items() if each.takes_target)
        flag = flags[0].replace("_", "-")
        raise CommandError(f"--{flag} is for {takes}: '{arguments.subject}' makes no code for a target of choice")
    if arguments.target is None:
        return mode

    Targets.parse(arguments.target)
    return mode


def execute(arguments: Arguments) -> None:
    """Run the seeds and print failures, each of which is an error."""
    mode = _mode(arguments)
    seconds = None if arguments.minutes is None else arguments.minutes * 60
    seeds = count(arguments.seed) if seconds else range(arguments.seed, arguments.seed + arguments.count)
    # Imported here, before processes are forked: each of them would do it again.
    import mirlo.driver.compile  # noqa: F401

    job = mode.job(arguments.target, arguments.threads, arguments.opt_level)
    findings: list[SeedFinding] = []
    disputed: list[SeedFinding] = []
    counts: Counter[str] = Counter()
    used: Counter[str] = Counter()
    longest, start = 0.0, time.monotonic()
    outcomes = run_jobs(job, seeds, arguments.processes, arguments.timeout, mode.memory, seconds)
    with closing(outcomes), Progress(f"fuzzing {arguments.subject}", arguments.verbose) as progress:
        for outcome in outcomes:
            state = CRASHED if outcome.result is None else outcome.result.state
            counts[state] += 1
            longest = max(longest, outcome.seconds)
            if outcome.result is not None:
                used.update(outcome.result.used)
            if state in (*mode.bugs, DISPUTED):
                what = outcome.crash or (outcome.result.text if outcome.result else "")
                entry: SeedFinding = {"seed": outcome.seed, "state": state, "what": what}
                (disputed if state == DISPUTED else findings).append(entry)
            progress(f"{counts.total()} so far: {', '.join(f'{n} {s}' for s, n in counts.items())}")
    report: FuzzReport = {
        "subject": arguments.subject, "first_seed": arguments.seed, "count": counts.total(), "states": dict(counts),
        "seconds": round(time.monotonic() - start, 1), "longest": round(longest, 2), "used": dict(used.most_common()),
        "found": findings, "disputed": disputed,
    }  # fmt: skip
    print(json.dumps(report, indent=2) if arguments.json else "\n".join(_lines(report)))
    sys.stdout.flush()
    if arguments.output is not None:
        for entry in findings:
            mode.write(entry["seed"], Path(arguments.output) / f"{arguments.subject}-{entry['seed']}")
    if findings:
        raise CommandError(f"{len(findings)} of {counts.total()} seeds show a bug")


def _lines(report: FuzzReport) -> Iterator[str]:
    mode = MODES[report["subject"]]
    meanings = {**mode.states, CRASHED: "the process ended, or gave no result in time"}
    yield (
        f"{report['count']} {report['subject']} from seed {report['first_seed']} in {report['seconds']:.0f} s, "
        f"the longest {report['longest']:.1f} s"
    )
    rows = [(f"  {count}", state, meanings[state]) for state, count in report["states"].items()]
    yield from columns(rows, numbers={0})
    yield f"{mode.used}: " + ", ".join(f"{name} {count}" for name, count in report["used"].items())
    for entry in (*report["found"], *report["disputed"]):
        yield f"seed {entry['seed']}: {entry['state']}: {entry['what']}"
