"""Runs a folder that was built: every unit in a process that may die, within a time, what is done is not done again.

    python -m benchmarks.gpu --run FOLDER [--minutes 8] [--only WORD...] [--sanitizer memcheck] [--again]

`FOLDER/results.json` has what was found, with `FOLDER/results.md` as tables of it; another run goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from .child import DEVICE, MARK
from .report import markdown, one_line
from .unit import Kit, KitError, Unit

BANNER = ("COMPUTE-SANITIZER", "SUMMARY", "Error: process didn't terminate", "Target application terminated")
"""Lines of compute-sanitizer that are no finding."""
CHILD = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from benchmarks.gpu.child import main
sys.exit(main())
"""
"""What a process that runs units executes: with `-m`, it would import a package `benchmarks` of the current folder."""
SLOWER = 20.0
"""How many times as long units take under it."""


@dataclass
class Options:
    """How a folder is run."""

    minutes: float = 0.0
    """After so long no unit is started; 0 for as long as it takes."""
    only: Sequence[str] = ()
    sanitizer: str = ""
    again: bool = False
    checks_only: bool = False
    inductor: bool = False
    command: Sequence[str] = field(default_factory=lambda: [sys.executable, "-c", CHILD])


class Child:
    """A process that runs units."""

    def __init__(self, folder: Path, options: Options) -> None:
        tool = sanitizer_command(options.sanitizer)
        flags = ["--checks-only"] if options.checks_only or tool else []
        flags += ["--inductor"] if options.inductor else []
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - `end` closes it
        self._process = subprocess.Popen(
            [*tool, *options.command, str(folder), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        self._lines: Queue[str | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    @property
    def is_alive(self) -> bool:
        """Return whether it accepts another unit."""
        return self._process.poll() is None

    def ask(self, name: str, seconds: float) -> dict[str, Any]:
        """Return the result of a unit, or what happened if there is none."""
        assert self._process.stdin is not None
        output: deque[str] = deque(maxlen=30)
        findings: list[str] = []
        try:
            self._process.stdin.write(json.dumps(name) + "\n")
            self._process.stdin.flush()
        except OSError:
            return self._died(output, findings)
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(end - time.monotonic(), 0.001))
            except Empty:
                self.end()
                return {"status": "timeout", "detail": f"after {seconds:.0f} s", "findings": findings}
            if line is None:
                return self._died(output, findings)
            if line.startswith(MARK):
                return _with_findings(json.loads(line[len(MARK) :]), findings)
            if line.startswith("=========") and not any(word in line for word in BANNER):
                findings.append(line.strip("= "))
            elif line:
                output.append(line)

    def _died(self, output: deque[str], findings: list[str]) -> dict[str, Any]:
        code = self._process.wait()
        self._errors.seek(0)
        tail = [*output, *self._errors.read().splitlines()[-12:]]
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return {"status": "died", "detail": f"the process ended: {how}", "output": tail, "findings": findings}

    def end(self) -> None:
        """End the process."""
        if self.is_alive:
            self._process.kill()
        # One that a driver holds on to may not end: it is left behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=20)
        self._errors.close()


def _with_findings(row: dict[str, Any], findings: list[str]) -> dict[str, Any]:
    lines = [line for line in findings if line]
    if not lines:
        return row
    status = "unclean" if row["status"] == "ok" else row["status"]
    return {**row, "status": status, "findings": lines[:40], "detail": row.get("detail") or lines[0]}


def sanitizer_command(tool: str) -> list[str]:
    """compute-sanitizer with one of its tools in front of a command; nothing without a tool."""
    if not tool:
        return []
    candidates = Path("/usr/local").glob("cuda*/bin/compute-sanitizer")
    program = shutil.which("compute-sanitizer") or next(map(str, candidates), "")
    if not program:
        raise KitError("there is no compute-sanitizer on this machine: it comes with CUDA's tools")
    return [program, "--tool", tool, "--print-limit", "20"]


class Results:
    """What was found so far, in a file of the folder."""

    def __init__(self, folder: Path, sanitizer: str) -> None:
        name = f"results-{sanitizer}" if sanitizer else "results"
        self.file = folder / f"{name}.json"
        self.page = folder / f"{name}.md"
        self.rows: dict[str, dict[str, Any]] = {}
        self.device: dict[str, Any] = {}
        if self.file.exists():
            held = json.loads(self.file.read_text(encoding="utf-8"))
            self.rows, self.device = held["units"], held["device"]

    def write(self, kit: Kit) -> None:
        """Write both files after each measurement, so that an interrupted run keeps its results."""
        held = {"target": kit.target, "date": time.strftime("%Y-%m-%d"), "device": self.device, "units": self.rows}
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(held, indent=1), encoding="utf-8")
        part.replace(self.file)
        self.page.write_text(markdown(kit, held), encoding="utf-8")


def run(folder: Path, options: Options) -> int:
    """Run the units that have no result yet; return the number of units with wrong results."""
    kit = Kit.read(folder)
    chosen = kit.chosen(options.only)
    if not chosen:
        raise KitError(f"no unit's name has one of {', '.join(options.only)} in it")
    if options.sanitizer:
        chosen = [unit for unit in chosen if unit.is_small]
    results = Results(folder, options.sanitizer)
    left = [unit for unit in chosen if options.again or unit.name not in results.rows]
    start = time.monotonic()
    child = Child(folder, options)
    try:
        results.device = child.ask(DEVICE, 180.0 * (SLOWER if options.sanitizer else 1))
        if results.device["status"] not in ("ok", "unclean"):
            raise KitError(f"there is no GPU to run on: {results.device['detail']}")
        print(f"{kit.target}, made {kit.made}, on {results.device.get('name', 'a GPU')}: {len(left)} units", flush=True)
        for done, unit in enumerate(left):
            spent = time.monotonic() - start
            if options.minutes and spent > 60 * options.minutes:
                print(f"{len(left) - done} units are left after {spent / 60:.1f} minutes: run it again to go on")
                break
            if not child.is_alive:
                child.end()
                child = Child(folder, options)
            results.rows[unit.name] = row = child.ask(unit.name, _limit(unit, options, spent))
            results.write(kit)
            print(f"[{done + 1}/{len(left)} {time.monotonic() - start:.0f} s] {one_line(unit, row)}", flush=True)
    finally:
        child.end()
        results.write(kit)
    print(f"\n{results.page.read_text(encoding='utf-8')}")
    bad = [unit.name for unit in chosen if results.rows.get(unit.name, {"status": "ok"})["status"] != "ok"]
    print(f"{sum(unit.name in results.rows for unit in chosen)} of {len(chosen)} units run, {len(bad)} not right; "
          f"{results.page}")  # fmt: skip
    return len(bad)


def _limit(unit: Unit, options: Options, spent: float) -> float:
    """Return the seconds for a unit: its own limit, and at most half a minute after the end of the run."""
    seconds = unit.seconds * (SLOWER if options.sanitizer else 1.0)
    return min(seconds, 60 * options.minutes - spent + 30) if options.minutes else seconds
