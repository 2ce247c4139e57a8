"""Interpreter of host programs between launches: arithmetic, branches, loops, elements read back.

Loaders use it; it imports nothing of the compiler.

A number is a constant, or has a name, `%3`. Instructions are dictionaries with a field `do`:

| do | fields | meaning |
| --- | --- | --- |
| `let` | name, op, bits, of | an operation of MLIR's dialect `arith` on integers of this width |
| `word`, `set` | name, at; at, value | read or write a word of the call record |
| `load`, `store` | name, from, type; value, to, type | read or write an element in device memory |
| `if` | condition, then, else, results | one of two bodies |
| `for` | low, high, step, index, carried, start, body, results | a body for each index |
| `while` | carried, start, before, handed, after, results | both bodies until the first one's `condition` is false |
| `yield`, `condition` | values; value, values | the results of a body |
| `allocate` | memory, number, bytes | memory of the space `late`; `number` is that of an output, or -1 |
| `grow` | memory, bytes | the same, only if there are fewer bytes than that: at least twice as many then |
| `check` | value, most, number | end the call unless 0 <= value <= most |
| `call` | function, arguments, types, outputs, row | a packed function, on the memory of tensors |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from mirlo.runtime.errors import ArtifactError

FORMATS = {"i1": "<b", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q", "index": "<q", "f32": "<f", "f64": "<d"}
"""Element types that the host reads and writes, as `struct` formats."""


class Worker(Protocol):
    """Executes steps on a device."""

    def step(self, step: dict[str, Any]) -> None:
        """Execute a launch or a copy with concrete numbers."""

    def read(self, where: list[Any], size: int) -> bytes:
        """Read bytes at the start of a range, after all previous steps."""

    def write(self, where: list[Any], data: bytes) -> None:
        """Write bytes to the start of a range, after all previous steps."""

    def allocate(self, memory: int, number: int, size: int) -> None:
        """Allocate memory of the space `late`; `number` is that of the output it is for, or -1."""

    def call(self, step: dict[str, Any]) -> bool:
        """Call a packed function; return whether it failed."""


class _End(Exception):
    """Ends the call: a size was wrong, or a function failed."""


class HostInterpreter:
    """One run of a program."""

    def __init__(self, worker: Worker, record: Any = None) -> None:
        self._worker = worker
        self._record = record
        self._values: dict[str, Any] = {}
        self._room: dict[int, int] = {}
        """The bytes of memory that grows, by number."""

    def run(self, steps: Sequence[dict[str, Any]]) -> bool:
        """Execute all steps; return whether none ended the call early."""
        try:
            self._body(steps)
        except _End:
            return False
        return True

    def _of(self, value: Any) -> Any:
        return self._values[value] if isinstance(value, str) else value

    def _all(self, values: Sequence[Any]) -> list[Any]:
        return [self._of(value) for value in values]

    def _give(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self._values.update(zip(names, values, strict=True))

    def _body(self, steps: Sequence[dict[str, Any]]) -> list[Any]:
        """Execute the steps of a body and return its results."""
        given: list[Any] = []
        for step in steps:
            kind = step.get("do")
            if kind is None:
                self._step(step)
            elif kind == "yield":
                given = self._all(step["values"])
            elif kind == "condition":
                given = [self._of(step["value"]), *self._all(step["values"])]
            else:
                _KINDS[kind](self, step)
        return given

    def _range(self, where: list[Any]) -> list[Any]:
        return [where[0], where[1], self._of(where[2]), self._of(where[3])]

    def _step(self, step: dict[str, Any]) -> None:
        if "copy" in step:
            source, target = map(self._range, step["copy"])
            if source[3] > 0:
                self._worker.step({**step, "copy": [source, target]})
            return
        grid = self._all(step["grid"])
        if 0 in grid:
            return  # nothing to compute
        arguments = list(map(self._argument, step["arguments"]))
        self._worker.step({**step, "grid": grid, "arguments": arguments})

    def _argument(self, argument: Any) -> Any:
        """Return a range, a tensor map of one, or a number."""
        if isinstance(argument, dict):
            return {**argument, "map": self._range(argument["map"])}
        return self._range(argument) if isinstance(argument, list) else self._of(argument)

    def _let(self, step: dict[str, Any]) -> None:
        self._values[step["name"]] = compute(step["op"], self._all(step["of"]), step["bits"])

    def _word(self, step: dict[str, Any]) -> None:
        self._values[step["name"]] = int(self._record[step["at"]])

    def _set(self, step: dict[str, Any]) -> None:
        self._record[step["at"]] = self._of(step["value"])

    def _load(self, step: dict[str, Any]) -> None:
        form = FORMATS[step["type"]]
        data = self._worker.read(self._range(step["from"]), struct.calcsize(form))
        self._values[step["name"]] = struct.unpack(form, data)[0]

    def _store(self, step: dict[str, Any]) -> None:
        value = self._of(step["value"])
        self._worker.write(self._range(step["to"]), struct.pack(FORMATS[step["type"]], value))

    def _if(self, step: dict[str, Any]) -> None:
        body = step["then"] if self._of(step["condition"]) else step["else"]
        self._give(step["results"], self._body(body))

    def _for(self, step: dict[str, Any]) -> None:
        held = self._all(step["start"])
        for i in range(self._of(step["low"]), self._of(step["high"]), self._of(step["step"])):
            self._values[step["index"]] = i
            self._give(step["carried"], held)
            held = self._body(step["body"])
        self._give(step["results"], held)

    def _while(self, step: dict[str, Any]) -> None:
        held = self._all(step["start"])
        while True:
            self._give(step["carried"], held)
            goes_on, *handed = self._body(step["before"])
            if not goes_on:
                break
            self._give(step["handed"], handed)
            held = self._body(step["after"])
        self._give(step["results"], handed)

    def _allocate(self, step: dict[str, Any]) -> None:
        self._worker.allocate(step["memory"], step["number"], self._of(step["bytes"]))

    def _grow(self, step: dict[str, Any]) -> None:
        memory, size = step["memory"], max(self._of(step["bytes"]), 1)
        room = self._room.get(memory, 0)
        if size > room:
            self._room[memory] = max(size, 2 * room)
            self._worker.allocate(memory, -1, self._room[memory])

    def _check(self, step: dict[str, Any]) -> None:
        value = self._of(step["value"])
        if not 0 <= value <= self._of(step["most"]):
            self._record[0], self._record[1] = -1 - self._of(step["number"]), value
            raise _End

    def _call(self, step: dict[str, Any]) -> None:
        arguments = [self._range(where) for where in step["arguments"]]
        types = [[dtype, self._all(shape)] for dtype, shape in step["types"]]
        if self._worker.call({**step, "arguments": arguments, "types": types}):
            raise _End


_KINDS: dict[str, Callable[[HostInterpreter, dict[str, Any]], None]] = {
    "let": HostInterpreter._let,
    "word": HostInterpreter._word,
    "set": HostInterpreter._set,
    "load": HostInterpreter._load,
    "store": HostInterpreter._store,
    "if": HostInterpreter._if,
    "for": HostInterpreter._for,
    "while": HostInterpreter._while,
    "allocate": HostInterpreter._allocate,
    "grow": HostInterpreter._grow,
    "check": HostInterpreter._check,
    "call": HostInterpreter._call,
}


def _unsigned(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def _towards_zero(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_SIGNED: dict[str, Callable[[Any, Any], Any]] = {
    "addi": lambda a, b: a + b, "subi": lambda a, b: a - b, "muli": lambda a, b: a * b,
    "divsi": _towards_zero, "remsi": lambda a, b: a - b * _towards_zero(a, b),
    "floordivsi": lambda a, b: a // b, "ceildivsi": lambda a, b: -(-a // b),
    "minsi": min, "maxsi": max, "andi": lambda a, b: a & b, "ori": lambda a, b: a | b, "xori": lambda a, b: a ^ b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "slt": lambda a, b: a < b, "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b, "sge": lambda a, b: a >= b,
}  # fmt: skip
_UNSIGNED: dict[str, Callable[[int, int], Any]] = {
    "divui": lambda a, b: a // b, "remui": lambda a, b: a % b, "ceildivui": lambda a, b: -(-a // b), "minui": min,
    "maxui": max, "ult": lambda a, b: a < b, "ule": lambda a, b: a <= b, "ugt": lambda a, b: a > b,
    "uge": lambda a, b: a >= b,
}  # fmt: skip
_FLOATS: dict[str, Callable[..., Any]] = {
    "sitofp": float, "fptosi": int, "mulf": lambda a, b: a * b, "minimumf": min,
}  # fmt: skip
OPERATIONS = frozenset({*_SIGNED, *_UNSIGNED, *_FLOATS, "select", "sext", "zext"})
"""Operations of `let`: those of `arith`, and its comparison predicates; `sext` and `zext` are casts whose second
operand is the source width."""
_DIVISIONS = frozenset({"divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui"})


def compute(op: str, of: Sequence[Any], bits: int) -> Any:
    """Return the result of an operation, integers as signed ones of this width; 0 or 1 for one bit."""
    if op == "select":
        return of[1] if of[0] else of[2]
    if op in _FLOATS:
        return _FLOATS[op](*of)
    if op in _DIVISIONS and of[1] == 0:
        raise ArtifactError("a size of the model is divided by zero: give inputs that are not empty")
    if op == "sext":
        return _held(-of[0] if of[1] == 1 else of[0], bits)
    if op == "zext":
        return _held(_unsigned(of[0], of[1]), bits)
    if op in _SIGNED:
        return _held(int(_SIGNED[op](of[0], of[1])), bits)
    # Comparisons produce one bit; sign-extended integers compare as before.
    width = 64 if bits == 1 else bits
    return _held(int(_UNSIGNED[op](_unsigned(of[0], width), _unsigned(of[1], width))), bits)


def _held(value: int, bits: int) -> int:
    """Wrap a number to this width."""
    found = _unsigned(value, bits)
    return found - (1 << bits) if bits > 1 and found >> (bits - 1) else found


class Straight:
    """Collects the steps of a program without executing them: everything known before a call starts."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def step(self, step: dict[str, Any]) -> None:
        self.steps.append(step)

    def call(self, step: dict[str, Any]) -> bool:
        self.steps.append(step)
        return False

    def _never(self, *given: Any) -> Any:
        raise ArtifactError("the program of the model reads from the device although it declares that it does not")

    read = write = allocate = _never


def is_straight(steps: Sequence[dict[str, Any]], on_device: Collection[str] = ()) -> bool:
    """Return whether nothing has to be read back; functions in `on_device` take tensors in place."""
    for step in steps:
        kind = step.get("do")
        if kind in ("load", "store", "allocate", "grow") or (kind == "call" and step["function"] not in on_device):
            return False
        bodies = [value for value in step.values() if isinstance(value, list)] if kind is not None else []
        if not all(is_straight(body, on_device) for body in bodies if body and isinstance(body[0], dict)):
            return False
    return True


def straight_steps(steps: Sequence[dict[str, int | list[int | str] | str]], record: Any) -> list[dict[str, Any]]:
    """Return the launches, copies and calls of a program for the sizes of a record."""
    gathered = Straight()
    HostInterpreter(gathered, record).run(steps)
    return gathered.steps
