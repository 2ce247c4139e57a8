"""Plans of NVIDIA library calls for regions of a model, as data: values by number, and steps on them.

Written by code generators and read by loaders; imports nothing of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.record_json import records_of_json, records_to_json
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VERSION = 3


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
    """Serialize a plan."""
    return json.dumps({"version": VERSION, "functions": records_to_json(functions)}).encode()


def read(data: bytes, *steps: type[LibraryStep]) -> list[LibraryRegion[LibraryStep]]:
    """Read the functions of a plan with these step types."""
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise ArtifactError(
                f"a plan of version {content['version']} is not known: install the package that made it"
            )
        return list(records_of_json(content["functions"], (LibraryRegion, *steps)))
    except (ValueError, KeyError, TypeError) as problem:
        raise ArtifactError(f"a plan for a library of NVIDIA's is damaged: {problem}") from None
