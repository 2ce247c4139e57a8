"""Declared options: which values and texts their kinds take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mirlo.runtime.options import (
    BOOLEAN,
    PATH,
    UnknownOption,
    ValueKind,
    check_options,
    declared_options,
    either,
    instance_of,
    integer,
    mapping,
    number,
    one_of,
    option,
    optional,
    refuse_unknown,
)

TAKEN: list[tuple[ValueKind, list[Any]]] = [
    (integer(), [0, -5, np.int32(7)]),
    (integer(-2, 2), [-2, 0, 2]),
    (number(0, 1), [0, 1, 0.5, np.float64(0.5)]),
    (number(above=0), [1e-9, 3]),
    (one_of("a", "b"), ["a"]),
    (optional(one_of("a")), ["a", None]),
    (either(BOOLEAN, PATH), [False, "folder"]),
    (mapping("names"), [{}, {"a": 1}]),
    (instance_of("dataclasses", "Field", "a field"), [field()]),
]
REFUSED: list[tuple[ValueKind, Any, str]] = [
    (integer(), True, "an integer"),
    (integer(1), 1.0, "an integer, 1 or more"),
    (integer(1), 0, "1 or more"),
    (integer(most=9), 10, "at most 9"),
    (integer(1, 9), 10, "1 to 9"),
    (integer(), 1 << 64, "an integer"),
    (integer(), np.array([1]), "an integer"),
    (number(0), True, "a number"),
    (number(0), float("nan"), "a number"),
    (number(0), 10**400, "a number"),
    (number(0), -0.5, "0 or more"),
    (number(above=0), 0, "more than 0"),
    (number(above=0, most=1), 2, "more than 0, at most 1"),
    (number(above=50, most=100), 50, "more than 50, at most 100"),
    (one_of("a", "b"), "c", "a, b"),
    (optional(one_of("a", "b")), 3, "a, b or None"),
    (either(BOOLEAN, PATH), 3, "True or False, or a path"),
    (mapping("names"), {1: 2}, "names"),
    (mapping("names", callable), {"a": 2}, "names"),
    (PATH, "", "a path"),
    (instance_of("mirlo.no.such", "Thing", "a thing"), 3, "a thing"),
]


@pytest.mark.parametrize(("kind", "values"), TAKEN)
def test_values_that_are_taken(kind: ValueKind, values: list[Any]) -> None:
    assert [kind.refuse(value) for value in values] == [None] * len(values)


@pytest.mark.parametrize(("kind", "value", "expected"), REFUSED)
def test_values_that_are_refused(kind: ValueKind, value: object, expected: str) -> None:
    assert kind.refuse(value) == expected


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (integer(1), "12", 12),
        (integer(1), "0", "expected a number from 1, found '0'"),
        (integer(1, 4), "5", "expected a number from 1 to 4, found '5'"),
        (integer(), "-3", -3),
        (integer(0), "-3", "expected a number from 0, found '-3'"),
        (integer(), "²", "expected a number, found '²'"),
        (integer(), "9" * 5000, f"expected a number, found '{'9' * 5000}'"),
        (number(), "0.5", 0.5),
        (number(), "half", "expected a number, found 'half'"),
    ],
)
def test_texts(kind: ValueKind, text: str, value: object) -> None:
    try:
        assert kind.parse(text) == value
    except ValueError as error:
        assert str(error) == value


@dataclass(frozen=True)
class Server:
    port: int = option(8000, "The port.", kind=integer(0, 65535))
    other: str = "no option"

    def __post_init__(self) -> None:
        check_options(self, KeyError)


def test_fields_are_checked() -> None:
    assert Server().port == 8000 and list(declared_options(Server)) == ["port"]
    with pytest.raises(KeyError, match="port: expected 0 to 65535, found 70000"):
        Server(70000)


def test_unknown_names_have_the_nearest() -> None:
    refuse_unknown("serve", ["port"], ["port"])
    with pytest.raises(UnknownOption, match=r"serve has no option 'prot'; options: port, slots; did you mean 'port'\?"):
        refuse_unknown("serve", ["port", "prot"], ["port", "slots"])
