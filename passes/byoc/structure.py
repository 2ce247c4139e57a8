"""Static checks of patterns: operators that exist, objects that occur twice."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator

from mirlo.passes.byoc.operators import OpPattern
from mirlo.passes.byoc.pattern import Alternatives, Both, Pattern
from mirlo.passes.byoc.search import PatternError
from mirlo.runtime.nearest import nearest


def check_pattern(pattern: Pattern) -> None:
    """Raise `PatternError` for a pattern that could never match or is ambiguous."""
    for part in walk(pattern):
        if isinstance(part, OpPattern):
            _check_names(part)
    by_id = {id(part): part for part in walk(pattern)}
    for identity, count in _occurrences(pattern, frozenset(), {})[0].items():
        if count > 1:
            raise PatternError(
                f"the same pattern object stands in {count} places of a pattern: {by_id[identity]}; call "
                ".named('x') on it if all must be the same value, use .dup() if they may differ"
            )


def walk(pattern: Pattern) -> Iterator[Pattern]:
    """Yield the pattern and all its parts, each once."""
    seen: set[int] = set()
    pending = [pattern]
    while pending:
        part = pending.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            pending += part.parts()


def operators(pattern: Pattern) -> set[str]:
    """Return the operators that the pattern can match somewhere."""
    return {name for part in walk(pattern) if isinstance(part, OpPattern) for name in part.names}


SeenLabels = frozenset[str]
Counted = tuple[Counter[int], SeenLabels]


def _occurrences(pattern: Pattern, seen: SeenLabels, known: dict[tuple[int, SeenLabels], Counted]) -> Counted:
    """Count how often each unlabelled object must be matched at most, and return the labels seen.

    Of several alternatives one counts; a labelled part is matched once.
    """
    key = id(pattern), seen
    if key not in known:
        known[key] = _count(pattern, seen, known)
    return known[key]


def _count(pattern: Pattern, seen: SeenLabels, known: dict[tuple[int, SeenLabels], Counted]) -> Counted:
    if pattern.label is not None:
        if pattern.label in seen:
            return Counter(), seen
        seen |= {pattern.label}
    counts: Counter[int] = Counter() if pattern.label is not None else Counter([id(pattern)])
    if isinstance(pattern, (Alternatives, Both)):
        counted = [_occurrences(part, seen, known) for part in pattern.parts()]
        inside: Counter[int] = Counter()
        for count, _ in counted:
            inside |= count
        return counts + inside, seen.union(*(labels for _, labels in counted))
    for part in pattern.parts():
        count, seen = _occurrences(part, seen, known)
        counts += count
    return counts, seen


def _check_names(pattern: OpPattern) -> None:
    from mirlo.dialects import relax
    from mirlo.dialects.context import EXTRA_DIALECTS

    known = {name: op for dialect in (relax.DIALECT, *EXTRA_DIALECTS) for name, op in dialect.operations.items()}
    namespaces = {name.partition(".")[0] for name in known}
    for name in pattern.names:
        if name not in known:
            if name.partition(".")[0] in namespaces:
                raise PatternError(f"a pattern names '{name}', which is not an operator{nearest(name, known)}")
            continue
        operands = [field.name for field in known[name]._operand_layout.fields]
        for kind, asked, has in (
            ("operand", pattern.by_name, operands),
            ("attribute", pattern.attributes, list(known[name]._attributes)),
        ):
            for word in asked:
                if word not in has:
                    near = difflib.get_close_matches(word, has, n=1)
                    hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(has) or 'none'}"
                    raise PatternError(
                        f"a pattern asks for the {kind} '{word}' of '{name}', which has none such; {hint}"
                    )
