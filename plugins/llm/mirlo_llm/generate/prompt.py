"""The tokens of a prompt, and the number of tokens that may follow."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Protocol

from mirlo_llm.generate.config import ModelConfig
from mirlo_llm.generate.errors import GenerationError
from mirlo_llm.generate.search import SearchOptions
from mirlo_llm.generate.text import TokenTexts

UNLIMITED = 1 << 30
"""Maximum length of a sequence without another limit."""
Prompt = str | Sequence[int]


def require_texts(texts: TokenTexts | None) -> TokenTexts:
    """Return the tokenizer of a model; raise an error if there is none."""
    if texts is None:
        raise GenerationError("the model's folder has no tokenizer.json: pass tokens in place of text")
    return texts


def stop_texts(stop: Sequence[str] | str) -> tuple[str, ...]:
    """Return the texts that end a sequence, after a check."""
    texts = (stop,) if isinstance(stop, str) else stop
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise GenerationError(f"stop: expected a text or a list of texts, found {stop!r:.60}")
    return tuple(texts)


class TokenNumbers(Protocol):
    """The interface that checks token numbers."""

    vocabulary: int

    def is_token(self, token: int) -> bool:
        """Return whether a number is a token."""


def encode_prompt(texts: TokenTexts | None, known: TokenNumbers, prompt: Prompt, is_start: bool) -> list[int]:
    """Return the tokens of a text, or checked tokens; at the start of a sequence with its special tokens."""
    if isinstance(prompt, str):
        return require_texts(texts).encode(prompt, special=is_start)
    try:
        result = [operator.index(token) for token in prompt]
    except TypeError:
        raise GenerationError(f"a prompt is a text or a list of tokens, integers; found {prompt!r:.60}") from None
    wrong = next((token for token in result if not known.is_token(token)), None)
    if wrong is not None:
        raise GenerationError(f"a token must be from 0 to {known.vocabulary - 1}, found {wrong}")
    return result


def require_length(options: SearchOptions, config: ModelConfig, length: int) -> None:
    """Raise an error if a prompt exceeds the maximum length of a sequence."""
    most = _most(options, config)
    if most and length > most:
        raise GenerationError(f"the prompt is too long: {length} tokens are more than the {most} of a sequence")


def room_for(options: SearchOptions, config: ModelConfig, length: int, generated: int) -> int:
    """Return the number of tokens that may still follow, given the length and its `generated` part."""
    most = _most(options, config)
    room = most - length if most else UNLIMITED
    return min(room, options.max_new_tokens - generated) if options.max_new_tokens else room


def _most(options: SearchOptions, config: ModelConfig) -> int:
    """Return the maximum number of tokens of a sequence; 0 if there is no limit."""
    return min((limit for limit in (options.max_length, config.context) if limit), default=0)
