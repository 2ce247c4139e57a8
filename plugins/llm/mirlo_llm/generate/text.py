"""Text of a token stream: complete characters, and stop texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")

INCOMPLETE = "\ufffd"
"""The replacement character of decoders for incomplete characters."""


class TokenTexts(Protocol):
    """The interface of a tokenizer."""

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the tokens of a text; with `special`, also those that mark its start and end."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""


class DecodedTexts(TokenTexts, Protocol):
    """The interface of a tokenizer that decodes special tokens, too."""

    def decode(self, tokens: Sequence[int], special: bool = False) -> str:
        """Return the text of tokens; with `special`, also that of special ones."""

    def token(self, text: str) -> int | None:
        """Return the token with this text; None if there is none."""


class KeptTokens:
    """A tokenizer that decodes some special tokens as text."""

    def __init__(self, texts: DecodedTexts, kept: Sequence[str]) -> None:
        self._texts = texts
        tokens = {token for text in kept if (token := texts.token(text)) is not None}
        self._kept = {token for token in tokens if self._is_special(token)}
        self._special: dict[int, bool] = dict.fromkeys(self._kept, False)
        """Whether tokens are special ones that are left out."""

    def _is_special(self, token: int) -> bool:
        return not self._texts.decode([token]) and bool(self._texts.decode([token], special=True))

    def encode(self, text: str, special: bool) -> list[int]:
        """Return the tokens of a text."""
        return self._texts.encode(text, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones that are not kept."""
        if not self._kept.intersection(tokens):
            return self._texts.decode(tokens)
        for token in set(tokens) - self._special.keys():
            self._special[token] = self._is_special(token)
        return self._texts.decode([token for token in tokens if not self._special[token]], special=True)


class TextStream:
    """Decodes token by token.

    The text of a token depends on those before it, and a character may be part of several tokens. So the last few
    tokens are decoded again, and text is returned when it is complete.
    """

    CONTEXT = 4
    """Number of earlier tokens that are decoded again as context."""
    MAX_PENDING = 16
    """Number of tokens after which incomplete characters are returned."""

    def __init__(self, texts: TokenTexts, before: Sequence[int] = ()) -> None:
        self._texts = texts
        self._tokens = list(before)
        self._shown = len(self._decoded())
        self._pending = 0

    def fork(self) -> TextStream:
        """Return a copy that continues separately."""
        clone = _copied(self)
        clone._tokens = list(self._tokens)
        return clone

    def _decoded(self) -> str:
        return self._texts.decode(self._tokens) if self._tokens else ""

    def add(self, token: int) -> str:
        """Return the text that this token completes."""
        self._tokens.append(token)
        self._pending += 1
        text = self._decoded()
        if text.endswith(INCOMPLETE) and self._pending < self.MAX_PENDING:
            return ""
        new = text[self._shown :]
        self._pending = 0
        if len(self._tokens) > 4 * self.CONTEXT:
            del self._tokens[: -self.CONTEXT]
            text = self._decoded()
        self._shown = len(text)
        return new

    def finish(self) -> str:
        """Return the rest of the text."""
        new = self._decoded()[self._shown :]
        self._shown += len(new)
        return new


class StopText:
    """Searches for stop texts, and withholds text that may be the start of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.is_found = False

    def fork(self) -> StopText:
        """Return a copy that continues separately."""
        return _copied(self)

    def add(self, text: str) -> str:
        """Return the text that cannot be part of a stop text."""
        if not self._stops:
            return text
        self._held += text
        places = [place for place in (self._held.find(stop) for stop in self._stops) if place >= 0]
        if places:
            self.is_found = True
            return self._held[: min(places)]
        kept = max(_overlap(self._held, stop) for stop in self._stops)
        finished, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return finished

    def finish(self) -> str:
        """Return the withheld text, if no stop was found."""
        rest, self._held = "" if self.is_found else self._held, ""
        return rest


class AnswerText:
    """The text of a growing answer, up to the first stop text."""

    def __init__(self, texts: TokenTexts, before: Sequence[int], stops: Sequence[str]) -> None:
        """Start after the tokens `before`."""
        self._stream = TextStream(texts, before[-TextStream.CONTEXT :])
        self._stop = StopText(stops)

    def fork(self) -> AnswerText:
        """Return a copy that continues separately."""
        clone = _copied(self)
        clone._stream, clone._stop = self._stream.fork(), self._stop.fork()
        return clone

    @property
    def is_stopped(self) -> bool:
        """Return whether a stop text was found, which ends the answer."""
        return self._stop.is_found

    def add(self, token: int) -> str:
        """Return the text that this token completes."""
        return self._stop.add(self._stream.add(token))

    def finish(self) -> str:
        """Return the rest of the text of an answer that is not stopped."""
        return self._stop.add(self._stream.finish()) + self._stop.finish()


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of a text that is a prefix of a stop."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


def _copied(value: T) -> T:
    """Return a shallow copy: `copy.copy` takes four times as long, and this is done for each token."""
    clone = object.__new__(type(value))
    clone.__dict__.update(value.__dict__)
    return clone
