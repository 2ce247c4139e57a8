"""The store of placement measurements: one JSON file beside the cache, shared by models and runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import read_regular, write_regular

VERSION = 1


class PlacementStoreError(MirloError):
    """A file that holds no measurements of placements, or cannot be read or written."""

    error_code = "MIR0602"
    remedy = "Delete the file of measured placements, or name another one."


class PlacementStore:
    """Decisions by the key of a model, its targets and this machine. Several processes may add to one file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def find(self, key: str) -> dict[str, object] | None:
        """Return the stored decision, or None."""
        return self._read().get(key)

    def add(self, key: str, entry: Mapping[str, object]) -> None:
        """Add an entry; keep the entries that other processes added."""
        entries = {**self._read(), key: dict(entry)}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_regular(self.path, json.dumps({"version": VERSION, "entries": entries}) + "\n")
        except OSError as error:
            raise PlacementStoreError(f"cannot write '{self.path}': {error.strerror or error}") from error

    def _read(self) -> dict[str, dict[str, object]]:
        if not self.path.exists():
            return {}
        try:
            data = json.loads(read_regular(self.path))
            entries: dict[str, dict[str, object]] = data["entries"] if data["version"] == VERSION else {}
            if not all(isinstance(entry, dict) for entry in entries.values()):
                raise TypeError("its entries are not objects")
        except OSError as error:
            raise PlacementStoreError(f"cannot read '{self.path}': {error.strerror or error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise PlacementStoreError(
                f"'{self.path}' holds no measurements of placements: {error}; delete it"
            ) from error
        return entries
