"""Generation against ONNX Runtime in a plain loop, token for token, and against itself in other steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import (
    VOCABULARY,
    OnDemand,
    contiguous,
    continued,
    exact,
    load,
    write_genai,
    write_hybrid,
    write_plain,
    write_windows,
)
from mirlo_llm import generate
from mirlo_llm.generate import GenerationError, LanguageModel
from mirlo_llm.generate.decoder import PaddedTokens

KINDS = ("f32", "u4", "plain", "hybrid", "paged")
"""`u4` has a layer with a sliding window, `hybrid` one with states of a fixed size in place of keys and values;
`paged` is `f32` with caches in pages."""
CASES = [pytest.param(kind, marks=pytest.mark.sample(0)) if kind in ("u4", "plain") else kind for kind in KINDS]
"""`make test` compiles three of the models."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")
    write_genai(folder / "f32"), write_windows(folder / "u4", bits=4), write_plain(folder / "plain")
    write_hybrid(folder / "hybrid"), write_genai(folder / "paged", paged=True)
    return OnDemand(lambda kind: load(folder / kind, prefix_bytes=0, **exact(kind)))


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(2, VOCABULARY, length)]


def without_end(model: LanguageModel, prompt: Sequence[int], count: int, **search: Any) -> list[int]:
    """Return this many tokens, whatever they are."""
    generator = model.generator(min_length=1000, max_new_tokens=count, **search)
    found: list[int] = generator.generate(prompt)
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", (1, 7, 40))
def test_tokens_are_those_of_onnxruntime(models: dict[str, LanguageModel], kind: str, length: int) -> None:
    model, prompt = models[kind], prompt_of(length, seed=length)
    expected = continued(contiguous(models, kind).config.model, prompt, 24)
    ends = [i for i, token in enumerate(expected) if token in model.config.ends]
    expected = expected[: ends[0] + 1] if ends else expected
    assert model.generator(max_new_tokens=24).generate(prompt) == expected


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("chunk", (1, 3, 8, 40))
def test_chunked_is_whole(models: dict[str, LanguageModel], kind: str, chunk: int) -> None:
    model, prompt = models[kind], prompt_of(40)
    oracle = contiguous(models, kind)
    whole, chunked = oracle.generator(), model.generator(chunk_size=chunk)
    whole.append(prompt), chunked.append(prompt)
    np.testing.assert_allclose(chunked.logits(), whole.logits(), rtol=1e-4, atol=1e-4)
    assert without_end(model, prompt, 10, chunk_size=chunk) == without_end(oracle, prompt, 10)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ("f32", "u4", "plain", "paged"))
def test_only_logits_that_are_needed_are_computed(models: dict[str, LanguageModel], kind: str) -> None:
    model, prompt = models[kind], prompt_of(30)
    whole = generate.load(model.config.folder, last_rows=None, **exact(kind))
    state = model._decoder.new_state(64, 1, 64)
    for rows in (1, 4, 30):
        state.rewind(0)
        tokens, mask = np.array([prompt]), np.ones((1, 30), np.int64)
        step = PaddedTokens(tokens, mask, np.arange(30)[None], (30,), [[]])
        made = model._decoder.run(state, step, rows)
        wanted = whole._decoder.run(whole._decoder.new_state(64, 1, 64), step, 30)
        assert made.shape == (1, rows, VOCABULARY) and wanted.shape == (1, 30, VOCABULARY)
        np.testing.assert_allclose(made, wanted[:, -rows:], rtol=1e-4, atol=1e-4)
    assert without_end(model, prompt, 12) == without_end(whole, prompt, 12)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", CASES)
def test_rewound_is_fresh(models: dict[str, LanguageModel], kind: str) -> None:
    model, prompt = models[kind], prompt_of(12)
    generator = model.generator(min_length=1000, max_new_tokens=9)
    first = generator.generate(prompt)
    for length in (12, 15, 5):
        known = generator.tokens[:length]
        generator.rewind(length)
        assert generator.tokens == known
        other = prompt_of(4, seed=length)
        assert generator.generate(other) == without_end(contiguous(models, kind), [*known, *other], 9)
    generator.rewind(0)
    assert generator.generate(prompt) == first


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("lengths", ((6, 6, 6), (9, 3, 5), (1, 12)))
def test_batch_is_single(models: dict[str, LanguageModel], kind: str, lengths: tuple[int, ...]) -> None:
    model = models[kind]
    prompts = [prompt_of(length, seed=10 + i) for i, length in enumerate(lengths)]
    if kind == "hybrid" and len(set(lengths)) > 1:
        with pytest.raises(GenerationError, match="prompts of one length are expected, found 9, 3, 5|found 1, 12"):
            model.generator(batch=len(prompts)).generate(*prompts)
        return
    generator = model.generator(batch=len(prompts), min_length=1000, max_new_tokens=12)
    found = generator.generate(*prompts)
    oracle = contiguous(models, kind)
    assert found == [without_end(oracle, prompt, 12) for prompt in prompts]
    more = [prompt_of(3, seed=20 + i) for i in range(len(prompts))]
    generator.append(*more)
    parts = zip(prompts, found, more, strict=True)
    assert generator.generate() == [without_end(oracle, [*a, *b, *c], 12) for a, b, c in parts]


