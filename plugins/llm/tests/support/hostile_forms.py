"""Random forms of answers that compilers do not expect: deep, long, wide, circular, exploding, damaged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable


def _chain(generator: random.Random) -> tuple[str, str]:
    count = generator.choice([400, 3000, 20000])
    rules = "".join(f"r{i}: {generator.choice(['', 'X? '])}r{i + 1}\n" for i in range(count))
    return "lark", f'start: r0\n{rules}r{count}: "a"\nX: "x"\n'


def _circle(generator: random.Random) -> tuple[str, str]:
    count = generator.randint(1, 2000)
    rules = "".join(f'r{i}: r{generator.randrange(count)} "b" | r{generator.randrange(count)}\n' for i in range(count))
    return "lark", f"start: r0\n{rules}"


def _nested_text(generator: random.Random) -> tuple[str, str]:
    depth = generator.choice([50, 1000, 20000])
    left, right = generator.choice([("(", ")"), ("[", "]"), ("(?:", ")*"), ("((", ")|x)")])
    form = generator.choice(["lark", "regex"])
    inner = f"{left * depth}a{right * depth}"
    return form, inner if form == "regex" else f"start: {inner.replace('a', 'A')}\nA: /a/\n"


def _powers(generator: random.Random) -> tuple[str, str]:
    count = generator.choice([30, 1000, 60000])
    inner = "a"
    for _ in range(generator.randint(1, 4)):
        inner = f"(({inner}|b){{1,{count}}}x?)"
    return "regex", inner


def _doubled(generator: random.Random) -> tuple[str, str]:
    depth = generator.randint(10, 60)
    terminals = "".join(f"T{i}: T{i + 1} T{i + 1}\n" for i in range(depth))
    return "lark", f"start: T0\n{terminals}T{depth}: /[a-z]/\n"


def _schema_chain(generator: random.Random) -> tuple[str, str]:
    count = generator.choice([400, 3000])
    parts = {str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}, {"type": "null"}]} for i in range(count)}
    return "json_schema", json.dumps({"$ref": "#/$defs/0", "$defs": {**parts, str(count): {"type": "string"}}})


def _schema_circle(generator: random.Random) -> tuple[str, str]:
    count = generator.randint(1, 400)
    kinds: list[Callable[[str], object]] = [
        lambda other: {"$ref": other},
        lambda other: {"allOf": [{"$ref": other}, {"type": "object"}]},
        lambda other: {"type": "object", "properties": {"a": {"$ref": other}}, "required": ["a"]},
        lambda other: {"type": "array", "items": {"$ref": other}, "minItems": 1},
        lambda other: {"oneOf": [{"$ref": other}, {"const": 1}]},
    ]
    parts = {str(i): generator.choice(kinds)(f"#/$defs/{generator.randrange(count)}") for i in range(count)}
    return "json_schema", json.dumps({"$ref": "#/$defs/0", "$defs": parts})


def _schema_wide(generator: random.Random) -> tuple[str, str]:
    count = generator.choice([10, 1000])
    schema: dict[str, object] = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}
    for key, value in (("minimum", -(10**400)), ("multipleOf", 1e-300), ("pattern", "(a{1,9999}){1,9999}")):
        if generator.random() < 0.3:
            schema["properties"] = {"x": {"type": "string" if key == "pattern" else "number", key: value}}
    part: object = schema
    for _ in range(generator.randint(0, 60)):
        part = {generator.choice(["anyOf", "allOf", "oneOf"]): [part, schema]}
    return "json_schema", json.dumps(part)


def _large_text(generator: random.Random) -> tuple[str, str]:
    length = 1 << generator.randint(8, 16)
    letters = generator.choice(["a", "a|", "[a-z]?", "\\", "é", "(?i)a", "."])
    return generator.choice(["regex", "lark"]), letters * (length // len(letters))


def _damaged(generator: random.Random) -> tuple[str, str]:
    form, text = draw(generator)
    letters = list(text[:5000])
    for _ in range(generator.randint(1, 20)):
        letters[generator.randrange(len(letters))] = generator.choice('(){}[]|*+?\\"/:\n\0aé𐀀')
    return form, "".join(letters)


_KINDS = (
    _chain, _circle, _nested_text, _powers, _doubled, _schema_chain, _schema_circle, _schema_wide, _large_text,
    _damaged,
)  # fmt: skip


def draw(generator: random.Random) -> tuple[str, str]:
    """Return a form and its text."""
    return generator.choice(_KINDS)(generator)
