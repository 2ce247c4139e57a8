"""What a library of NVIDIA's is to do for regions of a model, as data: values by number, steps that work on them.

Code generators write it and loaders read it; it imports nothing of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mirlo.runtime.errors import ArtifactError

VERSION = 1


@dataclass(frozen=True)
class Function:
    """A region: its inputs are the values 0, 1, ..., its outputs those that follow."""

    name: str
    inputs: int
    outputs: int
    constants: dict[str, str]
    """By value, as text, the name of the parameter that it is."""
    sizes: dict[str, int]
    """Bytes of the values that are neither given nor constants."""
    steps: tuple[Any, ...]


def write(functions: Sequence[Function]) -> bytes:
    """A plan as bytes."""
    return json.dumps({"version": VERSION, "functions": [asdict(function) for function in functions]}).encode()


def read(data: bytes, step: type) -> list[Function]:
    """The functions of a plan, whose steps are of this type."""
    try:
        found: dict[str, Any] = json.loads(data)
        if found["version"] != VERSION:
            raise ArtifactError(f"a plan of version {found['version']} is not known: install the package that made it")
        return [Function(**{**f, "steps": tuple(step(**fields) for fields in f["steps"])}) for f in found["functions"]]
    except (ValueError, KeyError, TypeError) as problem:
        raise ArtifactError(f"a plan for a library of NVIDIA's is damaged: {problem}") from None
