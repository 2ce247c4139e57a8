"""Traces: the primitives applied to a schedule, as text that can be printed, saved and replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from mirlo.passes.schedule.primitives.tree import ScheduleError
from mirlo.runtime.files import read_regular, write_regular
from mirlo.runtime.names import c_identifier
from mirlo.runtime.records import dataclass

VERSION = 1
FORMER_KEY = "words"
"""The key of `primitives` in files of earlier versions, which are read for one version."""
SPECIALIZE = "specialize"
"""The primitive that makes a variant of a schedule."""
VARIANT = "variant"
"""The key, among named arguments of a primitive in a file, of the variant that it arranges."""
APPLIED = "tir.trace"
"""Attribute of what a rule made, until `schedule` reads it: the primitives that the rule applied."""


@dataclass(frozen=True)
class PrimitiveCallRecord:
    """One primitive with its arguments: names of blocks and loops, integers; and named ones, the choices of a rule."""

    primitive: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    """The name of the variant of the schedule that it arranges (`specialize`); empty for the loops of other sizes."""

    def __str__(self) -> str:
        arguments = [repr(_as_json(argument)) for argument in self.arguments]
        arguments += [f"{name}={_as_json(value)!r}" for name, value in self.named.items()]
        result = f"{variant_name(*self.arguments)} = " if self.primitive == SPECIALIZE else ""
        return f"{result}{self.variant or 's'}.{self.primitive}({', '.join(arguments)})"


def variant_name(size: str | Sequence[str], value: int) -> str:
    """Return the name of the variant of a schedule for a value of one size, or of several."""
    sizes = [size] if isinstance(size, str) else size
    return "_".join([*map(c_identifier, sizes), str(value)])


@dataclass
class Trace:
    """All primitives, in order."""

    calls: list[PrimitiveCallRecord] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a Python function that applies the primitives."""
        lines = [f"    {call}" for call in self.calls] or ["    pass"]
        return "\n".join(["def schedule(s):", *lines])

    def __iter__(self) -> Iterator[PrimitiveCallRecord]:
        return iter(self.calls)

    def as_json(self) -> dict[str, object]:
        return {"version": VERSION, "primitives": [_call_json(call) for call in self.calls]}

    def save(self, path: str | Path) -> None:
        write_regular(path, json.dumps(self.as_json(), indent=1) + "\n")

    @staticmethod
    def from_json(data: object, what: str = "the trace") -> Trace:
        """Read a trace from the result of `as_json`."""
        entries = data.get("primitives", data.get(FORMER_KEY)) if isinstance(data, dict) else None
        if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(entries, list):
            expected = f"{{'version': {VERSION}, 'primitives': [...]}}"
            raise ScheduleError(f"{what}: expected a schedule of version {VERSION}, {expected}")
        calls = []
        for entry in entries:
            if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
                raise ScheduleError(f"{what}: expected a primitive and its arguments, found {entry}")
            primitive, *arguments = entry
            named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            named = {name: _as_tuple(value) for name, value in named.items()}
            variant = str(named.pop(VARIANT, ""))
            calls.append(PrimitiveCallRecord(primitive, tuple(map(_as_tuple, arguments)), named, variant))
        return Trace(calls)

    @staticmethod
    def load(path: str | Path) -> Trace:
        try:
            data = json.loads(read_regular(path))
        except OSError as error:
            raise ScheduleError(f"cannot read '{path}': {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise ScheduleError(f"'{path}' is not a saved schedule: {error}") from None
        return Trace.from_json(data, str(path))


def _call_json(call: PrimitiveCallRecord) -> list[object]:
    named = {name: _as_json(value) for name, value in call.named.items()}
    named |= {VARIANT: call.variant} if call.variant else {}
    return [call.primitive, *map(_as_json, call.arguments), *([named] if named else [])]


def _as_tuple(argument: object) -> object:
    return tuple(argument) if isinstance(argument, list) else argument


def _as_json(argument: object) -> object:
    if isinstance(argument, (list, tuple)):
        return [_as_json(item) for item in argument]
    return str(argument) if isinstance(argument, str) else argument
