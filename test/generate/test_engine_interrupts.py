"""Interrupts at any bytecode of an engine's step: no request is lost, none is answered otherwise, no page leaks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, example, write_genai, write_hybrid

from mirlo import generate
from mirlo.generate import LanguageModel, Request

ROOT = Path(generate.__file__).parents[1]
FOLDERS = tuple(f"{ROOT / name}/" for name in ("generate", "runtime"))
LAST = 8
"""Bytecodes at the end of a step, behind which the caller has what it returns."""
POINTS = 40
"""Interrupts of each test; with --whole, tests of other seeds follow."""


class Interrupter:
    """Counts the bytecodes of Mirlo's own functions, and raises KeyboardInterrupt at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.count, self._at = 0, at
        self._codes: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, value: object) -> Any:
        code = frame.f_code
        if event == "call":
            if code not in self._codes:
                self._codes[code] = code.co_filename.startswith(FOLDERS)
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
    loaded = {path.name: generate.load(path, activations="exact") for path in folder.iterdir()}
    loaded["text"] = generate.load(example().write(folder / "text"), activations="exact")
    return loaded


SEARCHES: list[dict[str, Any]] = [
    {"max_new_tokens": 3},
    {"max_new_tokens": 5, "do_sample": True, "seed": 3, "temperature": 2.0},
    {"max_new_tokens": 4, "repetition_penalty": 1.3},
    {"max_new_tokens": 1},
]


def tokens_of(seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    start = random.integers(2, VOCABULARY, 9).tolist()
    return [[*start, *random.integers(2, VOCABULARY, length).tolist()] for length in (2, 5, 1, 3)]


def interrupt(model: LanguageModel, prompts: list[Any], searches: list[dict[str, Any]], steps: int, at: int) -> int:
    """Interrupt the step behind some others at a bytecode; return how many the step has. All are answered as alone."""
    engine = model.engine(slots=3, chunk_size=6)
    requests = [engine.add(prompt, **search) for prompt, search in zip(prompts, searches, strict=True)]
    reported = [request for _ in range(steps) for request in engine.step() if request.is_done]
    counter, changed = Interrupter(at), list[Request]()
    with counter.traced(), suppress(KeyboardInterrupt):
        changed = engine.step()
    reported += [request for request in changed if request.is_done]
    for request in engine.run():
        reported.append(request)
    assert [request.result() for request in requests] == expected(model, prompts, searches)
    assert sorted(map(id, reported)) == sorted(map(id, requests)) and engine.is_idle
    return counter.count


ALONE: dict[tuple[int, str], list[list[int]]] = {}


def expected(model: LanguageModel, prompts: list[Any], searches: list[dict[str, Any]]) -> list[list[int]]:
    key = id(model), repr((prompts, searches))
    if key not in ALONE:
        ALONE[key] = [model.generator(**s).generate(p) for p, s in zip(prompts, searches, strict=True)]
    return ALONE[key]


@pytest.mark.sample(24)
@pytest.mark.parametrize("kind", ["contiguous", "hybrid", "paged"])
@pytest.mark.parametrize("seed", range(8))
def test_no_request_is_lost(models: dict[str, LanguageModel], kind: str, seed: int) -> None:
    model, random = models[kind], np.random.default_rng(seed)
    prompts, steps = tokens_of(seed), int(random.integers(0, 5))
    total = interrupt(model, prompts, SEARCHES, steps, 0)
    assert total > 500
    for at in sorted(random.choice(total - LAST, POINTS, replace=False).tolist()):
        interrupt(model, prompts, SEARCHES, steps, at + 1)
    if kind == "paged":
        gc.collect()
        model._decoder.prefixes.clear()
        assert model._decoder.pool.used == 0  # type: ignore[attr-defined]


def test_texts_and_forms_are_as_alone(models: dict[str, LanguageModel]) -> None:
    model, random = models["text"], np.random.default_rng(1)
    prompts = ["the fox is", "a dog", "the"]
    searches: list[dict[str, Any]] = [
        {"regex": "(red|green|blue)( or (red|green|blue))?", "max_new_tokens": 8},
        {"max_new_tokens": 6, "do_sample": True, "seed": 1},
        {"max_new_tokens": 6},
    ]
    total = interrupt(model, prompts, searches, 2, 0)
    for at in sorted(random.choice(total - LAST, POINTS, replace=False).tolist()):
        interrupt(model, prompts, searches, 2, at + 1)
