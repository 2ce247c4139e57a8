"""Prompts beside other answers: how many tokens of them a step computes, by a clock of the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from folders import VOCABULARY, load, write_genai
from mirlo_llm.generate import LanguageModel, Request
from mirlo_llm.generate.engine import ServingEngine
from mirlo_llm.generate.prompt_pace import LEAST_CHUNK, STRETCH, PromptPace

KINDS = ("contiguous", "paged")
PROMPT = 900


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")
    return {kind: load(write_genai(folder / kind, paged=kind == "paged"), prefix_bytes=0) for kind in KINDS}


class TimedEngine:
    """An engine whose calls take what a function of their tokens says."""

    def __init__(self, engine: ServingEngine, seconds: Callable[[Mapping[int, int]], float]) -> None:
        self.engine, self.now, self.parts = engine, 0.0, list[int]()
        compute = engine._compute
        engine.pace.clock = lambda: self.now

        def timed(call: Mapping[int, int]) -> None:
            compute(call)
            self.now += seconds(call)
            self.parts += [count for count in call.values() if count > 1]

        engine._compute = timed  # type: ignore[method-assign]

    def gaps_until_answered(self, stream: Request, other: Request) -> list[float]:
        """Return the times between tokens of a stream until another request has its first token."""
        gaps, last, count = [], self.now, len(stream.sequence)
        while len(other.sequence) == len(other.prompt):
            self.engine.step()
            if len(stream.sequence) > count:
                gaps.append(self.now - last)
                last, count = self.now, len(stream.sequence)
        return gaps


def prompt_of(length: int) -> list[int]:
    return [2 + i * 7 % (VOCABULARY - 2) for i in range(length)]


def bound_by_memory(call: Mapping[int, int]) -> float:
    """Return the seconds of a call whose first eight tokens take as long as one."""
    return max(1.0, sum(call.values()) / 8)


def slow(call: Mapping[int, int]) -> float:
    return float(sum(call.values()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seconds", (bound_by_memory, slow))
def test_a_prompt_stretches_gaps_three_times(
    models: dict[str, LanguageModel], kind: str, seconds: Callable[[Mapping[int, int]], float]
) -> None:
    timed = TimedEngine(models[kind].engine(slots=3, max_new_tokens=1500), seconds)
    stream = timed.engine.add([5, 6, 7], min_length=1500)
    while len(stream.sequence) < 8:
        timed.engine.step()
    timed.parts.clear()
    other = timed.engine.add(prompt_of(PROMPT))
    first, *gaps = timed.gaps_until_answered(stream, other)
    least = seconds({0: 1}) + seconds({1: LEAST_CHUNK})
    assert max(gaps) <= max(STRETCH * seconds({0: 1}), least)
    assert first <= seconds({0: 1}) + seconds({1: 16})  # what a part takes is not known yet
    assert len(gaps) in (len(timed.parts), len(timed.parts) - 1)  # a token of the stream between any two parts
    assert sum(timed.parts) >= PROMPT - 1
    # Paged caches compute a part together with the tokens of others.
    expected = {
        bound_by_memory: {"contiguous": 12, "paged": 19},
        slow: {"contiguous": LEAST_CHUNK, "paged": LEAST_CHUNK},
    }
    assert timed.parts[-2] == expected[seconds][kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_alone_has_large_parts(models: dict[str, LanguageModel], kind: str) -> None:
    timed = TimedEngine(models[kind].engine(slots=3, chunk_size=300), slow)
    timed.engine.add(prompt_of(PROMPT), max_new_tokens=1)
    list(timed.engine.run())
    assert timed.parts == [300, 300, 300]


@pytest.mark.parametrize("kind", KINDS)
def test_two_prompts_alone_share_a_step(models: dict[str, LanguageModel], kind: str) -> None:
    timed = TimedEngine(models[kind].engine(slots=3, chunk_size=300), slow)
    for i in range(2):
        timed.engine.add(prompt_of(150 + i)[::-1], max_new_tokens=1)
    list(timed.engine.run())
    assert sum(timed.parts) <= 301 and timed.engine.counts.steps <= 2


def test_answers_beside_prompts_are_those_alone(models: dict[str, LanguageModel]) -> None:
    for model in models.values():
        timed = TimedEngine(model.engine(slots=2), bound_by_memory)
        requests = [timed.engine.add(prompt_of(length), max_new_tokens=12) for length in (3, 100, 40)]
        list(timed.engine.run())
        for request in requests:
            assert request.sequence[len(request.prompt) :] == model.generator(max_new_tokens=12).generate(
                list(request.prompt)
            )


def test_parts_follow_what_they_took() -> None:
    pace = PromptPace()
    assert pace.most(512, is_shared=False) == 512
    assert pace.most(512, is_shared=True) == 0  # a step without a prompt comes first
    pace.note({0: 1, 1: 1}, 0.1)
    assert pace.most(512, is_shared=True) == 16 and pace.most(6, is_shared=True) == 6
    pace.note({2: 512}, 32.0)
    assert pace.most(512, is_shared=True) == LEAST_CHUNK
    pace.note({2: 4}, 0.0)  # a clock that is too coarse
    assert pace.most(512, is_shared=True) == 16
    for _ in range(9):
        pace.note({2: 64}, 0.02)
    assert pace.most(512, is_shared=True) == 128 and pace.most(512, is_shared=False) == 512
    pace.note({0: 1, 2: 64}, 0.9)  # in one call with a token of another sequence, which took 0.1 s
    assert pace.most(512, is_shared=True) == 12
