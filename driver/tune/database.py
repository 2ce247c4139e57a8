"""The database of tuned choices: one JSON file, shared by models and runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import read_regular, write_regular
from mirlo.runtime.records import dataclass

VERSION = 1


class DatabaseError(MirloError):
    """A file that is not a database, or cannot be read or written."""

    error_code = "MIR0604"
    remedy = "Name a database that `mirlo tune` wrote with this version."


@dataclass(frozen=True)
class TuningEntry:
    """The stored result of a kernel."""

    values: dict[str, int]
    """The best choices; empty where the target's own are."""
    ratio: float
    """Time with them to time without, in one run."""
    microseconds: float
    """Time without them."""
    function: str
    """What the kernel was called when it was measured."""
    trials: int


class Database:
    """Entries by the key of a kernel. Several processes may add to one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.entries: dict[str, TuningEntry] = self._read()

    def find(self, key: str) -> Mapping[str, int] | None:
        """Return the best known choices, for the pass `apply-tuning`."""
        entry = self.entries.get(key)
        return entry.values if entry is not None else None

    def with_prefix(self, prefix: str) -> Mapping[str, Mapping[str, int]]:
        """Return the choices of all entries whose keys begin with a text, by the rest of their keys."""
        return {
            key.removeprefix(prefix): entry.values
            for key, entry in self.entries.items()
            if key.startswith(prefix) and entry.values
        }

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, key: str, entry: TuningEntry) -> None:
        """Add an entry, also to the file; keep the entries that other processes added."""
        self.entries = {**self._read(), **self.entries, key: entry}
        content = {"version": VERSION, "entries": {name: asdict(tuned) for name, tuned in self.entries.items()}}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_regular(self.path, json.dumps(content, indent=1) + "\n")
        except OSError as error:
            raise DatabaseError(f"cannot write '{self.path}': {error.strerror or error}") from error

    @property
    def digest(self) -> str:
        """Return a digest of the choices."""
        chosen = sorted((key, sorted(entry.values.items())) for key, entry in self.entries.items() if entry.values)
        return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:16]

    def _read(self) -> dict[str, TuningEntry]:
        if not self.path.exists():
            return {}
        try:
            data = json.loads(read_regular(self.path))
            if data["version"] != VERSION:
                raise DatabaseError(f"'{self.path}' is of version {data['version']}; this Mirlo reads {VERSION}")
            return {key: _entry(entry) for key, entry in data["entries"].items()}
        except OSError as error:
            raise DatabaseError(f"cannot read '{self.path}': {error.strerror or error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DatabaseError(f"'{self.path}' is not a database of 'mirlo tune': {error}; delete it") from error


class _StoredEntry(TypedDict):
    values: dict[str, int]
    ratio: float
    microseconds: float
    function: str
    trials: int


def _entry(stored: _StoredEntry) -> TuningEntry:
    values = {str(name): int(value) for name, value in stored["values"].items()}
    return TuningEntry(
        values, float(stored["ratio"]), float(stored["microseconds"]), str(stored["function"]), int(stored["trials"])
    )
