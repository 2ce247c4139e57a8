"""Plans of NVIDIA library calls for regions of a model, as data: values by number, and steps on them.

Written by code generators and read by loaders; imports nothing of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mirlo.runtime.errors import ArtifactError

VERSION = 2


@dataclass(frozen=True)
class LibraryRegion:
    """A region: its inputs are the values 0, 1, ..., followed by its outputs."""

    name: str
    inputs: int
    outputs: int
    constants: dict[str, str]
    """Parameter names by value number, as text."""
    sizes: dict[str, int]
    """Bytes of the values that are neither parameters nor constants."""
    steps: tuple[Any, ...]


def write(functions: Sequence[LibraryRegion]) -> bytes:
    """Serialize a plan; each step records its type."""
    rows = [
        {**asdict(f), "steps": [{"type": type(step).__name__, **asdict(step)} for step in f.steps]} for f in functions
    ]
    return json.dumps({"version": VERSION, "functions": rows}).encode()


def read(data: bytes, *steps: type) -> list[LibraryRegion]:
    """Read the functions of a plan with these step types."""
    known = {step.__name__: step for step in steps}
    try:
        found: dict[str, Any] = json.loads(data)
        if found["version"] != VERSION:
            raise ArtifactError(f"a plan of version {found['version']} is not known: install the package that made it")
        return [
            LibraryRegion(**{**f, "steps": tuple(_step(row, known) for row in f["steps"])}) for f in found["functions"]
        ]
    except (ValueError, KeyError, TypeError) as problem:
        raise ArtifactError(f"a plan for a library of NVIDIA's is damaged: {problem}") from None


def _step(row: dict[str, Any], known: Mapping[str, type]) -> Any:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items() if name != "type"}
    return known[row["type"]](**fields)
