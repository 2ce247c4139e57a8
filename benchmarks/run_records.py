"""Runs of benchmarks that are resumed, as lines of JSON: those of this checkout, and those that are committed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

Run = TypeVar("Run")


def read_records(make: Callable[..., Run], *paths: Path) -> list[Run]:
    """Return the runs in files, in order; files that do not exist have none."""
    lines = [line for path in paths if path.exists() for line in path.read_text(encoding="utf-8").splitlines()]
    return [make(**json.loads(line)) for line in lines]


def append_record(path: Path, run: Any) -> None:
    """Add a run, a dataclass, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(run)) + "\n")


def move_records(runs: Iterable[Any], recent: Path, committed: Path) -> None:
    """Write all runs to the file that is committed, and remove that of this checkout."""
    committed.write_text("".join(json.dumps(asdict(each)) + "\n" for each in runs), encoding="utf-8")
    recent.unlink(missing_ok=True)