@pytest.mark.parametrize("kind", CASES)
def test_sequences_of_a_batch_end_for_themselves(models: dict[str, LanguageModel], kind: str) -> None:
    model = models[kind]
    prompts = [prompt_of(5, seed=i) for i in range(3)]
    singles = [without_end(contiguous(models, kind), prompt, 10) for prompt in prompts]
    ends = (singles[0][2], singles[1][6])
    ended = LanguageModel(_with_ends(model, ends), model.executable)
    found = ended.generator(batch=3, max_new_tokens=10).generate(*prompts)
    for made, whole in zip(found, singles, strict=True):
        stop = next((i for i, token in enumerate(whole) if token in ends), 9)
        assert made == whole[: stop + 1]


def _with_ends(model: LanguageModel, ends: tuple[int, ...]) -> Any:
    from dataclasses import replace

    return replace(model.config, ends=ends)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("search", ({}, {"do_sample": True, "temperature": 0.7, "top_k": 5, "seed": 3}))
def test_guesses_change_nothing(models: dict[str, LanguageModel], kind: str, search: dict[str, Any]) -> None:
    model, prompt = models[kind], prompt_of(6) * 4
    expected = without_end(contiguous(models, kind), prompt, 30, **search)
    for lookup in (1, 4):
        assert without_end(model, prompt, 30, lookup=lookup, **search) == expected


@pytest.mark.sample(0)
def test_right_guesses_cost_no_step(models: dict[str, LanguageModel]) -> None:
    """Greedy tokens of a model without much memory repeat sooner or later."""
    model = models["plain"]
    generator = model.generator(lookup=4, max_new_tokens=150, min_length=1000, repetition_penalty=0.2)
    generator.generate(prompt_of(3) * 5)
    assert generator.timing.tokens == 149 and generator.timing.steps < 120


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ("f32", "plain", "paged"))
@pytest.mark.parametrize("search", ({}, {"do_sample": True, "temperature": 0.7, "top_k": 5, "seed": 3}, {"lookup": 2}))
def test_drafts_change_nothing(models: dict[str, LanguageModel], kind: str, search: dict[str, Any]) -> None:
    model, prompt = models[kind], prompt_of(9)
    expected = without_end(contiguous(models, kind), prompt, 25, **search)
    for draft in (models[kind] for kind in KINDS):
        generator = model.generator(draft=draft, draft_tokens=3, min_length=1000, max_new_tokens=25, **search)
        assert generator.generate(prompt) == expected
        generator.rewind(15)
        fork, plain = (
            generator.fork(seed=8),
            model.generator(min_length=1000, max_new_tokens=10, **search | {"seed": 8}),
        )
        plain.append(generator.tokens)
        assert fork.generate()[6:16] == plain.generate()
    same = model.generator(draft=model, draft_tokens=3, min_length=1000, max_new_tokens=25)
    same.generate(prompt)
    assert same.timing.tokens == 24 and same.timing.steps == 6  # four tokens a step


@pytest.mark.sample(0)
def test_draft_with_other_tokens(models: dict[str, LanguageModel], tmp_path: Path) -> None:
    import onnx
    from folders import example

    module = example()
    onnx.save(module.TinyModel(64, 0, 0).build(), tmp_path / "model.onnx")
    module.write_config(tmp_path, 64)
    with pytest.raises(GenerationError, match=f"draft: the models have different tokens: 64 and {VOCABULARY} of them"):
        models["f32"].generator(draft=generate.load(tmp_path))


def test_conversation_goes_on(models: dict[str, LanguageModel]) -> None:
    """Prompts that are appended are as one prompt with all that was before."""
    model = models["f32"]
    generator = model.generator(min_length=1000, max_new_tokens=5)
    history: list[int] = []
    for turn in range(3):
        prompt = prompt_of(4, seed=turn)
        found = generator.generate(prompt)
        assert found == without_end(model, [*history, *prompt], 5)
        history += [*prompt, *found]
    assert generator.tokens == history
    assert generator.timing.prompt_tokens == 12 and generator.timing.tokens == 12


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("batch", (1, 2))
def test_forks_continue_on_their_own(models: dict[str, LanguageModel], kind: str, batch: int) -> None:
    model, prompts = models[kind], [prompt_of(6 + i * (kind != "hybrid"), seed=i) for i in range(batch)]
    search = {"do_sample": True, "temperature": 1.5, "min_length": 1000, "max_new_tokens": 8}
    start = model.generator(batch, seed=0, **search)
    start.append(*prompts)
    start.logits()
    forks = {seed: start.fork(seed=seed) for seed in (1, 2)}
    steps = start._sequences.steps
    found = {seed: fork.generate() for seed, fork in forks.items()}
    oracle = contiguous(models, kind)
    expected = {seed: oracle.generator(batch, seed=seed, **search).generate(*prompts) for seed in forks}
    assert found == expected and found[1] != found[2]
    assert [fork._sequences.steps for fork in forks.values()] == [steps + 7] * 2  # the prompt is not computed again
    assert start.tokens == (prompts[0] if batch == 1 else prompts)


