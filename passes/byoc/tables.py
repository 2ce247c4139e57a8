"""The patterns of each target, in the order in which they are tried.

    @pattern_table("mine")
    def patterns():
        return [("conv_relu", is_op("relax.relu")(is_op("relax.conv")), check)]

A target's code generator brings patterns (`CodeGenerator.patterns`); tables that were registered come before those, the
one registered last first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mirlo.passes.byoc.codegen import generator_of
from mirlo.passes.byoc.graph import BlockValue
from mirlo.passes.byoc.operators import operators
from mirlo.passes.byoc.pattern import Pattern, check_pattern
from mirlo.passes.byoc.search import Match, PatternError, Predicate
from mirlo.passes.rules import Decline, decline
from mirlo.passes.targets import find_target, forget_partial, register_partial, target_names
from mirlo.runtime.callbacks import describe_raised, name_of
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.records import dataclass

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
    is_static: bool = False
    """Whether all sizes must be known when the model is compiled."""

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
    rows = [row for table in reversed(_TABLES.get(target, [])) for row in _rows(target, table)]
    is_static = False
    if target in target_names():
        generated, is_static = _generated(target, options)
        rows += generated
    elif target not in _TABLES:
        known = {*_TABLES, *target_names()}
        listed = ", ".join(sorted(known)) or "none"
        raise PatternError(f"no target '{target}' with patterns{nearest(target, known) or f'; there are: {listed}'}")
    entries = [replace(entry_of(target, row), is_static=is_static) for row in rows]
    if not entries:
        raise PatternError(f"target '{target}' has no patterns: it takes no parts of a model")
    return entries


def _generated(target: str, options: str) -> tuple[Sequence[object], bool]:
    """Return the patterns of the target's code generator, and whether it takes fixed sizes only."""
    if find_target(target).codegen is None:
        return [], False

    generator = generator_of(target, options)
    return _rows(target, generator.patterns), generator.static


def _rows(target: str, table: Table) -> list[object]:
    """Return the rows of a table of patterns; errors name the function that returned them."""
    where = f"target '{target}': {name_of(table)}"
    try:
        rows = table()
        listed = None if isinstance(rows, (str, bytes, Pattern, Mapping)) else list(rows)
    except (MirloError, MemoryError):
        raise
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise PatternError(f"{where} raised {describe_raised(error)}") from error
        listed = None
    except Exception as error:
        raise PatternError(f"{where} raised {describe_raised(error)}") from error
    if listed is None:
        raise PatternError(
            f"{where} returned a {type(rows).__name__}: expected a list of (name, pattern) or (name, pattern, check)"
        )
    try:
        entries = [entry_of(target, row) for row in listed]
    except PatternError as error:
        raise PatternError(f"{where}: {error}") from None
    counts = Counter(entry.name for entry in entries)
    twice = next((each for each, count in counts.items() if count > 1), None)
    if twice is not None:
        raise PatternError(f"{where} has {counts[twice]} patterns of the name '{twice}': join them by |, or rename one")
    return list(entries)


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
    unknown = next(filter(_is_dynamic, _values_of(match)), None) if entry.is_static else None
    if unknown is not None:
        return decline("sizes must be known when the model is compiled", found=str(unknown.type)), "static"
    if entry.check is None:
        return None
    reason = entry.check.declines(match)
    return None if reason is None else (reason, entry.check.name)


def _values_of(match: Match) -> Iterator[BlockValue]:
    for node in match.nodes:
        yield from (*node.operands, *node.results)


def _is_dynamic(value: BlockValue) -> bool:
    return value.type is not None and any(not isinstance(dim, int) for dim in value.type.shape)
