"""A unit: one compiled model with its inputs, what its results must be, and what its time is compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1
KIT = "kit.json"


class KitError(Exception):
    """A folder that cannot be run."""


@dataclass(frozen=True)
class Check:
    """What some outputs of a unit must be: `judge.judge` knows each kind."""

    name: str
    outputs: tuple[int, ...]
    kind: str
    """`stored`: results in the data file; else a meaning, computed in numpy where it is checked."""
    bound: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Unit:
    """One compiled model."""

    name: str
    group: str
    model: str
    """Its file in the folder."""
    inputs: tuple[Mapping[str, Any], ...]
    """Where each comes from: `{"key": name in the data file}` or what `seeds.seeded` takes."""
    checks: tuple[Check, ...]
    data: str = ""
    """A file of arrays in the folder."""
    weights: tuple[Mapping[str, Any], ...] | None = None
    """All parameters, in the order of the model, where some of them are made from seeds."""
    peer: Mapping[str, Any] | None = None
    """What its time is compared with: `peers.calls_of` knows it."""
    flops: float = 0.0
    moved: float = 0.0
    """Bytes that it must read and write."""
    is_measured: bool = False
    is_latency: bool = False
    """Whether the time of whole calls counts, in place of that of its kernels."""
    is_small: bool = True
    """Whether compute-sanitizer gets through it in seconds."""
    seconds: float = 60.0
    """After so long it is given up."""


@dataclass(frozen=True)
class Kit:
    """A folder of units."""

    target: str
    made: str
    """The date."""
    units: tuple[Unit, ...]

    def write(self, folder: Path) -> None:
        """Write the list of units."""
        text = json.dumps({"version": VERSION, **asdict(self)}, indent=1)
        (folder / KIT).write_text(text, encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Kit:
        """Return the kit in a folder."""
        try:
            data = json.loads((folder / KIT).read_text(encoding="utf-8"))
        except OSError as problem:
            raise KitError(
                f"{folder} has no {KIT} ({problem.strerror}): make it with python -m benchmarks.gpu --build {folder}"
            ) from None
        except ValueError as problem:
            raise KitError(f"{folder / KIT} is damaged ({problem}): build the folder again") from None
        if data.get("version") != VERSION:
            raise KitError(f"{folder / KIT} has version {data.get('version')}, expected {VERSION}: build it again")
        return Kit(data["target"], data["made"], tuple(unit_of(row) for row in data["units"]))

    def chosen(self, only: Sequence[str]) -> list[Unit]:
        """Return the units whose names or groups contain one of these words; all of them without words."""
        return [u for u in self.units if not only or any(word in f"{u.group}/{u.name}" for word in only)]


def unit_of(row: Mapping[str, Any]) -> Unit:
    """Return a unit from its fields."""
    checks = tuple(Check(**{**check, "outputs": tuple(check["outputs"])}) for check in row["checks"])
    weights = None if row["weights"] is None else tuple(row["weights"])
    return Unit(**{**row, "checks": checks, "inputs": tuple(row["inputs"]), "weights": weights})
