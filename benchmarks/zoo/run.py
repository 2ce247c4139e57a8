"""The runner: every export and every comparison in a process of its own, results as JSON lines."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .entry import Variant
from .judge import NOT_RUN, REFERENCE_DONE

NOT_EXPORTED, CRASHED, TIMED_OUT = "not exported", "crashed", "timed out"
BAD = ("wrong", "call refused", "not compiled", CRASHED, TIMED_OUT)
"""What counts against Mirlo."""
PATIENCE = 4
"""Seconds of the clock for each second of CPU time, on a machine that others use too."""

ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Of all processes: no downloads, one thread."""


@dataclass(frozen=True)
class Limits:
    """Of a process: seconds of CPU time (of the clock PATIENCE times as many), and GiB of address space."""

    seconds: int
    gibibytes: int


@dataclass
class Run:
    """A folder of exported models and results."""

    folder: Path
    limits: Limits
    jobs: int = 1

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.results = self.folder / "results.jsonl"
        self.lock = threading.Lock()
        self.exporting = threading.local()

    def all(self, variants: list[Variant], again: bool, failed: bool) -> int:
        """Run what has no result yet, and return the exit code: 1 if anything counts against Mirlo."""
        known = read_results(self.results)
        left = [v for v in variants if v.name not in known or again or (failed and known[v.name]["status"] in BAD)]
        done = 0

        def one(variant: Variant) -> dict[str, Any]:
            nonlocal done
            row = self.one(variant)
            with self.lock:
                done += 1
                with self.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"[{done}/{len(left)}] {_summary(row)}", flush=True)
            return row

        with ThreadPoolExecutor(self.jobs) as pool:
            rows = list(pool.map(one, left))
        bad = [row["model"] for row in rows if row["status"] in BAD]
        if bad:
            print(f"{len(bad)} of {len(rows)} failed: {', '.join(bad)}")
        return 1 if bad else 0

    def one(self, variant: Variant) -> dict[str, Any]:
        """Export a model where that is not done yet, and compare it."""
        row: dict[str, Any] = {"model": variant.name, "family": variant.entry.family, "entry": variant.entry.name,
                               "exporter": variant.exporter, "variant": variant.shapes,
                               "commit": _commit()}  # fmt: skip
        path = self.folder / f"{variant.name}.onnx"
        start = time.monotonic()
        if not path.exists():
            code, errors = self._export(variant)
            if code != 0 or not path.exists():
                return {**row, "status": NOT_EXPORTED, "reason": _last(errors, code)}
        row["export_seconds"] = round(time.monotonic() - start, 1)
        code, output, errors = self._process("benchmarks.zoo.judge", str(path))
        if code == 0:
            return {**row, **json.loads(output.splitlines()[-1])}
        if REFERENCE_DONE not in output and code is not None:
            return {**row, "status": NOT_RUN, "reason": f"ONNX Runtime ends the process: {_last(errors, code)}"}
        status = TIMED_OUT if code is None else CRASHED
        return {**row, "status": status, "reason": _last(errors, code)}

    def _export(self, variant: Variant) -> tuple[int, str]:
        """Export a model in a fork of this thread's exporting process; return the exit code and what it printed."""
        server = getattr(self.exporting, "server", None)
        if server is None or server.poll() is not None:
            command = [sys.executable, "-m", "benchmarks.zoo.exporting", str(self.folder)]
            server = self.exporting.server = subprocess.Popen(
                [*command, str(self.limits.seconds), str(self.limits.gibibytes)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env={**os.environ, **ENVIRONMENT},
            )  # fmt: skip
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(f"{variant.name}\n")
        server.stdin.flush()
        line = server.stdout.readline()
        if not line:
            return server.wait(), "the exporting process ended: `python -m benchmarks.zoo.exporting . 60 8` says why"
        answer = json.loads(line)
        return answer["code"], answer["errors"]

    def _process(self, module: str, *arguments: str) -> tuple[int | None, str, str]:
        """Run a module within the limits; the exit code is None where it took too long."""
        size, seconds = self.limits.gibibytes << 30, self.limits.seconds

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))

        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            env={**os.environ, **ENVIRONMENT},
            preexec_fn=limit,
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=PATIENCE * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, "", f"took more than {PATIENCE * seconds} s"
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None, "", f"took more than {seconds} s of CPU time"
        return process.returncode, output, errors


def _commit() -> str:
    """Return the commit of this checkout, with `+` if files differ from it; nothing outside of one."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the newest row of each model."""
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {row["model"]: row for row in rows}


def _last(errors: str, code: int | None) -> str:
    """Return the line of a traceback that says what went wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception", "Failure"))]
    named = [line for line in named if "TorchExportError: Failed" not in line] or named  # its cause says more
    cause = 0 if any("direct cause" in line for line in lines) else -1
    text = (named or lines or ["no message"])[cause]
    if code in (-signal.SIGALRM, -signal.SIGXCPU, -signal.SIGKILL):
        return text
    return f"exit code {code}: {text}"[:400] if code is not None and code < 0 else text[:400]


def _summary(row: dict[str, Any]) -> str:
    if row.get("mirlo_ms"):
        ratios = " ".join(f"{a / b:.2f}" for a, b in zip(row["mirlo_ms"], row["onnxruntime_ms"], strict=True))
        return f"{row['model']}: {row['status']}, {row['compile_seconds']:.1f} s, {ratios} {row['reason']}"
    return f"{row['model']}: {row['status']}: {row['reason']}"
