"""ONNX's own backend suite, run in processes of its own: a case that crashes or hangs costs only itself.

python test/conformance/onnx_suite.py            # the totals, and each case that fails
python test/conformance/onnx_suite.py --write    # the list of known failures anew; with --only PATTERN, those cases
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median
from typing import Any

KNOWN_FAILURES = Path(__file__).with_name("onnx_known_failures.txt")
SECONDS_PER_CASE = 300
CASES_PER_PROCESS = 400
"""A process that ran this many is replaced by a new one, so that what cases leave behind stays bounded."""

PASSED, UNSUPPORTED, WRONG, BROKEN, CRASHED, HANGS = "passed", "unsupported", "wrong", "broken", "crashed", "hangs"

REASONS = (
    ("sequences and optionals", r"sequence|optional|'seq\(|Sequence"),
    ("strings", r"string|StringNormalizer|RegexFullMatch|StringConcat|StringSplit"),
    ("decoding of images", r"ImageDecoder"),
    ("ai.onnx.ml", r"domain ai\.onnx\.ml"),
    ("training", r"Gradient"),
    (
        "needs shapes known at run time",
        r"must be a constant|must be known|known at run time only|depends on data"
        r"|number for each dim|dims that are numbers|size is not known",
    ),
)
"""Why a case is not supported, by what its error says; others have the reason 'not supported yet'."""
OTHER = "not supported yet"
EXCUSED = (
    ("nearer to the exact result than the reference, which rounds to f16 on the way", r"^test_attention_.*fp16"),
    ("right, but the suite fails to compare sequences with elements of rank 0", r"^test_loop16_seq_none_"),
    ("random numbers, which the reference draws without the seed", r"^test_bernoulli_"),
)
"""Results that differ where the reference is the one that is off, by name."""


@dataclass(frozen=True)
class Outcome:
    name: str
    status: str
    message: str
    seconds: float
    processor_seconds: float = 0.0
    """What it took of a processor, which other work on the machine does not change much."""

    @property
    def reason(self) -> str:
        if self.status in (WRONG, BROKEN):
            return next((reason for reason, pattern in EXCUSED if re.search(pattern, self.name)), self.status)
        if self.status != UNSUPPORTED:
            return self.status
        return next((reason for reason, pattern in REASONS if re.search(pattern, self.message)), OTHER)


def load_suite(whole: bool = True) -> dict[str, unittest.TestCase]:
    """Return the cases of the suite for the CPU, by name; whole models, which take longest, come first."""
    import onnx
    from nearer import is_nearer
    from node_cases import leave_out_slow_cases
    from onnx.backend.test import BackendTest

    from mirlo.onnx_backend import MirloBackend, MirloBackendRep

    class VerifyingBackend(MirloBackend):
        """The backend, which also compares each kernel with its definition; a difference is an error."""

        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> MirloBackendRep:
            return super().prepare(model, device, verify=True, **options)

    if not whole:
        leave_out_slow_cases()
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        groups = BackendTest(VerifyingBackend, __name__).test_cases
    found = {}
    for _, group in sorted(groups.items(), key=lambda item: "Real" not in item[0]):
        for name in unittest.defaultTestLoader.getTestCaseNames(group):
            if name.endswith("_cpu"):
                found[name] = group(name)
                found[name].is_better = is_nearer
    return found


def run_suite(suite: dict[str, unittest.TestCase], names: Sequence[str], processes: int = 2) -> list[Outcome]:
    """Run cases; those that come first are started first. What they print is thrown away."""
    context = multiprocessing.get_context("fork")
    pending = list(reversed(names))
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ["ONNX_HOME"] = home  # the suite writes its light models there
        workers = [_Worker(context, suite) for _ in range(min(processes, len(pending)))]
        while workers:
            for worker in workers:
                if worker.running is None and pending:
                    worker.start(pending.pop())
            workers = [worker for worker in workers if worker.running is not None or worker.stop()]
            wait([worker.pipe for worker in workers], timeout=1)
            outcomes += [outcome for worker in workers if (outcome := worker.poll()) is not None]
    return sorted(outcomes, key=lambda outcome: outcome.name)


class _Worker:
    """A process that runs one case after the other, and is replaced when it dies."""

    def __init__(self, context: Any, suite: dict[str, unittest.TestCase]) -> None:
        self.context = context
        self.suite = suite
        self.running: str | None = None
        self._spawn()

    def _spawn(self) -> None:
        self.pipe, far = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(far, self.suite), daemon=True)
        self.process.start()
        far.close()
        self.count = 0

    def start(self, name: str) -> None:
        if self.count >= CASES_PER_PROCESS:
            self.stop()
            self._spawn()
        self.count += 1
        self.running, self.began = name, time.monotonic()
        self.pipe.send(name)

    def poll(self) -> Outcome | None:
        """Return the outcome of the running case, if there is one by now."""
        assert self.running is not None
        name, seconds = self.running, time.monotonic() - self.began
        outcome = None
        if self.pipe.poll():
            try:
                outcome = Outcome(name, *self.pipe.recv())
            except EOFError:
                self.process.join()
                outcome = Outcome(name, CRASHED, f"exit code {self.process.exitcode}", seconds)
                self._spawn()
        elif seconds > SECONDS_PER_CASE:
            self.process.kill()
            outcome = Outcome(name, HANGS, f"no end after {SECONDS_PER_CASE} seconds", seconds)
            self._spawn()
        if outcome is not None:
            self.running = None
        return outcome

    def stop(self) -> None:
        """End the process, which waits for a case; it would not notice that the pipe is closed, as others have it."""
        self.pipe.send(None)
        self.process.join(5)
        self.pipe.close()


def _serve(pipe: Connection, suite: dict[str, unittest.TestCase]) -> None:
    faulthandler.disable()
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    sys.stdout = sys.stderr = io.StringIO()
    warnings.simplefilter("ignore")
    while True:
        try:
            name = pipe.recv()
        except (EOFError, OSError):
            name = None
        if name is None:
            os._exit(0)
        began = time.perf_counter(), time.process_time()
        status, message = _run(suite[name])
        pipe.send((status, message, time.perf_counter() - began[0], time.process_time() - began[1]))


def _run(case: unittest.TestCase) -> tuple[str, str]:
    from mirlo.runtime.errors import MirloError

    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            getattr(case, case._testMethodName)()
    except MirloError as error:
        return UNSUPPORTED, str(error)
    except AssertionError as error:
        is_better = getattr(case, "is_better", None)
        return (PASSED, "") if is_better is not None and is_better(case._testMethodName) else (WRONG, str(error))
    except BaseException as error:  # whatever it is, it is the finding
        return BROKEN, f"{type(error).__name__}: {error}"
    return PASSED, ""


def known_failures(listed: Path = KNOWN_FAILURES) -> dict[str, str]:
    """Return the cases that are known to fail, with the reason."""
    found: dict[str, str] = {}
    reason = ""
    if not listed.exists():
        return found
    for line in listed.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            reason = line[3:].rsplit(" (", 1)[0]
        elif line and not line.startswith("#"):
            found[line] = reason
    return found


def listed_version() -> str:
    """Return the version of onnx whose cases the list is about."""
    found = re.search(r"\(onnx (\S+)\)", KNOWN_FAILURES.read_text(encoding="utf-8"))
    return found[1] if found else ""


def onnx_version() -> str:
    import onnx

    return str(onnx.__version__)


def known_failures_text(failures: Mapping[str, str], cases: int) -> str:
    """Return the file of known failures, of reasons by name."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in failures.items():
        by_reason[reason].append(name)
    lines = [
        "# Cases of ONNX's backend suite that do not pass, by reason. The list may only shrink.",
        "# Written by test/conformance/onnx_suite.py --write",
        f"# {cases - len(failures)} of {cases} cases pass (onnx {onnx_version()})",
    ]
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        lines += ["", f"## {reason} ({len(names)})", *sorted(names)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the list of known failures")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--listed", action="store_true", help="only cases that are listed as failures")
    parser.add_argument("--step", type=int, default=1, help="every second case with 2, and so on")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--slow", type=int, default=0, help="show this many of the slowest cases")
    options = parser.parse_args()
    suite = load_suite(whole=options.step == 1)
    listed = known_failures()
    names = [name for name in suite if re.search(options.only, name) and (name in listed or not options.listed)]
    names = names[options.step - 1 :: options.step]  # a part begins after the whole models, which take longest
    began = time.monotonic()
    outcomes = run_suite(suite, names, options.processes)
    for outcome in outcomes:
        if outcome.status != PASSED:
            print(f"{outcome.name}: {outcome.status}: {outcome.message[:400]!r}")
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.seconds)[: options.slow]:
        print(f"{outcome.seconds:.2f} s: {outcome.name}")
    wall = median([outcome.seconds for outcome in outcomes] or [0])
    processor = median([outcome.processor_seconds for outcome in outcomes] or [0])
    totals = ", ".join(f"{count} {reason}" for reason, count in Counter(o.reason for o in outcomes).most_common())
    medians = f"median {wall * 1e3:.0f} ms, {processor * 1e3:.0f} ms of a processor"
    print(f"{totals}; {medians}, {time.monotonic() - began:.0f} s in all")
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes]), encoding="utf-8")
    if options.write:
        ran = {outcome.name for outcome in outcomes}
        kept = {name: reason for name, reason in listed.items() if name in suite and name not in ran}
        failures = {outcome.name: outcome.reason for outcome in outcomes if outcome.status != PASSED}
        KNOWN_FAILURES.write_text(known_failures_text({**kept, **failures}, len(suite)), encoding="utf-8")


if __name__ == "__main__":
    main()
