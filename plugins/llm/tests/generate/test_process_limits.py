"""Limits of bounded processes: those that SECURITY.md states."""

from __future__ import annotations

import pytest

for package in ("tokenizers", "jinja2", "llguidance", "starlette"):
    pytest.importorskip(package)

from mirlo_llm.generate import chat, guidance, tokenizer  # noqa: E402
from mirlo_llm.serve import transcriptions  # noqa: E402

from mirlo.extend.process import Bounds  # noqa: E402

ALL = {
    "texts": tokenizer._bounds_of(b"x"),
    "templates": chat.BOUNDS,
    "tokenizers": tokenizer.BOUNDS,
    "sounds": transcriptions._DECODER.bounds,
}


def test_seconds() -> None:
    """A call takes 2 to 30 seconds, and more for long texts."""
    seconds = [each.seconds for each in ALL.values()] + [guidance.COMPILE_SECONDS, guidance.STEP_SECONDS]
    assert (min(seconds), max(seconds)) == (2, 30)
    assert tokenizer._bounds_of(b"x" * (1 << 20)).seconds == 10 + (1 << 20) // 40_000


@pytest.mark.parametrize("kind", ALL)
def test_memory(kind: str) -> None:
    """1 GiB, and 4 for files of tokenizers; the stack has 8 MiB."""
    most = 4 << 30 if kind == "tokenizers" else 1 << 30
    assert ALL[kind].memory <= most and ALL[kind].growth <= most and ALL[kind].stack == Bounds().stack == 8 << 20


def test_texts_that_are_encoded_in_the_process_itself() -> None:
    assert tokenizer.INLINE_CHARACTERS == 4096
