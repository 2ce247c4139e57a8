"""Words of a token sequence: word boundaries, and punctuation attached to adjacent words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages written without spaces: each character is a word."""
BEFORE, BEHIND = "\"'“¡¿([{-", "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001
"""Punctuation that belongs to the following word, and to the preceding word."""
MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
BROKEN = "\ufffd"
"""The replacement character for an incomplete character at the end of a token."""


@dataclass
class TokenRange:
    """A text and its tokens."""

    text: str
    first: int
    last: int


def split_words(tokens: Sequence[int], language: str, decode: Callable[[Sequence[int]], str]) -> list[TokenRange]:
    """Split tokens into words without gaps; `decode` returns the text of tokens."""
    parts = _characters(tokens, decode)
    if language not in UNSPACED:
        parts = _spaced(parts)
    return _with_marks(parts)


def _characters(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[TokenRange]:
    """Split tokens into the shortest groups with complete characters."""
    whole, result, first, length = decode(tokens), list[TokenRange](), 0, 0
    for i in range(len(tokens)):
        text = decode(tokens[first : i + 1])
        at = text.find(BROKEN)
        if at < 0 or whole[length + at : length + at + 1] == BROKEN:
            result.append(TokenRange(text, first, i))
            first, length = i + 1, length + len(text)
    return result


def _spaced(parts: Sequence[TokenRange]) -> list[TokenRange]:
    """Join groups that neither a space nor punctuation separates."""
    result = list[TokenRange]()
    for part in parts:
        if not result or part.text.startswith(" ") or part.text.strip() in MARKS:
            result.append(part)
        else:
            _append(result[-1], part)
    return result


def _with_marks(parts: list[TokenRange]) -> list[TokenRange]:
    """Attach punctuation to the word that it belongs to."""
    result = list[TokenRange]()
    for part in reversed(parts):
        if result and part.text.startswith(" ") and part.text.strip() in BEFORE:
            behind = result[-1]
            result[-1] = TokenRange(part.text + behind.text, part.first, behind.last)
        else:
            result.append(part)
    parts = result[::-1]
    result = []
    for part in parts:
        if result and not result[-1].text.endswith(" ") and part.text in BEHIND:
            _append(result[-1], part)
        else:
            result.append(part)
    return [part for part in result if part.text]


def _append(word: TokenRange, part: TokenRange) -> None:
    word.text, word.last = word.text + part.text, part.last
