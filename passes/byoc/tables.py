"""The patterns of each target, in the order in which they are tried.

    @pattern_table("mine")
    def patterns():
        return [("conv_relu", is_op("relax.relu")(is_op("relax.conv")), check)]

A target's code generator brings patterns (`CodeGenerator.patterns`); tables that were registered come before those, the
one registered last first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirlo.passes.byoc.operators import operators
from mirlo.passes.byoc.pattern import Pattern, check_pattern
from mirlo.passes.byoc.search import Match, PatternError, Predicate
from mirlo.passes.rules import Decline
from mirlo.passes.targets import find_target, forget_partial, register_partial, target_names
from mirlo.runtime.nearest import nearest

Table = Callable[[], Sequence[object]]
CALL_TIR = "relax.call_tir"
_TABLES: dict[str, list[Table]] = {}


@dataclass(frozen=True)
class PatternEntry:
    """A pattern of a target: the name of its composite, and a check of whole matches."""

    target: str
    name: str
    pattern: Pattern
    check: Predicate | None = None

    @property
    def full_name(self) -> str:
        return f"{self.target}.{self.name}"

    @property
    def operators(self) -> set[str]:
        return operators(self.pattern)

    @property
    def is_of_loops(self) -> bool:
        """Return whether it matches prim functions, which there are after legalization."""
        return CALL_TIR in self.operators


def pattern_table(target: str) -> Callable[[Table], Table]:
    """Register a function that returns the patterns of a target: `(name, pattern)` or `(name, pattern, check)` each.

    `check(match)` returns True, or a reason to reject the match.
    """

    def register(table: Table) -> Table:
        _TABLES.setdefault(target, []).append(table)
        register_partial(target)
        return table

    return register


def forget_tables(module: str) -> None:
    """Remove the tables that are functions of a module."""
    for target, tables in list(_TABLES.items()):
        tables[:] = [table for table in tables if table.__module__ != module]
        if not tables:
            del _TABLES[target]
            forget_partial(target)


def entries_of(target: str, options: str = "") -> list[PatternEntry]:
    """Return the patterns of a target in order of priority."""
    rows = [row for table in reversed(_TABLES.get(target, [])) for row in table()]
    if target in target_names():
        rows += _generated(target, options)
    elif target not in _TABLES:
        known = {*_TABLES, *target_names()}
        listed = ", ".join(sorted(known)) or "none"
        raise PatternError(f"no target '{target}' with patterns{nearest(target, known) or f'; there are: {listed}'}")
    entries = [entry_of(target, row) for row in rows]
    if not entries:
        raise PatternError(f"target '{target}' has no patterns: it takes no parts of a model")
    return entries


def _generated(target: str, options: str) -> Sequence[object]:
    """Return the patterns of the target's code generator."""
    if find_target(target).codegen is None:
        return []
    from mirlo.passes.byoc.codegen import generator_of

    return generator_of(target, options).patterns()


def split_options(text: str) -> tuple[str, str]:
    """Split `mine{fast-math}` into name and options."""
    name, brace, rest = text.partition("{")
    if brace and not rest.endswith("}"):
        raise PatternError(f"'{text}': expected options as in 'mine{{fast-math}}'")
    return name, rest[:-1] if brace else ""


def has_generator(target: str) -> bool:
    """Return whether a target is registered with a code generator, not by a table of patterns alone."""
    return target in target_names() and find_target(target).codegen is not None


def is_host(target: str) -> bool:
    """Return whether a target compiles whole models and has no patterns: it takes what others leave."""
    if target in _TABLES or target not in target_names():
        return False
    entry = find_target(target)
    return entry.codegen is None and entry.emit is not None


def entry_of(target: str, row: object) -> PatternEntry:
    """Return a validated row of a table as an entry."""
    if isinstance(row, PatternEntry):
        return row
    parts = tuple(row) if isinstance(row, (tuple, list)) else ()
    name, pattern, check = parts if len(parts) == 3 else (*parts, None) if len(parts) == 2 else (None, None, None)
    checked = check is None or callable(check) or isinstance(check, Predicate)
    if not (isinstance(name, str) and isinstance(pattern, Pattern) and checked):
        raise PatternError(
            f"target '{target}': a row of its patterns must be (name, pattern) or (name, pattern, check), got {row!r}"
        )
    predicate = check if isinstance(check, Predicate) else None if check is None else Predicate.of(check)
    entry = PatternEntry(target, name.removeprefix(f"{target}."), pattern, predicate)
    try:
        check_pattern(pattern)
    except PatternError as error:
        raise PatternError(f"pattern '{entry.full_name}': {error}") from None
    return entry


def check_failure(entry: PatternEntry, match: Match) -> tuple[Decline, str] | None:
    """Return why the entry's check rejects a match, and the name of the check, or None."""
    if entry.check is None:
        return None
    reason = entry.check.declines(match)
    return None if reason is None else (reason, entry.check.name)
