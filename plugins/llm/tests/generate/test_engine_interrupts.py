"""Interrupts at any bytecode of an engine's step: no request is lost, none is answered otherwise, no page leaks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, OnDemand, example, load, write_genai, write_hybrid
from mirlo_llm import generate
from mirlo_llm.generate import LanguageModel, Request, ServingEngine

import mirlo
from mirlo.testing import held_locks

PACKAGE, CORE = Path(generate.__file__).parents[1], Path(mirlo.__file__).parent
FOLDERS = tuple(f"{folder}/" for folder in (PACKAGE / "generate", PACKAGE / "caches", CORE / "runtime"))
CALLERS = ("take_step", "take_run")
"""Functions of this file that are interrupted as well."""
POINTS = 16
"""Interrupts of each test; with --whole, tests of other seeds follow, and all bytecodes."""
LAST = 20
"""Bytecodes at the end of a step that are all interrupted: with them what it returns passes to the caller."""


class Interrupter:
    """Counts the bytecodes of Mirlo's own functions, and raises KeyboardInterrupt at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.count, self._at = 0, at
        self._codes: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, value: object) -> Any:
        code = frame.f_code
        if event == "call":
            if code not in self._codes:
                self._codes[code] = code.co_filename.startswith(FOLDERS) or code.co_name in CALLERS
            if not self._codes[code]:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            self.count += 1
            if self.count == self._at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    @contextmanager
    def traced(self) -> Iterator[Interrupter]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield self
        finally:
            sys.settrace(before)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")
    write_genai(folder / "contiguous"), write_hybrid(folder / "hybrid"), write_genai(folder / "paged", paged=True)
    example().write(folder / "text")
    return OnDemand(lambda kind: load(folder / kind))


SEARCHES: list[dict[str, Any]] = [
    {"max_new_tokens": 3},
    {"max_new_tokens": 5, "do_sample": True, "seed": 3, "temperature": 2.0},
    {"max_new_tokens": 4, "repetition_penalty": 1.3},
    {"max_new_tokens": 4, "repetition_penalty": 0.05, "lookup": 3},
]


def tokens_of(seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    start = random.integers(2, VOCABULARY, 9).tolist()
    return [[*start, *random.integers(2, VOCABULARY, length).tolist()] for length in (2, 5, 1, 3)]


Caller = Callable[[ServingEngine, dict[Request, int]], None]
"""Adds the requests that an engine says are done to others, with how often it does."""


def take_step(engine: ServingEngine, done: dict[Request, int]) -> None:
    for request in engine.step():
        if request.is_done:
            done[request] = done.get(request, 0) + 1


def take_run(engine: ServingEngine, done: dict[Request, int]) -> None:
    for request in engine.run():
        done[request] = done.get(request, 0) + 1


def interrupt(
    model: LanguageModel, prompts: list[Any], searches: list[dict[str, Any]], steps: int, at: int, caller: Caller
) -> int:
    """Interrupt a caller of an engine after some steps, at a bytecode; return how many it and the engine have.

    All requests are answered as alone, and reported to the caller that goes on as `ServingEngine.changed` says.
    """
    engine, done = model.engine(slots=3, chunk_size=6), dict[Request, int]()
    requests = [engine.add(prompt, **search) for prompt, search in zip(prompts, searches, strict=True)]
    for _ in range(steps):
        take_step(engine, done)
    assert set(done.values()) <= {1}
    counter, is_interrupted = Interrupter(at), True
    with suppress(KeyboardInterrupt), counter.traced():
        caller(engine, done)
        is_interrupted = False
    assert_no_lock_is_held()
    if is_interrupted:
        done |= {request: 1 for request in engine.changed if request.is_done}
    take_run(engine, done)
    assert [request.result() for request in requests] == expected(model, prompts, searches)
    assert done.keys() == set(requests) and engine.is_idle and (is_interrupted or set(done.values()) == {1})
    return counter.count


def assert_no_lock_is_held() -> None:
    assert not held_locks()


ALONE: dict[tuple[int, str], list[list[int]]] = {}


def expected(model: LanguageModel, prompts: list[Any], searches: list[dict[str, Any]]) -> list[list[int]]:
    key = id(model), repr((prompts, searches))
    if key not in ALONE:
        ALONE[key] = [model.generator(**s).generate(p) for p, s in zip(prompts, searches, strict=True)]
    return ALONE[key]


def some_of(random: np.random.Generator, total: int, count: int = POINTS) -> list[int]:
    return sorted((random.choice(total, count, replace=False) + 1).tolist())


@pytest.mark.sample(24)
@pytest.mark.parametrize("kind", ["contiguous", "hybrid", "paged"])
@pytest.mark.parametrize("seed", range(8))
def test_no_request_is_lost(models: dict[str, LanguageModel], kind: str, seed: int) -> None:
    model, random = models[kind], np.random.default_rng(seed)
    prompts, steps = tokens_of(seed), int(random.integers(0, 5))
    total = interrupt(model, prompts, SEARCHES, steps, 0, take_step)
    assert total > 500
    for at in (*some_of(random, total - LAST), *range(total - LAST + 1, total + 1)):
        interrupt(model, prompts, SEARCHES, steps, at, take_step)
    total = interrupt(model, prompts, SEARCHES, steps, 0, take_run)
    for at in some_of(random, total, 4):
        interrupt(model, prompts, SEARCHES, steps, at, take_run)
    if kind == "paged":
        gc.collect()
        model._decoder.prefixes.clear()
        assert model._decoder.pool.used == 0  # type: ignore[attr-defined]


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ["contiguous", "hybrid", "paged"])
@pytest.mark.parametrize("steps", range(4))
def test_all_bytecodes(models: dict[str, LanguageModel], kind: str, steps: int) -> None:
    """The steps interrupt one bytecode in four each, the next ones: most bytecodes of a step are those of another."""
    model, prompts = models[kind], tokens_of(0)
    for at in range(1 + steps, interrupt(model, prompts, SEARCHES, steps, 0, take_step) + 1, 4):
        interrupt(model, prompts, SEARCHES, steps, at, take_step)


@pytest.mark.sample(0)
def test_texts_and_forms_are_as_alone(models: dict[str, LanguageModel]) -> None:
    model, random = models["text"], np.random.default_rng(1)
    prompts = ["the fox is", "a dog", "the"]
    searches: list[dict[str, Any]] = [
        {"regex": "(red|green|blue)( or (red|green|blue))?", "max_new_tokens": 8},
        {"max_new_tokens": 6, "do_sample": True, "seed": 1},
        {"max_new_tokens": 6},
    ]
    total = interrupt(model, prompts, searches, 2, 0, take_step)
    for at in some_of(random, total):
        interrupt(model, prompts, searches, 2, at, take_step)
