"""Text as it comes: whole characters, and texts that end a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mirlo_llm.generate.lookup import LONGEST, SHORTEST, guess
from mirlo_llm.generate.text import StopText, TextStream


class Bytes:
    """A tokenizer whose tokens are the bytes of UTF-8; a space at the start of a text is lost, as in SentencePiece."""

    def encode(self, text: str, special: bool) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        text = bytes(tokens).decode("utf-8", "replace")
        return text.removeprefix(" ")


@pytest.mark.sample(0)
@given(st.text(max_size=60), st.text(max_size=60))
def test_streamed_text_is_the_whole_text(before: str, text: str) -> None:
    texts = Bytes()
    stream = TextStream(texts, texts.encode(before, False)[-TextStream.CONTEXT :])
    parts = [stream.add(token) for token in texts.encode(text, False)]
    made = "".join(parts) + stream.finish()
    if before and before[-1].isascii() and before[-1] != " ":
        assert made == text
    assert not any("\ufffd" in part for part in parts) or "\ufffd" in text


def test_bytes_that_are_no_character_come_at_last() -> None:
    stream = TextStream(Bytes(), [97])
    parts = [stream.add(0xFF) for _ in range(TextStream.MAX_PENDING)]
    assert not any(parts[:-1]) and parts[-1] == "\ufffd" * TextStream.MAX_PENDING


@given(st.lists(st.text("ab#", max_size=4), max_size=20), st.lists(st.text("ab#", min_size=1, max_size=4), max_size=3))
def test_stops(parts: list[str], stops: list[str]) -> None:
    whole = "".join(parts)
    places = [whole.find(stop) for stop in stops if stop in whole]
    stop, made = StopText(stops), ""
    for part in parts:
        made += stop.add(part)
        if stop.is_found:
            break
    made += stop.finish()
    # A longer stop that begins earlier may end later than a shorter one that is found first.
    assert stop.is_found == bool(places)
    assert whole.startswith(made) and not any(each in made for each in stops)
    if len(set(stops)) <= 1:
        assert made == (whole[: min(places)] if places else whole)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 6))
def test_guesses(tokens: list[int], count: int) -> None:
    found = guess(tokens, count)
    assert len(found) <= count
    ends = [
        (size, place)
        for size in range(SHORTEST, LONGEST + 1)
        for place in range(size, len(tokens))
        if tokens[place - size : place] == tokens[-size:]
    ]
    if not ends or not count:
        assert found == []
    else:
        _, place = max(ends)
        assert found == tokens[place : place + count]


@pytest.mark.parametrize("stops", ([], [""]))
def test_no_stops(stops: list[str]) -> None:
    assert StopText(stops).add("text") == "text"
