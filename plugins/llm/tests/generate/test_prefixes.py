"""Beginnings of sequences that are reused: the same tokens as without, whatever happens in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, OnDemand, load, require_same_logits, write_genai, write_hybrid, write_lora, write_plain
from mirlo_llm import generate
from mirlo_llm.generate import GenerationError, LanguageModel
from mirlo_llm.generate.generator import Generator
from mirlo_llm.generate.prefixes import PAGE, PrefixCache

KINDS = ("f32", "i8", "plain", "hybrid", "paged")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    """Return models that reuse nothing."""
    folder = tmp_path_factory.mktemp("models")
    write_genai(folder / "f32"), write_plain(folder / "plain"), write_hybrid(folder / "hybrid")
    write_genai(folder / "paged", paged=True)
    caches: dict[str, Any] = {"i8": {"kv_cache_dtype": "i8"}}
    return OnDemand(lambda kind: load(folder / kind.replace("i8", "f32"), prefix_bytes=0, **caches.get(kind, {})))


def with_pages(model: LanguageModel, nbytes: int = 1 << 22) -> LanguageModel:
    return LanguageModel(model.config, model.executable, prefix_bytes=nbytes)


def tokens_of(random: np.random.Generator, length: int, vocabulary: int = VOCABULARY) -> list[int]:
    return [int(token) for token in random.integers(2, vocabulary, length)]


class RowsOfTokens:
    """Rows that say which tokens they were computed from."""

    def __init__(self, tokens: list[int]) -> None:
        self.sums = np.cumsum(np.array(tokens, np.int64) * (1 + np.arange(len(tokens))))

    def __call__(self, start: int, stop: int) -> dict[str, np.ndarray]:
        return {"key": self.sums[None, None, start:stop, None].copy()}


@pytest.mark.parametrize("limit", (0, 2_000, 20_000, 1 << 30))
@pytest.mark.parametrize("with_states", (False, True))
def test_pages_are_as_a_list_of_sequences(limit: int, with_states: bool) -> None:
    """Sequences of few different tokens are added and looked for; each adapter has its own."""
    random, cache = np.random.default_rng(limit), PrefixCache(limit)
    added: dict[str | None, list[list[int]]] = {None: [], "a": []}
    hits = 0
    for _ in range(300):
        adapter = None if random.random() < 0.7 else "a"
        known = added[adapter]
        begin = known[random.integers(len(known))] if known and random.random() < 0.8 else []
        tokens = [*begin[: random.integers(len(begin) + 1)], *tokens_of(random, int(random.integers(1, 100)), 5)]
        rows = RowsOfTokens(tokens)
        if random.random() < 0.4:
            states = {"state": rows.sums[-1:].copy()}
            cache.add(adapter, tokens, rows, (lambda states=states: states) if with_states else None)
            known.append(tokens)
        most = int(random.integers(len(tokens) + 1))
        ends = [common(tokens[:most], other) for other in known]
        if with_states:
            ends = [end for end, other in zip(ends, known, strict=True) if end == len(other)]
        found = cache.find(adapter, tokens, most, with_states)
        length = 0 if found is None else found.length
        assert length == max(ends, default=0) if limit == 1 << 30 else length <= max(ends, default=0)
        if found is not None:
            hits += 1
            start = int(random.integers(length + 1))
            made = [part["key"] for part in found.rows_from(start)]
            np.testing.assert_array_equal(np.concatenate([rows(0, 0)["key"], *made], 2), rows(start, length)["key"])
            assert not with_states or found.states["state"] == rows.sums[length - 1]
        assert cache.nbytes <= limit and cache.nbytes == sum(page.nbytes for page in cache._used)
        assert all(len(page.tokens) <= PAGE for page in cache._used)
    assert hits > 8 or limit < 20_000
    cache.clear()
    assert len(cache) == cache.nbytes == 0 and cache.find(None, [1, 2], 2, False) is None


def common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_rows_that_are_gone_are_not_kept() -> None:
    cache, tokens = PrefixCache(), list(range(2 * PAGE))
    rows = RowsOfTokens(tokens)
    cache.add(None, tokens, lambda start, stop: rows(start, stop) if start >= PAGE else None)
    assert cache.find(None, tokens, len(tokens), False) is None
    cache.add(None, tokens[:PAGE], rows)
    cache.add(None, tokens, lambda start, stop: rows(start, stop) if start >= PAGE else None)
    found = cache.find(None, tokens, len(tokens), False)
    assert found is not None and found.length == 2 * PAGE


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("search", ({}, {"lookup": 3}, {"num_beams": 3, "max_length": 300}, {"chunk_size": 7}))
def test_a_common_beginning_is_computed_once(
    models: dict[str, LanguageModel], kind: str, search: dict[str, Any]
) -> None:
    random, plain = np.random.default_rng(0), models[kind]
    model, begin = with_pages(plain), tokens_of(random, 90)
    options = {"max_new_tokens": 8, "min_length": 1000, **search}
    model.generator(**options).generate(begin)
    for count in (1, 5):
        prompt = [*begin, *tokens_of(random, count)]
        first, second = model.generator(**options), model.generator(**options)
        expected = plain.generator(**options).generate(prompt)
        assert first.generate(prompt) == expected == second.generate(prompt)
        assert first.timing.reused_tokens == 90
        # A state is known after the last token of a prompt or an answer.
        assert second.timing.reused_tokens == (90 if kind == "hybrid" else len(prompt) - 1)
    short = model.generator(**options)
    assert short.generate(begin[:40]) == plain.generator(**options).generate(begin[:40])
    assert kind == "hybrid" or short.timing.reused_tokens == 39


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
def test_batches(models: dict[str, LanguageModel], kind: str) -> None:
    """Equal prompts are computed once, also without pages; so are known beginnings of others."""
    random, plain = np.random.default_rng(1), models[kind]
    model, begin = with_pages(plain), tokens_of(random, 80)
    options: dict[str, Any] = {"max_new_tokens": 6, "min_length": 1000}
    drawn = {**options, "do_sample": True, "temperature": 2.0, "seed": 3}
    batch = plain.generator(3, **drawn)
    found = batch.generate(begin, begin, begin)
    assert batch._sequences.steps == 6 and len({tuple(row) for row in found}) == 3
    assert found[0] == plain.generator(**drawn).generate(begin)
    model.generator(**options).generate(begin)
    lengths = (4, 4) if kind == "hybrid" else (1, 9)
    prompts = [[*begin, *tokens_of(random, length)] for length in lengths]
    batch = model.generator(2, **options)
    more = [tokens_of(random, 5) for _ in prompts]
    made = batch.generate(*prompts)
    assert made == [plain.generator(**options).generate(prompt) for prompt in prompts]
    assert batch.timing.reused_tokens == (0 if kind == "plain" else 160)
    batch.append(*more)
    whole = zip(prompts, made, more, strict=True)
    assert batch.generate() == [plain.generator(**options).generate([*a, *b, *c]) for a, b, c in whole]


@pytest.mark.sample(0)
def test_adapters_do_not_share(tmp_path: Any) -> None:
    from folders import lora_tensors, write_adapter

    write_lora(tmp_path)
    path = write_adapter(tmp_path / "a.onnx_adapter", lora_tensors(2, 0))
    model = generate.load(tmp_path, adapters={"a": path})
    prompt, expected = tokens_of(np.random.default_rng(2), 70), {}
    for adapter in (None, "a"):
        model.prefixes.clear()
        generator = model.generator(adapter=adapter)
        generator.append(prompt)
        expected[adapter] = generator.logits()
    assert np.abs(expected[None] - expected["a"]).max() > 0.1
    for adapter in (None, "a"):
        generator = model.generator(adapter=adapter)
        generator.append(prompt)
        np.testing.assert_allclose(generator.logits(), expected[adapter], rtol=1e-4, atol=1e-4)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_any_operations(models: dict[str, LanguageModel], kind: str, seed: int) -> None:
    """Generators of one model append, generate, rewind, fork and end; each knows what its tokens alone say."""
    random, plain = np.random.default_rng(seed), models[kind]
    model, draft = with_pages(plain, (40_000, 1 << 22)[seed % 2]), with_pages(plain)
    begins = [tokens_of(random, 90) for _ in range(2)]
    alive: list[Generator] = []

    def new() -> Generator:
        kinds: list[dict[str, Any]] = [{}, {"lookup": 2}, {"draft": draft, "draft_tokens": 2}, {"chunk_size": 16}]
        made = model.generator(min_length=1000, **kinds[random.integers(len(kinds))])
        made.append(begins[random.integers(2)][: random.integers(1, 90)])
        return made

    for _ in range(40):
        action = int(random.integers(6))
        if not alive or action == 0:
            alive.append(new())
            continue
        generator = alive[random.integers(len(alive))]
        tokens = list(generator.tokens)
        if action == 1 and len(alive) > 2:
            alive.remove(generator)
        elif action == 2:
            alive.append(generator.fork())
        elif action == 3 and len(tokens) > 1:
            generator.rewind(int(random.integers(1, len(tokens))))
        elif action == 4:
            begin = begins[random.integers(2)]
            generator.append(begin[len(tokens) : len(tokens) + int(random.integers(1, 30))] or [5])
        elif len(tokens) < 200:
            for _ in range(int(random.integers(1, 4))):
                fresh = plain.generator(min_length=1000)
                fresh.append(generator.tokens)
                assert generator.next() == fresh.next() or kind == "i8"
        fresh = plain.generator()
        fresh.append(generator.tokens)
        require_same_logits(generator, fresh, kind)
    assert 0 < model.prefixes.nbytes <= model.prefixes._limit


@pytest.mark.parametrize("nbytes", (-1, 1.5, "many"))
def test_wrong_bytes(models: dict[str, LanguageModel], nbytes: Any) -> None:
    with pytest.raises(GenerationError, match="prefix_bytes: expected a number of bytes, found"):
        with_pages(models["f32"], nbytes)
