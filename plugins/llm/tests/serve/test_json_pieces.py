"""JSON that is read and written in pieces is what the module `json` makes of it."""

from __future__ import annotations

import json
import random

import pytest
from mirlo_llm.serve import json_pieces
from mirlo_llm.serve.json_pieces import JsonTooLarge, encode_in_pieces, parse_json


def value_of(generator: random.Random, depth: int = 0) -> object:
    kind = generator.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return generator.choice([0, -1, 2**70, 0.5, -1e-9, 1e300, True, False, None])
    if kind < 6:
        letters = 'ab"\\/\b\n\r\té\u2028\ud83d\ude00\x7f' if generator.random() < 0.5 else "abc ,:[]{}"
        return "".join(generator.choice(letters) for _ in range(generator.choice([0, 1, 5, 40])))
    count = generator.choice([0, 1, 3, 30])
    if kind == 6:
        return [generator.choice([1, 2.5, None]) for _ in range(count)]
    if kind == 7:
        return [value_of(generator, depth + 1) for _ in range(count)]
    return {f"{i}é\\": value_of(generator, depth + 1) for i in range(count)}


@pytest.fixture(params=[40, 100])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make pieces short, so that they end everywhere."""
    size: int = request.param
    import re

    for name in ("_SPACE", "_PLAIN", "_ESCAPES", "_SCALARS", "_STRINGS"):
        expression = getattr(json_pieces, name)
        pattern = re.sub(
            r"(\{[01],)(32768|2048|1024)\}$", rf"\g<1>{size if size < 2048 else 2048}}}", expression.pattern
        )
        monkeypatch.setattr(json_pieces, name, re.compile(pattern, expression.flags))
    monkeypatch.setattr(json_pieces, "PIECE", size)
    return size


def read(text: str) -> object:
    try:
        return parse_json(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return ValueError


def test_values(piece: int) -> None:
    for seed in range(200):
        generator = random.Random(seed)
        value = value_of(generator)
        text = json.dumps(
            value, ensure_ascii=generator.random() < 0.5, indent=generator.choice([None, None, 1, 20]),
            separators=generator.choice([None, (",", ":"), (" , ", " : ")]),
        )  # fmt: skip
        try:
            expected: object = json.loads(text.encode("utf-8", "surrogatepass").decode("utf-8"))
        except ValueError:
            expected = ValueError
        assert read(f" {text}\n") == expected
        if not any(ord(letter) >= 0xD800 for letter in text if 0xD800 <= ord(letter) < 0xE000):
            assert json.loads(encode_in_pieces(value)) == json.loads(json.dumps(value))


def test_damaged_texts(piece: int) -> None:
    """What one of both refuses, the other refuses, too."""
    for seed in range(700):
        generator = random.Random(seed)
        letters = list(json.dumps(value_of(generator), indent=generator.choice([None, 1])))
        for _ in range(generator.randint(1, 3)):
            place = generator.randrange(len(letters))
            letters[place] = generator.choice(['"', "\\", "[", "]", "{", "}", ",", ":", "1", " ", "", "u", "\n", "NaN"])
        text = "".join(letters)
        try:
            expected: object = json.loads(text, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError):
            expected = ValueError
        assert read(text) == expected, text


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE", 16)
    monkeypatch.setattr(json_pieces, "MAX_VALUES", 100)
    monkeypatch.setattr(json_pieces, "MAX_CONTAINERS", 50)
    assert len(str(parse_json(b"[" + b"1," * 98 + b"1]"))) > 200
    for text, message in (
        (b"[" + b"1," * 100 + b"1]", "100 values"),
        (b"[" + b'"",' * 100 + b"1]", "100 values"),
        (b"[" + b"[]," * 50 + b"1]", "50 arrays and objects"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "the body has more than"),
        (b"[" * 100_000, "50 arrays"),
    ):
        with pytest.raises(JsonTooLarge, match=message):
            parse_json(text)
    with pytest.raises(JsonTooLarge, match="64 arrays and objects in each other"):
        monkeypatch.setattr(json_pieces, "MAX_CONTAINERS", 100)
        parse_json(b"[" * 100_000)
