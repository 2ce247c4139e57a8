"""Continuous batching: requests that come and go get the tokens that they would get alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from folders import (
    VOCABULARY,
    OnDemand,
    contiguous,
    exact,
    example,
    load,
    write_genai,
    write_hybrid,
    write_plain,
    write_windows,
)
from mirlo_llm.generate import GenerationError, LanguageModel, Request

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


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """Return a model with a tokenizer."""
    return load(example().write(tmp_path_factory.mktemp("texts") / "model"))


def tokens_of(random: np.random.Generator, length: int) -> list[int]:
    return [int(token) for token in random.integers(2, VOCABULARY, length)]


def search_of(random: np.random.Generator) -> dict[str, Any]:
    """Return options of a request."""
    drawn = {"do_sample": True, "temperature": 0.9, "top_k": 8, "seed": int(random.integers(100))}
    penalized = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}
    kinds: list[dict[str, Any]] = [{}, drawn, penalized, {"min_length": 1000}, {"chunk_size": 5}]
    if random.random() < 0.5:
        kinds = [kind | {"lookup": int(random.integers(1, 7))} for kind in kinds]
    return {"max_new_tokens": int(random.integers(1, 14)), **kinds[random.integers(len(kinds))]}


def alone(model: LanguageModel, prompt: list[int], search: dict[str, Any]) -> list[int]:
    found: list[int] = model.generator(**search).generate(prompt)
    return found


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_requests_are_as_alone(models: dict[str, LanguageModel], kind: str, seed: int) -> None:
    """Arrivals, lengths, options and common beginnings are drawn; slots, parts of prompts and pages are few."""
    random, model = np.random.default_rng(seed), models[kind]
    limit = (None, 12, 7)[seed // 2] if kind == "paged" else None
    pages = LanguageModel(model.config, model.executable, prefix_bytes=(0, 60_000, 1 << 20)[seed % 3], pages=limit)
    engine = pages.engine(slots=int(random.integers(1, 5)), chunk_size=int(random.choice([3, 8, 512])))
    begins = [tokens_of(random, 20) for _ in range(2)]
    pending = []
    for _ in range(12):
        own = tokens_of(random, int(random.integers(1, 25)))
        begin = begins[random.integers(2)][: random.integers(20)] if random.random() < 0.7 else []
        pending.append(([*begin, *own], search_of(random)))
    requests: list[tuple[Request, dict[str, Any]]] = []
    cancelled = []
    while pending or not engine.is_idle:
        for _ in range(int(random.choice([0, 0, 1, 4]))):
            if pending:
                prompt, search = pending.pop()
                requests.append((engine.add(prompt, **search), search))
        for request in engine.step():
            if random.random() < 0.02 and not request.is_done:
                request.cancel()
                cancelled.append(request)
    for request, search in requests:
        expected = alone(contiguous(models, kind), list(request.prompt), search)
        if request in cancelled:
            assert request.reason == "cancelled" and request.tokens == expected[: len(request.tokens)]
        else:
            assert request.tokens == expected
            assert request.reason == ("end" if expected[-1] in model.config.ends else "length")
    assert engine.counts.tokens == sum(len(request.tokens) for request, _ in requests)
    assert bool(pages.prefixes.nbytes) == bool(seed % 3)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guesses", ({"lookup": 4}, {"draft": True}, {"lookup": 2, "draft": True}))
def test_guesses_save_steps_and_change_no_token(
    models: dict[str, LanguageModel], kind: str, guesses: dict[str, Any]
) -> None:
    """Sequences have different numbers of guesses, of which some are right; the model guesses its own tokens."""
    random, model, options = np.random.default_rng(5), models[kind], dict(guesses)
    draft = model if options.pop("draft", False) else None
    engine, plain = model.engine(slots=3, draft=draft, **options), model.engine(slots=3)
    search = {} if draft is not None else {"repetition_penalty": 0.05}  # which makes it repeat tokens
    requests = []
    for length in (9, 4, 17, 6, 12):
        given = {"min_length": 1000, "max_new_tokens": int(random.integers(20, 40)), **search}
        prompt = tokens_of(random, length)
        requests.append((engine.add(prompt, **given), given))
        plain.add(prompt, **given)
    for each in (engine, plain):
        for _ in each.run():
            pass
    for request, given in requests:
        assert request.tokens == alone(contiguous(models, kind), list(request.prompt), given)
    counts = engine.counts
    assert counts.tokens == plain.counts.tokens == sum(len(request.tokens) for request, _ in requests)
    if draft is not None:
        assert counts.accepted_tokens > 0.9 * counts.guessed_tokens and counts.steps < 0.4 * plain.counts.steps
    else:
        assert 0 < counts.accepted_tokens < counts.guessed_tokens and counts.steps < plain.counts.steps


@pytest.mark.sample(0)
def test_guesses_keep_to_the_context(models: dict[str, LanguageModel]) -> None:
    """A sequence near the end of its room bounds the guesses of those that share its call."""
    model = models["f32"]
    engine = model.engine(slots=2, lookup=8, max_length=model.config.context)
    search = {"repetition_penalty": 0.2, "min_length": 5000}
    long = engine.add([2, 3, 4] * ((model.config.context - 12) // 3), **search)
    other = engine.add([5, 6, 7] * 4, max_new_tokens=40, **search)
    for _ in engine.run():
        pass
    assert long.reason == other.reason == "length"
    assert len(long.sequence) == model.config.context
    assert other.tokens == alone(model, list(other.prompt), {"max_new_tokens": 40, **search})


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", KINDS)
def test_active_sequences_share_a_call(models: dict[str, LanguageModel], kind: str) -> None:
    random, engine = np.random.default_rng(0), models[kind].engine(slots=4)
    for length in (3, 9, 4, 6):
        engine.add(tokens_of(random, length), max_new_tokens=20, min_length=1000)
    for _ in engine.run():
        pass
    assert engine.counts.tokens == 80
    assert engine.counts.calls == (20 if kind == "paged" else 4 + 19)  # four prompts, then a call a step
    assert engine.counts.steps == 20


@pytest.mark.sample(0)
def test_steps_bound_the_work_on_prompts(models: dict[str, LanguageModel]) -> None:
    """A long prompt holds up the others for parts of it only."""
    random, engine = np.random.default_rng(0), models["f32"].engine(slots=2, chunk_size=8)
    engine.pace.clock = lambda: 0.0  # with time, parts become smaller
    short = engine.add(tokens_of(random, 3), max_new_tokens=30, min_length=1000)
    engine.step(), engine.step()
    long = engine.add(tokens_of(random, 40), max_new_tokens=2)
    for step in range(1, 5):
        assert engine.step() == [short] and len(short.tokens) == 2 + step
    assert engine.step() == [short, long]


@pytest.mark.sample(0)
def test_recurrent_states_are_reused_where_they_are_known(models: dict[str, LanguageModel]) -> None:
    """A state is known after all tokens of a sequence: what continues one computes the new tokens only."""
    random, model = np.random.default_rng(2), models["hybrid"]
    prompt, search = tokens_of(random, 30), {"max_new_tokens": 6, "min_length": 1000}
    engine = model.engine(slots=2)
    first = engine.add(prompt, **search)
    said = [*prompt, *first.result()]
    for more, reused in ((tokens_of(random, 5), len(said) - 1), ([], 0)):
        following = [*said[: len(said) if more else 20], *more]
        other, next_one = engine.add(tokens_of(random, 9), **search), engine.add(following, **search)
        assert next_one.result() == alone(model, following, search)
        assert next_one.reused_tokens == reused
        assert other.result() == alone(model, list(other.prompt), search)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hybrid"])
def test_common_beginnings_are_computed_once(models: dict[str, LanguageModel], kind: str) -> None:
    random, model = np.random.default_rng(1), models[kind]
    model = LanguageModel(model.config, model.executable, prefix_bytes=None if kind == "paged" else 0)
    begin, search = tokens_of(random, 50), {"max_new_tokens": 6, "min_length": 1000}
    engine = model.engine(slots=4)
    prompts = [[*begin, *tokens_of(random, 5)] for _ in range(3)]
    together = [engine.add(prompt, **search) for prompt in prompts]
    assert [request.result() for request in together] == [alone(model, prompt, search) for prompt in prompts]
    assert [request.reused_tokens for request in together] == [0, 50, 50]
    assert engine.counts.prompt_tokens == 55 + 5 + 5
    # An ended sequence goes on: all but its last token, which no call has had, is in the caches.
    first = together[0]
    further = engine.add([*first.sequence, *tokens_of(random, 3)], **search)
    assert further.result() == alone(model, list(further.prompt), search)
    assert further.reused_tokens == 55 + 5
    again = engine.add(prompts[1], **search)
    assert again.result() == together[1].tokens and again.reused_tokens == 54


def test_slots_that_are_needed_are_those_of_no_use(models: dict[str, LanguageModel]) -> None:
    """A request without a common beginning takes the slot that is free for longest."""
    random, engine = np.random.default_rng(2), models["f32"].engine(slots=2)
    first, second, third = (tokens_of(random, 30) for _ in range(3))
    for prompt in (first, second, third):
        engine.add(prompt, max_new_tokens=2).result()
    assert engine.add(second, max_new_tokens=2).reused_tokens == 0  # waits
    request = engine.add(second, max_new_tokens=2)
    request.result()
    assert request.reused_tokens == 29
    gone = engine.add(first, max_new_tokens=2)
    gone.result()
    assert gone.reused_tokens == 0


def test_beginnings_outlive_their_slots(models: dict[str, LanguageModel]) -> None:
    """What a slot lost is in the pages of the model, which generators fill and read as well."""
    random, model = np.random.default_rng(6), models["f32"]
    pages = LanguageModel(model.config, model.executable)
    first, second, third = (tokens_of(random, 70) for _ in range(3))
    engine = pages.engine(slots=1)
    search = {"max_new_tokens": 9, "min_length": 1000}
    answers = [engine.add(prompt, **search).result() for prompt in (first, second)]
    further = [*first, *answers[0], *tokens_of(random, 4)]
    request = engine.add(further, **search)
    assert request.result() == alone(model, further, search) and request.reused_tokens == 70 + 8
    pages.generator(**search).generate(third)
    again = engine.add(third, **search)
    assert again.result() == alone(model, third, search) and again.reused_tokens == 69
    generator = pages.generator(**search)
    assert generator.generate(second) == answers[1] and generator.timing.reused_tokens == 69
    assert "70 tokens, 69 of them reused, in" in str(generator.timing)


def test_caches_grow(models: dict[str, LanguageModel]) -> None:
    random, model = np.random.default_rng(3), models["f32"]
    engine, search = model.engine(slots=3), {"max_new_tokens": 40, "min_length": 2000}
    prompts = [tokens_of(random, length) for length in (240, 30, 500)]
    requests = [engine.add(prompt, **search) for prompt in prompts]
    assert [request.result() for request in requests] == [alone(model, prompt, search) for prompt in prompts]
    assert engine._slots.pool.capacity >= 540  # type: ignore[attr-defined]


@pytest.mark.sample(0)
def test_text_and_stops(texts: LanguageModel) -> None:
    generator = texts.generator(max_new_tokens=30)
    whole = "".join(generator.stream("the quick brown fox"))
    stop = whole[len(whole) // 2 :][:3]
    stopped = texts.generator(max_new_tokens=30, stop=[stop])
    expected = "".join(stopped.stream("the quick brown fox"))
    engine = texts.engine(slots=2)
    free, ended = (engine.add("the quick brown fox", stop=stops, max_new_tokens=30) for stops in ((), stop))
    other = engine.add("the lazy dog", max_new_tokens=9)
    pieces = list(ended.stream())
    assert "".join(pieces) == ended.text == expected and len(pieces) > 1
    assert (ended.reason, ended.tokens) == ("stop", stopped.tokens[len(ended.prompt) :])
    assert "".join(free.stream()) == free.text == whole and free.take() == ""
    assert other.result() == texts.generator(max_new_tokens=9).generate("the lazy dog")


def test_forms(texts: LanguageModel) -> None:
    search: dict[str, Any] = {"regex": "(red|green|blue)( or (red|green|blue))?", "max_new_tokens": 20}
    engine = texts.engine(slots=2)
    requests = [engine.add(prompt, **search) for prompt in ("the fox is", "a dog", "the")]
    plain = engine.add("the fox", max_new_tokens=5)
    for request, prompt in zip(requests, ("the fox is", "a dog", "the"), strict=True):
        assert request.result() == texts.generator(**search).generate(prompt)
    assert plain.result() == texts.generator(max_new_tokens=5).generate("the fox")


def test_a_request_that_fails_harms_no_other(models: dict[str, LanguageModel]) -> None:
    random, model = np.random.default_rng(4), models["f32"]
    engine = model.engine(slots=2)
    wrong, right = (engine.add(tokens_of(random, 5), max_new_tokens=6) for _ in range(2))
    engine.step()

    def fail(*_: Any) -> int:
        raise GenerationError("no token is allowed")

    wrong._sampler.choose = fail  # type: ignore[method-assign]
    assert right.result() == alone(model, list(right.prompt), {"max_new_tokens": 6})
    assert wrong.reason == "error"
    with pytest.raises(GenerationError, match="no token is allowed"):
        wrong.result()


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", CASES)
def test_interrupted_steps_are_repeated(
    models: dict[str, LanguageModel], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, model = np.random.default_rng(5), models[kind]
    engine, search = model.engine(slots=3), {"max_new_tokens": 8, "min_length": 1000}
    requests = [engine.add(tokens_of(random, length), **search) for length in (4, 9, 2)]
    engine.step(), engine.step()
    run, calls = model._decoder.run, []

    def interrupt(*given: Any) -> np.ndarray:
        calls.append(run(*given))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model._decoder, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    assert calls
    for request in requests:
        assert request.result() == alone(model, list(request.prompt), search)


def test_requests_of_other_threads(models: dict[str, LanguageModel]) -> None:
    model = models["f32"]
    engine, found = model.engine(slots=3), {}

    def ask(seed: int) -> None:
        prompt = tokens_of(np.random.default_rng(seed), 4 + seed)
        found[seed] = (prompt, engine.add(prompt, max_new_tokens=10).result())

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for prompt, made in found.values():
        assert made == alone(model, prompt, {"max_new_tokens": 10})


@pytest.mark.parametrize(
    ("call", "message"),
    (
        (lambda e: e.add([]), "a prompt has no tokens"),
        (lambda e: e.add([VOCABULARY]), f"a token must be from 0 to {VOCABULARY - 1}"),
        (lambda e: e.add("text"), "has no tokenizer.json"),
        (lambda e: e.add([1], stop="x"), "has no tokenizer.json"),
        (lambda e: e.add([1], stop=[3]), r"stop: expected a text or a list of texts, found \[3\]"),
        (lambda e: e.add([1], num_beams=2), "num_beams: an engine continues a request by one sequence"),
        (lambda e: e.add([1], top_q=2), "no option of a search is named 'top_q'"),
        (lambda e: e.add([2] * 3000), "the prompt is too long: 3000 tokens"),
        (lambda e: e.add([2]).text, "has no tokenizer.json"),
    ),
)
def test_wrong_requests(models: dict[str, LanguageModel], call: Any, message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        call(models["f32"].engine())


@pytest.mark.parametrize("slots", (0, -1, 1 << 20, 1.5, True))
def test_wrong_slots(models: dict[str, LanguageModel], slots: Any) -> None:
    with pytest.raises(GenerationError, match="slots: expected 1 to"):
        models["f32"].engine(slots=slots)


def test_logprobs_are_those_of_the_logits(models: dict[str, LanguageModel]) -> None:
    """Penalties change which token is chosen, not what is reported."""
    model, prompt = models["f32"], [5, 9, 44]
    request = model.engine(slots=1).add(prompt, logprobs=3, max_new_tokens=4, repetition_penalty=5.0)
    tokens = request.result()
    generator = model.generator()
    generator.append(prompt)
    for token, found in zip(tokens, request.logprobs, strict=True):
        logits = generator.logits().reshape(-1).astype(np.float64)
        expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        assert found.token == token and abs(found.logprob - expected[token]) < 1e-4
        assert [place for place, _ in found.top] == list(np.argsort(-expected)[:3])
        generator.append([token])
    with pytest.raises(GenerationError, match="logprobs: expected 0 to 64"):
        model.engine().add(prompt, logprobs=65)
