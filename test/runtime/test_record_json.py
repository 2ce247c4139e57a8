"""Records of artifacts as JSON: what is read equals what was written, and damaged content is an error."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from mirlo.extend.runtime import records_of_json, records_to_json


@dataclass(frozen=True)
class Leaf:
    """A record of plain values."""

    number: int = 0
    text: str = ""
    none: None = None


@dataclass(frozen=True)
class Node:
    """A record of others."""

    children: tuple[Any, ...] = ()
    by_name: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0


def drawn(rng: random.Random, depth: int) -> Any:
    """Return a random record."""
    if depth == 0 or rng.random() < 0.3:
        return Leaf(rng.randrange(-9, 9), rng.choice(["", "is", "ä"]))
    children = tuple(drawn(rng, depth - 1) for _ in range(rng.randrange(4)))
    return Node(children, {f"n{i}": drawn(rng, depth - 1) for i in range(rng.randrange(3))}, rng.random())


@pytest.mark.parametrize("seed", range(10))
def test_records_are_read_as_written(seed: int) -> None:
    value = (drawn(random.Random(seed), 4), [], {}, ((1, (2.5, None)), True))
    text = json.dumps(records_to_json(value))
    assert records_of_json(json.loads(text), (Leaf, Node)) == (value[0], (), {}, ((1, (2.5, None)), True))


def test_other_classes_and_fields_are_errors() -> None:
    with pytest.raises(KeyError, match="Node"):
        records_of_json(records_to_json(Node()), (Leaf,))
    with pytest.raises(TypeError, match="size"):
        records_of_json({"is": "Leaf", "size": 1}, (Leaf,))
    with pytest.raises(ValueError, match="has the key 'is'"):
        records_to_json(Node(by_name={"is": 1}))
