"""The option `invariant`: logits have the same bits however prompts are divided into calls, and alone or in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, OnDemand, exact, load, write_genai, write_hybrid, write_plain, write_windows
from mirlo_llm.generate import LanguageModel
from mirlo_llm.generate.decoder import PaddedTokens
from mirlo_llm.generate.perplexity import window_logits
from mirlo_llm.generate.sequences import Sequences

KINDS = ("f32", "u4", "plain", "hybrid", "paged")
"""As in test_engine.py."""
CASES = [pytest.param(kind, marks=pytest.mark.sample(0)) if kind in ("u4", "plain") else kind for kind in KINDS]
LENGTH = 70


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")
    write_genai(folder / "f32"), write_windows(folder / "u4", bits=4), write_plain(folder / "plain")
    write_hybrid(folder / "hybrid"), write_genai(folder / "paged", paged=True)
    return OnDemand(lambda kind: load(folder / kind, prefix_bytes=0, invariant=True, **exact(kind)))


def tokens_of(seed: int, length: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(2, VOCABULARY, length)]


def equal_rows(model: LanguageModel, chunk: int) -> int:
    """Return how many rows of logits are those of one call, if each call has this many tokens."""
    tokens = np.array(tokens_of(0, LENGTH))
    # Logits are in memory of the caches: rows are copied before the next call.
    whole, parts = (
        [row.tobytes() for rows in window_logits(model._decoder, tokens, size) for row in rows]
        for size in (LENGTH, chunk)
    )
    return sum(a == b for a, b in zip(whole, parts, strict=True))


@pytest.mark.parametrize("kind", CASES)
def test_parts_of_a_prompt(models: dict[str, LanguageModel], kind: str) -> None:
    """Parts of 1 to 33 tokens: rows of weights of 4 bits are computed by kernels for few rows and for many."""
    assert {chunk: equal_rows(models[kind], chunk) for chunk in (1, 2, 3, 7, 16, 33)} == dict.fromkeys(
        (1, 2, 3, 7, 16, 33), LENGTH
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", CASES)
def test_drawn_parts_of_drawn_prompts(models: dict[str, LanguageModel], kind: str, seed: int) -> None:
    """Prompts of drawn lengths, in parts of drawn lengths, among them single tokens."""
    decoder, random = models[kind]._decoder, np.random.default_rng(seed)
    length = int(random.choice([1, 2, random.integers(3, 120)]))
    tokens, sizes = np.array(tokens_of(seed, length)), list[int]()
    while sum(sizes) < length:
        sizes.append(int(min(length - sum(sizes), random.choice([1, 1, random.integers(2, 50)]))))
    whole, parts = (
        [row.tobytes() for rows in part_logits(decoder, tokens, each) for row in rows] for each in ([length], sizes)
    )
    assert whole == parts, sizes


def part_logits(decoder: Any, tokens: np.ndarray, sizes: list[int]) -> Iterator[np.ndarray]:
    """Yield the logits of parts of a prompt, of these lengths."""
    state, first = decoder.new_state(len(tokens), 1, max(sizes)), 0
    for size in sizes:
        after = first + size
        mask, positions = np.ones((1, after), np.int64), np.arange(first, after)[None]
        new = PaddedTokens(tokens[None, first:after], mask, positions, (size,), [tokens[:first].tolist()])
        yield decoder.run(state, new, size)[0]
        first = after


def test_the_option_is_needed(tmp_path: Path) -> None:
    write_windows(tmp_path, bits=4)
    assert equal_rows(load(tmp_path, prefix_bytes=0, **exact("u4")), 7) < LENGTH


@pytest.mark.parametrize("kind", CASES)
def test_batches(models: dict[str, LanguageModel], kind: str) -> None:
    """Sequences of a batch, whose lengths differ where the model can pad them, have the logits that they have alone."""
    decoder = models[kind]._decoder
    for lengths in ((9, 9, 9), *(((1, 17, 40, 5),) if kind != "hybrid" else ())):
        prompts = [tokens_of(seed, length) for seed, length in enumerate(lengths, 1)]
        expected = [logits_of(decoder, [prompt], 64) for prompt in prompts]
        found = logits_of(decoder, prompts, 64)
        for step in range(3):
            assert [each.tobytes() for each in found[step]] == [alone[step][0].tobytes() for alone in expected]


def logits_of(decoder: Any, prompts: list[list[int]], chunk: int) -> list[np.ndarray]:
    """Return the logits after prompts, and after each of two tokens more."""
    sequences, result = Sequences(decoder, len(prompts), chunk), []
    sequences.tokens = [list(prompt) for prompt in prompts]
    for step in range(3):
        result.append(np.array(sequences.logits()))
        for tokens in sequences.tokens:
            tokens.append(2 + (len(tokens) * 7 + step) % (VOCABULARY - 2))
    return result