def test_seeds(models: dict[str, LanguageModel]) -> None:
    model, prompt = models["f32"], prompt_of(5)
    search = {"do_sample": True, "temperature": 2.0}
    first, again, other = (without_end(model, prompt, 12, seed=seed, **search) for seed in (1, 1, 2))
    assert first == again != other
    # The sequences of a batch draw different numbers.
    made = model.generator(batch=2, seed=1, min_length=1000, max_new_tokens=12, **search).generate(prompt, prompt)
    assert made[0] == first != made[1]


def test_end(models: dict[str, LanguageModel]) -> None:
    model, prompt = models["f32"], prompt_of(5)
    made = without_end(model, prompt, 8)
    ended = LanguageModel(_with_ends(model, (made[4],)), model.executable).generator(max_new_tokens=8)
    stop = made.index(made[4])
    assert ended.generate(prompt) == made[: stop + 1] and ended.is_done
    with pytest.raises(GenerationError, match="the sequence has ended: append to it, or rewind it"):
        ended.next()
    ended.rewind(5)
    assert ended.next() == made[0]


def test_context_is_the_limit(tmp_path: Path) -> None:
    model = generate.load(write_plain(tmp_path, max_position_embeddings=12))
    generator = model.generator(min_length=1000)
    assert len(generator.generate(prompt_of(7))) == 5 and generator.is_done
    with pytest.raises(GenerationError, match="the prompt is too long: 13 tokens are more than the 12"):
        model.generator().append(prompt_of(13))
    assert len(model.generator(min_length=1000, max_length=9, lookup=3).generate(prompt_of(2) * 3)) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    (
        (lambda m: m.generator(batch=0), "batch: expected 1 to 4096 sequences, found 0"),
        (lambda m: m.generator(batch=10**9), "batch: expected 1 to 4096 sequences, found 1000000000"),
        (lambda m: m.generator(batch="2"), "batch: expected 1 to 4096 sequences, found '2'"),
        (lambda m: m.generator(draft="folder"), "draft: expected a language model, .*, found 'folder'"),
        (lambda m: m.generator(adapter=["a"]), r"adapter: there is none named \['a'\]"),
        (lambda m: m.generator(stop=[3]), r"stop: expected a text or a list of texts, found \[3\]"),
        (lambda m: m.generator().rewind("0"), "cannot go back to '0' tokens: there are 0"),
        (lambda m: m.generator().append(["a"]), r"a prompt is a text or a list of tokens, integers; found \['a'\]"),
        (lambda m: m.generator().append([0.5]), r"list of tokens, integers; found \[0.5\]"),
        (lambda m: m.generator(top_q=1), "no option of a search is named 'top_q'; did you mean 'top_p'?"),
        (lambda m: m.generator().next(), "there are no tokens yet: append a prompt first"),
        (lambda m: m.generator().append([]), "a prompt has no tokens"),
        (
            lambda m: m.generator().append([1, VOCABULARY]),
            f"a token must be from 0 to {VOCABULARY - 1}, found {VOCABULARY}",
        ),
        (lambda m: m.generator().append([-1]), "found -1"),
        (lambda m: m.generator().append([1], [2]), "expected 1 prompts, one for each sequence, found 2"),
        (lambda m: m.generator().append("text"), "has no tokenizer.json: pass tokens in place of text"),
        (lambda m: m.generator().rewind(1), "cannot go back to 1 tokens: there are 0"),
        (lambda m: m.generator(batch=2, stop="x"), "strings that end a sequence need batch=1"),
        (lambda m: next(m.generator(batch=2).stream([1], [2])), "stream: there are 2 sequences"),
        (lambda m: m.chat_tokens([]), "there is no chat template"),
    ),
)
def test_wrong_calls(models: dict[str, LanguageModel], call: Any, message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        call(models["f32"])


def test_logits_that_are_not_finite_are_an_error(models: dict[str, LanguageModel]) -> None:
    from mirlo_llm.generate.sampler import Sampler
    from mirlo_llm.generate.search import SearchOptions

    for options in (SearchOptions(), SearchOptions(do_sample=True, top_k=3)):
        with pytest.raises(GenerationError, match="logits are not finite"):
            Sampler(options, [1]).choose(np.full(8, np.nan, np.float32), [1], 1)


@pytest.mark.sample(0)
@pytest.mark.parametrize("dtype", ("bf16", "f16", "i8"))
def test_narrow_caches(tmp_path: Path, models: dict[str, LanguageModel], dtype: str) -> None:
    """Rows are rounded once, when they are written: chunks, forks and batches compute the same."""
    from mirlo.extend.runtime import numpy_dtype

    model, exact = generate.load(write_genai(tmp_path), kv_cache_dtype=dtype), models["f32"]
    prompt = prompt_of(40)
    narrow, wide = (each.generator(max_new_tokens=12, min_length=1000) for each in (model, exact))
    narrow.append(prompt), wide.append(prompt)
    error = {"bf16": 0.1, "f16": 0.02, "i8": 0.1}[dtype]
    np.testing.assert_allclose(narrow.logits(), wide.logits(), atol=error)
    caches, others = (each._sequences._state.arrays for each in (narrow, wide))
    for kind in ("key", "value"):  # of the first layer, which no attention comes before
        name = f"past_key_values.0.{kind}"
        assert caches[name].dtype == numpy_dtype(dtype)
        if dtype == "i8":
            scales = caches[f"{name}.scale"]
            np.testing.assert_allclose(scales, np.abs(others[name]).max(3, keepdims=True) / 127, rtol=1e-5)
            assert np.abs(caches[name] * scales - others[name]).max() <= 0.501 * scales.max()
            continue
        expected = others[name].astype(numpy_dtype(dtype)).astype(np.float32)
        np.testing.assert_allclose(caches[name].astype(np.float32), expected, rtol=2**-7, atol=1e-6)
    size = others["past_key_values.0.key"].shape[3]
    fewer = size * 4 / (size + 4) if dtype == "i8" else 2
    assert sum(x.nbytes for x in caches.values()) * fewer == sum(x.nbytes for x in others.values())
    found = narrow.fork().generate()
    assert (
        narrow.generate() == found == model.generator(chunk_size=7, min_length=1000, max_new_tokens=12).generate(prompt)
    )
    requests = [model.engine(slots=2).add(prompt, min_length=1000, max_new_tokens=12) for _ in range(2)]
    assert [request.result() for request in requests] == [found, found]


def test_states_of_a_fixed_size(models: dict[str, LanguageModel]) -> None:
    """Going back ends at a length of which the states are known; what follows is computed again."""
    model = models["hybrid"]
    decoder = model._decoder
    assert sorted(decoder.states) == [f"past_key_values.0.{kind}_state" for kind in ("conv", "recurrent")]
    assert sorted(decoder.caches) == ["past_key_values.1.key", "past_key_values.1.value"]
    state = decoder.new_state(16, 1, 16)
    rows = {"last_rows": np.zeros(1, np.int8)}
    inputs = {"input_ids": np.array([[5, 6, 7, 8]]), "attention_mask": np.ones((1, 4), np.int64), **rows}
    first = state.run(inputs, 4)["logits"]
    assert state.is_recurrent and state.rewind(4) == 4 and state.rewind(2) == 0
    np.testing.assert_array_equal(state.run(inputs, 4)["logits"], first)
    one = {"input_ids": np.array([[9]]), "attention_mask": np.ones((1, 5), np.int64), **rows}
    after = state.run(one, 1)["logits"]
    fork = state.fork()
    for each in (state, fork):
        assert each.rewind(4) == 4 and each.length == 4
        np.testing.assert_array_equal(each.run(one, 1)["logits"], after)
    assert state.rewind(3) == 0


@pytest.mark.sample(0)
def test_mapped_weights_change_nothing(tmp_path: Path, models: dict[str, LanguageModel]) -> None:
    mapped = generate.load(write_genai(tmp_path), mapped=True)
    assert without_end(mapped, prompt_of(7), 9) == without_end(models["f32"], prompt_of(7), 9)


def test_narrow_caches_need_caches_in_place(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no f32 input is a cache that grows in place"):
        generate.load(write_plain(tmp_path), kv_cache_dtype="bf16")
    with pytest.raises(ValueError, match="kv_cache_dtype: expected bf16, f16, i8 or None, found 'i4'"):
        generate.load(write_plain(tmp_path), kv_cache_dtype="i4")


def test_no_memory_grows(models: dict[str, LanguageModel]) -> None:
    import tracemalloc

    generator = models["f32"].generator(min_length=5000)
    generator.append(prompt_of(1100))
    for _ in range(30):
        generator.next()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(300):
            generator.next()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000  # caches of 2048 rows have 1 MB
