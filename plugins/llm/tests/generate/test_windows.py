"""Sliding windows whose caches are rings: the tokens of caches that hold everything, in memory that does not grow."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, OnDemand, continued, require_same_logits, write_windows
from mirlo_llm import caches, generate
from mirlo_llm.generate import LanguageModel
from mirlo_llm.generate.generator import Generator

from mirlo.testing import oracle

needs_transformers = pytest.mark.skipif(
    not all(map(find_spec, ("transformers", "torch", "mirlo.benchmarks"))), reason="needs transformers and a clone"
)
LAYERS = ["sliding_attention", "full_attention"]
WINDOWS = {"mixed": (6, 0), "i8": (3, 17)}
"""Windows of the layers; 0 stands for none. `i8` has caches of 8 bits."""
WEIGHTS = {
    "by hand": ("gemma3_text", {"sliding_window": 6, "num_hidden_layers": 2, "layer_types": LAYERS, "head_dim": 16}),
    "traced": ("olmo3", {"sliding_window": 6, "num_hidden_layers": 4, "layer_types": [*LAYERS, *LAYERS]}),
    "traced i8": ("olmo3", {"sliding_window": 5, "num_hidden_layers": 1, "layer_types": LAYERS[:1]}),
    "experts": ("gpt_oss", {"sliding_window": 6, "num_hidden_layers": 2, "layer_types": LAYERS}),
}
"""Architectures that are built of weights, by hand or by the code of transformers, with keys of configurations."""
COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "eos_token_id": None, "max_position_embeddings": 2048}
KINDS = [*WINDOWS, *(pytest.param(kind, marks=needs_transformers) for kind in WEIGHTS)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[LanguageModel, LanguageModel]]:
    """Return models with rings, which reuse prefixes, and the same ones with caches of all tokens, which do not."""
    folder = tmp_path_factory.mktemp("models")

    def load(kind: str) -> tuple[LanguageModel, LanguageModel]:
        if kind in WINDOWS:
            write_windows(folder / kind, WINDOWS[kind])
        else:
            from mirlo.benchmarks.llm.architectures import tiny_model

            name, keys = WEIGHTS[kind]
            tiny_model(name, **COMMON, **keys).save_pretrained(folder / kind)
        options: dict[str, Any] = {"kv_cache_dtype": "i8"} if "i8" in kind else {}
        whole = generate.load(folder / kind, ring_caches=False, prefix_bytes=0, **options)
        return generate.load(folder / kind, **options), whole

    return OnDemand(load)


def tokens_of(random: np.random.Generator, length: int) -> list[int]:
    return [int(token) for token in random.integers(2, VOCABULARY, length)]


def fresh(model: LanguageModel) -> LanguageModel:
    """Return a model that has no prefixes yet."""
    return LanguageModel(model.config, model.executable)


@pytest.mark.sample(0)
def test_windows_of_inputs(models: dict[str, tuple[LanguageModel, LanguageModel]]) -> None:
    names = [f"past_key_values.{i}.{kind}" for i in range(2) for kind in ("key", "value")]
    assert caches.windows(models["mixed"][0].executable) == dict.fromkeys(names[:2], 6)
    windows = dict.fromkeys(names[:2], 3) | dict.fromkeys(names[2:], 17)
    assert caches.windows(models["i8"][0].executable) == windows | {f"{name}.scale": n for name, n in windows.items()}
    assert not caches.windows(models["mixed"][1].executable)


@pytest.mark.sample(0)
@oracle.needs_new
@pytest.mark.parametrize("chunk", (1, 5, 64))
def test_tokens_are_those_of_onnxruntime(models: dict[str, tuple[LanguageModel, LanguageModel]], chunk: int) -> None:
    """Prompts are longer than windows, and answers go around the rings several times."""
    model, prompt = fresh(models["mixed"][0]), tokens_of(np.random.default_rng(chunk), 45)
    generator = model.generator(chunk_size=chunk, min_length=1000, max_new_tokens=60)
    assert generator.generate(prompt) == continued(model.config.model, prompt, 60, without=model.config.ends)
    state = generator._sequences._state
    rows = {name: array.shape[2] for name, array in state._caches.arrays.items()}
    windows = caches.windows(model.executable)
    assert {name: rows[name] for name in windows} == {n: min(w - 1 + chunk, 256) for n, w in windows.items()}


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_bounded(models: dict[str, tuple[LanguageModel, LanguageModel]], kind: str) -> None:
    model = models[kind][0]
    generator = model.generator(chunk_size=8, min_length=5000, max_new_tokens=600)
    generator.append(tokens_of(np.random.default_rng(0), 10))
    sizes = []
    for _ in range(600):
        generator.next()
        arrays = generator._sequences._state._caches.arrays
        sizes.append(sum(arrays[name].nbytes for name in caches.windows(model.executable)))
    assert len(set(sizes)) == 1


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_any_operations(models: dict[str, tuple[LanguageModel, LanguageModel]], kind: str, seed: int) -> None:
    """Generators append, generate, rewind within the window and beyond it, fork and guess."""
    random, (ring, whole) = np.random.default_rng(seed), models[kind]
    model = fresh(ring)
    begins = [tokens_of(random, 60) for _ in range(2)]
    alive: list[Generator] = []
    for _ in range(40):
        action = int(random.integers(6))
        if not alive or action == 0:
            kinds: list[dict[str, Any]] = [{}, {"lookup": 2}, {"draft": model, "draft_tokens": 2}]
            options = kinds[random.integers(len(kinds))] | {"chunk_size": int(random.choice([1, 4, 9, 16]))}
            alive.append(model.generator(min_length=1000, **options))
            alive[-1].append(begins[random.integers(2)][: random.integers(1, 60)])
            continue
        generator = alive[random.integers(len(alive))]
        tokens = list(generator.tokens)
        if action == 1 and len(alive) > 2:
            alive.remove(generator)
        elif action == 2:
            alive.append(generator.fork())
        elif action == 3 and len(tokens) > 1:
            back = int(random.integers(1, len(tokens))) if random.integers(2) else max(1, len(tokens) - 3)
            generator.rewind(back)
        elif action == 4:
            generator.append(begins[random.integers(2)][len(tokens) :][: int(random.integers(1, 30))] or [5])
        elif len(tokens) < 150:
            for _ in range(int(random.integers(1, 12))):
                generator.next()
        other = whole.generator()
        other.append(generator.tokens)
        require_same_logits(generator, other, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", ((20, 20), (9, 3, 5), (30, 4)))
def test_batch_is_single(
    models: dict[str, tuple[LanguageModel, LanguageModel]], kind: str, lengths: tuple[int, ...]
) -> None:
    """Prompts of different lengths, some longer than a call may have new tokens."""
    random, (ring, whole) = np.random.default_rng(0), models[kind]
    prompts, more = ([tokens_of(random, count) for count in each] for each in (lengths, [11] * len(lengths)))
    options: dict[str, Any] = {"min_length": 1000, "max_new_tokens": 20}
    batch = fresh(ring).generator(batch=len(prompts), chunk_size=10, **options)
    found = batch.generate(*prompts)
    assert found == [whole.generator(**options).generate(prompt) for prompt in prompts]
    batch.append(*more)
    parts = zip(prompts, found, more, strict=True)
    assert batch.generate() == [whole.generator(**options).generate([*a, *b, *c]) for a, b, c in parts]


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
def test_beams(models: dict[str, tuple[LanguageModel, LanguageModel]], kind: str) -> None:
    ring, whole = models[kind]
    prompt = tokens_of(np.random.default_rng(4), 25)
    search: dict[str, Any] = {"num_beams": 4, "max_new_tokens": 15, "length_penalty": 0.5}
    for chunk in (3, 12):
        made = fresh(ring).generator(chunk_size=chunk, **search).generate(prompt)
        assert made == whole.generator(**search).generate(prompt)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_engines(models: dict[str, tuple[LanguageModel, LanguageModel]], kind: str, seed: int) -> None:
    """Requests come and go; what begins alike takes over rows that its rings still have, or pages."""
    random, (ring, whole) = np.random.default_rng(seed), models[kind]
    model = LanguageModel(ring.config, ring.executable, prefix_bytes=(0, 1 << 20, 30_000)[seed])
    engine = model.engine(slots=3, chunk_size=int(random.choice([3, 8, 20])))
    begin, pending, done = tokens_of(random, 40), 10, []
    while pending or not engine.is_idle:
        for _ in range(int(random.choice([0, 1, 2])) if pending else 0):
            prompt = [*begin[: random.integers(40)], *tokens_of(random, int(random.integers(1, 20)))]
            done.append(engine.add(prompt, min_length=1000, max_new_tokens=int(random.integers(1, 30))))
            pending = max(0, pending - 1)
        engine.step()
    for request in done:
        options = {"min_length": 1000, "max_new_tokens": request.options.max_new_tokens}
        assert request.tokens == whole.generator(**options).generate(list(request.prompt))
    assert engine.counts.reused_tokens > 0


def test_a_beginning_that_left_the_ring_is_in_pages(
    models: dict[str, tuple[LanguageModel, LanguageModel]],
) -> None:
    random, (ring, whole) = np.random.default_rng(0), models["mixed"]
    begin, search = tokens_of(random, 100), {"max_new_tokens": 10, "min_length": 1000}
    for nbytes, reused in ((1 << 20, 100), (0, 0)):
        model = LanguageModel(ring.config, ring.executable, prefix_bytes=nbytes)
        engine = model.engine(slots=2, chunk_size=16)
        for count in (40, 7):
            prompt = [*begin, *tokens_of(random, count)]
            request = engine.add(prompt, **search)
            assert request.result() == whole.generator(**search).generate(prompt)
        assert request.reused_tokens == reused
