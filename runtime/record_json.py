"""Records of artifacts as JSON: dataclasses with their names, nested in lists and objects.

A code generator writes its plan with `records_to_json`, and its loader reads it with `records_of_json`. The values of
fields are numbers, texts, bools, None, tuples, dicts with texts as keys, and further records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

KIND = "is"
"""The key of a record's class."""


def records_to_json(value: Any) -> Any:
    """Return records, and the containers around them, as values of JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        values = {each.name: records_to_json(getattr(value, each.name)) for each in fields(value)}
        return {KIND: type(value).__name__, **values}
    if isinstance(value, Mapping):
        if KIND in value:
            raise ValueError(f"a dict of a record has the key '{KIND}', which names classes")
        return {name: records_to_json(each) for name, each in value.items()}
    return [records_to_json(each) for each in value] if isinstance(value, (tuple, list)) else value


def records_of_json(content: Any, classes: Iterable[type]) -> Any:
    """Return the records of these classes in a value of JSON; lists become tuples.

    Raise KeyError for another class, and TypeError for fields that a class does not have.
    """
    return _read(content, {each.__name__: each for each in classes})


def _read(content: Any, known: Mapping[str, type]) -> Any:
    if isinstance(content, Mapping):
        values = {name: _read(each, known) for name, each in content.items() if name != KIND}
        return known[content[KIND]](**values) if KIND in content else values
    return tuple(_read(each, known) for each in content) if isinstance(content, list) else content
