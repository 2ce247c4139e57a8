"""The choice of tokens, against definitions over all tokens in f64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mirlo_llm.generate import GenerationError, SearchOptions
from mirlo_llm.generate.sampler import Sampler, _largest, _most_probable


def penalized(logits: np.ndarray, tokens: list[int], prompt: int, o: SearchOptions, ends: list[int]) -> np.ndarray:
    """Apply the penalties token by token, as Hugging Face and OpenAI define them."""
    made = logits.astype(np.float64)
    for token in set(tokens):
        made[token] = made[token] / o.repetition_penalty if made[token] > 0 else made[token] * o.repetition_penalty
    for token in set(tokens[prompt:]):
        made[token] -= tokens[prompt:].count(token) * o.frequency_penalty + o.presence_penalty
    size = o.no_repeat_ngram_size
    if size and len(tokens) >= size:
        grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        for token in range(len(made)):
            if (*tokens[len(tokens) - size + 1 :], token) in grams:
                made[token] = -math.inf
    if len(tokens) < o.min_length:
        made[ends] = -math.inf
    return made


def probabilities(logits: np.ndarray, o: SearchOptions) -> np.ndarray:
    """Return the probability of each token after temperature, top-k, top-p and min-p."""
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    kept = order[: o.top_k] if o.top_k else order
    weights = {i: math.exp((logits[i] - logits[order[0]]) / o.temperature) for i in kept}
    total, sum_before, chosen = sum(weights.values()), 0.0, []
    for i in kept:
        if sum_before >= o.top_p * total and o.top_p < 1:
            break
        chosen.append(i)
        sum_before += weights[i]
    chosen = [i for i in chosen if weights[i] >= o.min_p * weights[order[0]]]
    made = np.zeros(len(logits))
    for i in chosen:
        made[i] = weights[i]
    return made / made.sum()


SEARCHES: list[dict[str, Any]] = [
    {}, {"temperature": 0.5}, {"temperature": 3.0}, {"top_k": 4}, {"top_p": 0.6}, {"min_p": 0.2},
    {"top_k": 12, "top_p": 0.8}, {"top_k": 9, "min_p": 0.1, "temperature": 1.5}, {"top_p": 0.9, "min_p": 0.05},
    {"top_k": 500}, {"top_p": 1e-9}, {"min_p": 1.0},
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("search", SEARCHES)
def test_tokens_are_drawn_with_their_probabilities(search: dict[str, Any]) -> None:
    logits = np.random.default_rng(1).standard_normal(40).astype(np.float32) * 2
    options = SearchOptions(do_sample=True, seed=5, **search)
    expected = probabilities(logits, options)
    sampler, count = Sampler(options, [0]), 6000
    found = np.bincount([sampler.choose(logits, [3], 1) for _ in range(count)], minlength=40)
    assert not found[expected == 0].any()
    deviation = np.sqrt(count * expected * (1 - expected)) + 1
    assert (np.abs(found - count * expected) < 5 * deviation).all()


@pytest.mark.parametrize("kind", ("normal", "flat", "peaked", "ties"))
@pytest.mark.parametrize("count", (1, 40, 3000, 19_999))
def test_the_most_probable_of_a_large_vocabulary(kind: str, count: int) -> None:
    random = np.random.default_rng(count)
    logits = (
        random.standard_normal(20_000).astype(np.float32) * {"normal": 3, "flat": 1e-3, "peaked": 40, "ties": 1}[kind]
    )
    logits = np.round(logits) if kind == "ties" else logits
    found = _largest(logits, count)
    bound = np.sort(logits)[-count]
    assert sorted(found) == list(np.flatnonzero(logits >= bound))
    weights = np.exp(logits - logits.max())
    share = float(np.sort(weights.astype(np.float64))[::-1][:count].sum() / weights.sum(dtype=np.float64))
    for wanted in (min(1.0, share * 0.999), share * 0.5):
        kept = _most_probable(weights, wanted, 0.0)
        assert len(set(kept)) == len(kept)
        total, left_out = weights.sum(dtype=np.float64), np.delete(weights, kept)
        assert not len(left_out) or left_out.max() <= weights[kept].min()
        mass = weights[kept].sum(dtype=np.float64)
        assert mass >= wanted * total * (1 - 1e-9) and mass - weights[kept].min() < wanted * total * (1 + 1e-9)
        least = float(np.median(weights[kept]))
        assert set(_most_probable(weights, wanted, least)) == {i for i in kept if weights[i] >= least}


PENALTIES: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3}, {"repetition_penalty": 0.5}, {"frequency_penalty": 0.4}, {"presence_penalty": 1.5},
    {"frequency_penalty": -0.2, "presence_penalty": -1.0}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3, "repetition_penalty": 1.1, "frequency_penalty": 0.1}, {"min_length": 30},
]  # fmt: skip


@pytest.mark.parametrize("search", PENALTIES)
@pytest.mark.parametrize("length", (1, 2, 25, 60))
def test_penalties(search: dict[str, Any], length: int) -> None:
    random = np.random.default_rng(length)
    options, ends = SearchOptions(**search), [0, 7]
    for _ in range(40):
        logits = random.standard_normal(50).astype(np.float32)
        kept = logits.copy()
        tokens, prompt = [int(token) for token in random.integers(0, 12, length)], int(random.integers(0, length + 1))
        expected = penalized(logits, tokens, prompt, options, ends)
        found = Sampler(options, ends).choose(logits, tokens, prompt)
        assert expected[found] == pytest.approx(expected.max(), abs=1e-5)
        np.testing.assert_array_equal(logits, kept)


@pytest.mark.parametrize("search", ({}, {"do_sample": True, "top_k": 2}))
def test_options_that_leave_no_token(search: dict[str, Any]) -> None:
    """The error names the options, not the model."""
    sampler = Sampler(SearchOptions(min_length=9, no_repeat_ngram_size=1, **search), [1])
    with pytest.raises(GenerationError, match="no token may follow: min_length, no_repeat_ngram_size, .*; loosen one"):
        sampler.choose(np.zeros(3, np.float32), [0, 2], 1)


def test_temperature_zero_is_greedy() -> None:
    logits = np.random.default_rng(0).standard_normal(100).astype(np.float32)
    sampler = Sampler(SearchOptions(do_sample=True, temperature=0), [])
    assert {sampler.choose(logits, [], 0) for _ in range(20)} == {int(logits.argmax())}


@pytest.mark.parametrize(
    ("search", "message"),
    (
        ({"temperature": -1.0}, "temperature: expected 0 or more, found -1.0"),
        ({"temperature": math.nan}, "temperature: expected a number, found nan"),
        ({"temperature": "hot"}, "temperature: expected a number, found 'hot'"),
        ({"top_p": 0.0}, "top_p: expected more than 0, at most 1"),
        ({"top_p": 1.5}, "top_p: expected more than 0, at most 1"),
        ({"min_p": 2.0}, "min_p: expected 0 to 1"),
        ({"top_k": -1}, "top_k: expected 0 or more"),
        ({"top_k": 2.5}, "top_k: expected an integer"),
        ({"top_k": True}, "top_k: expected an integer"),
        ({"do_sample": 1}, "do_sample: expected True or False"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: expected more than 0"),
        ({"seed": -3}, "seed: expected 0 or more"),
        ({"chunk_size": 0}, "chunk_size: expected 1 or more"),
        ({"lookup": 1000}, "lookup: expected 0 to 64"),
        ({"max_new_tokens": -1}, "max_new_tokens: expected 0 or more"),
    ),
)
def test_wrong_options(search: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        SearchOptions(**search)
