"""Depth of references in grammars and JSON schemas, along which their compilers recurse."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import unquote

MAX_CHAIN = 500
"""Deepest accepted chain of references; grammars of programming languages have some 50."""
_LARK_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*')
_LARK_NAME = re.compile(r"[A-Za-z_]\w*")


_GBNF_RULE = re.compile(r"(?m)^[ \t]*[\w-]+\s*::=")


def is_gbnf(text: str) -> bool:
    """Return whether a grammar is in GBNF, where a rule is `name ::= ...`; in Lark's syntax it is `name: ...`."""
    return _GBNF_RULE.search(text) is not None


def lark_chain(text: str) -> int:
    """Return the length of the longest chain of references of rules or embedded schemas."""
    references: dict[str, set[str]] = {}
    current = set[str]()
    for line in _LARK_TEXT.sub(" ", text).split("\n"):
        head, colon, rest = line.partition(":")
        name = _LARK_NAME.match(head.lstrip(" \t?!"))
        if colon and name:
            current = references.setdefault(name[0], set())
        current.update(_LARK_NAME.findall(rest if colon and name else line))
    return max(longest_chain(references), text.count('"$ref"'))


def schema_chain(schema: object) -> int:
    """Return the length of the longest chain of `$ref` in a JSON schema."""
    references: dict[str, set[str]] = {}
    waiting = ["#"]
    while waiting:
        place = waiting.pop()
        if place in references:
            continue
        references[place] = set(_references(_part(schema, place)))
        waiting += references[place]
    return longest_chain(references)


def _references(part: object) -> Iterator[str]:
    waiting = [part]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            target = value.get("$ref")
            if isinstance(target, str) and target.startswith("#"):
                yield target
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _part(schema: object, place: str) -> object:
    """Return the part that a pointer such as `#/$defs/name` addresses; None if there is none."""
    part = schema
    for key in place.split("/")[1:]:
        key = unquote(key).replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(part):
            part = part[int(key)]
        elif isinstance(part, dict):
            part = part.get(key)
        else:
            return None
    return part


def longest_chain(references: Mapping[str, Collection[str]]) -> int:
    """Return the length of the longest chain of references; each cycle counts with all its names."""
    lengths: dict[str, int] = {}
    for circle in _circles(references):
        after = [lengths[name] for each in circle for name in references[each] if name in lengths]
        lengths.update(dict.fromkeys(circle, len(circle) + max(after, default=0)))
    return max(lengths.values(), default=0)


def _circles(references: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components in topological order (Tarjan's algorithm, iterative)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    is_open: set[str] = set()
    for start in references:
        path: list[tuple[str, Iterator[str]]] = []
        following: str | None = start if start not in order else None
        while path or following is not None:
            if following is not None:
                order[following] = lowest[following] = len(order)
                stack.append(following)
                is_open.add(following)
                path.append((following, iter(references[following])))
            name, rest = path[-1]
            following = None
            for other in rest:
                if other in references and other not in order:
                    following = other
                    break
                if other in is_open:
                    lowest[name] = min(lowest[name], order[other])
            if following is not None:
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[name])
            if lowest[name] == order[name]:
                circle = _popped(stack, name)
                is_open.difference_update(circle)
                yield circle


def _popped(stack: list[str], name: str) -> list[str]:
    """Remove the end of a stack from a name on."""
    names = [stack.pop()]
    while names[-1] != name:
        names.append(stack.pop())
    return names
