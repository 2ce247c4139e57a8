"""A target's expectations of a prim function: its time, the parts of it, and the compared candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class ComparedChoice:
    """Choices that a rule compared, with the numbers by which it compared them."""

    values: Mapping[str, int]
    time: float
    limit: str = ""
    """What limits the time."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The time by what takes it, if that is known."""


@dataclass(frozen=True)
class KernelExpectation:
    """The expected time of a prim function with its choices, and the other choices that were compared."""

    time: float
    """In `unit`."""
    unit: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The time by what takes it, if that is known."""
    compared: str = ""
    """What the candidates are: register tiles."""
    candidates: Sequence[ComparedChoice] = ()
    """The choices that were taken, and all others, the fastest first."""
