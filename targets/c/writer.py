"""A writer of C text: lines, blocks, loops and element accesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mirlo.passes.byoc.view import ExternalValue
from mirlo.targets.c.types import c_dim, c_type, product

INDENT = "  "


@dataclass
class Writer:
    """A writer of one function's body that knows the C names of its values."""

    names: dict[ExternalValue, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    functions: dict[str, str] = field(default_factory=dict)
    """The definitions of functions that the body calls, by name."""

    def line(self, text: str = "") -> None:
        self.lines.append(INDENT * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Emit `head {` ... `}`."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def loop(self, name: str, extent: str) -> Iterator[str]:
        """Emit a loop from 0; yields its variable, or "0" for a loop of one iteration."""
        if extent == "1":
            yield "0"
            return
        with self.block(f"for (int64_t {name} = 0; {name} < {extent}; ++{name})"):
            yield name

    @contextmanager
    def loops(self, extents: Sequence[str], prefix: str = "i") -> Iterator[list[str]]:
        """Emit loops over an index space; yields the variables."""
        if not extents:
            yield []
            return
        with self.loops(extents[:-1], prefix) as outer, self.loop(f"{prefix}{len(extents) - 1}", extents[-1]) as last:
            yield [*outer, last]

    def at(self, value: ExternalValue, index: Sequence[str]) -> str:
        """Return the element of a value at an index."""
        return f"{self.names[value]}[{linear(dims(value), index)}]"

    def broadcast(self, value: ExternalValue, index: Sequence[str]) -> str:
        """Return the element that broadcasts to an index of a tensor of the same or a higher rank."""
        own = dims(value)
        last = list(index)[len(index) - len(own) :]
        return self.at(value, ["0" if dim == "1" else i for dim, i in zip(own, last, strict=True)])

    @contextmanager
    def each(self, value: ExternalValue) -> Iterator[list[str]]:
        """Emit loops over the elements of a value; yields the index."""
        with self.loops(dims(value)) as index:
            yield index


def dims(value: ExternalValue) -> list[str]:
    """Return the dims of a value as C expressions."""
    return [c_dim(dim) for dim in value.type.shape]


def count(value: ExternalValue) -> str:
    """Return the number of elements of a value."""
    return product(dims(value))


def element_type(value: ExternalValue) -> str:
    return c_type(value.type.dtype)


def linear(extents: Sequence[str], index: Sequence[str]) -> str:
    """Return the row-major offset of an index."""
    place = "0"
    for extent, at in zip(extents, index, strict=True):
        if extent == "1":
            continue
        if place == "0":
            place = at
        elif at == "0":
            place = f"{_parenthesize(place)} * {extent}"
        else:
            place = f"{_parenthesize(place)} * {extent} + {_term(at)}"
    return place


def _parenthesize(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _term(text: str) -> str:
    return text if not any(mark in text for mark in "?<>=") else f"({text})"
