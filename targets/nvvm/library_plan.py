"""Plans of NVIDIA library calls for regions of a model, as data: values by number, and steps on them.

Written by code generators and read by loaders; imports nothing of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Generic, TypeVar

from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VERSION = 2


LibraryStep = TypeVar("LibraryStep", bound="DataclassInstance")


@dataclass(frozen=True)
class LibraryRegion(Generic[LibraryStep]):
    """A region: its inputs are the values 0, 1, ..., followed by its outputs."""

    name: str
    inputs: int
    outputs: int
    constants: dict[str, str]
    """Parameter names by value number, as text."""
    sizes: dict[str, int]
    """Bytes of the values that are neither parameters nor constants."""
    steps: tuple[LibraryStep, ...]


def write(functions: Sequence[LibraryRegion[LibraryStep]]) -> bytes:
    """Serialize a plan; each step records its type."""
    rows = [
        {**asdict(f), "steps": [{"type": type(step).__name__, **asdict(step)} for step in f.steps]} for f in functions
    ]
    return json.dumps({"version": VERSION, "functions": rows}).encode()


def read(data: bytes, *steps: type[LibraryStep]) -> list[LibraryRegion[LibraryStep]]:
    """Read the functions of a plan with these step types."""
    known = {step.__name__: step for step in steps}
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise ArtifactError(
                f"a plan of version {content['version']} is not known: install the package that made it"
            )
        return [
            LibraryRegion(**{**f, "steps": tuple(_step(row, known) for row in f["steps"])})
            for f in content["functions"]
        ]
    except (ValueError, KeyError, TypeError) as problem:
        raise ArtifactError(f"a plan for a library of NVIDIA's is damaged: {problem}") from None


def _step(row: dict[str, object], known: Mapping[str, type[LibraryStep]]) -> LibraryStep:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items() if name != "type"}
    return known[str(row["type"])](**fields)
