"""Guesses adapt their number to how many are accepted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from folders import VOCABULARY, load, write_genai
from mirlo_llm.generate import LanguageModel, engine
from mirlo_llm.generate.guess_pace import FIRST_PAUSE, LONGEST_PAUSE, GuessPace, GuessPaces, SequencePaces

SEARCH: dict[str, Any] = {"min_length": 1000, "max_new_tokens": 200}
PROMPTS = ([2, 3, 4], [5, 6])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load(write_genai(tmp_path_factory.mktemp("model")), prefix_bytes=0)


@pytest.fixture(scope="module")
def answers(model: LanguageModel) -> dict[tuple[int, ...], list[int]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for prompt in PROMPTS:
        generator = model.generator(**SEARCH)
        generator.append(prompt)
        found[tuple(prompt)] = generator.generate()
    return found


class KnownDraft:
    """Guesses the tokens of known answers, each increased by `wrong`."""

    def __init__(self, answers: Mapping[tuple[int, ...], Sequence[int]], wrong: int) -> None:
        self.answers, self.wrong, self.calls = answers, wrong, list[int]()

    def guess(self, sequences: Mapping[int, Sequence[int]], counts: Mapping[int, int]) -> dict[int, list[int]]:
        self.calls += counts.values()
        result = {}
        for i, tokens in sequences.items():
            prompt = next(each for each in self.answers if tuple(tokens[: len(each)]) == each)
            start = len(tokens) - len(prompt)
            known = self.answers[prompt][start : start + counts[i]]
            result[i] = [(token + self.wrong) % VOCABULARY for token in known]
        return result


@pytest.mark.parametrize("wrong", (0, 1))
def test_drafts_that_are_always_right_or_wrong(
    model: LanguageModel, answers: dict[tuple[int, ...], list[int]], wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = KnownDraft(answers, wrong)
    monkeypatch.setattr(engine, "EngineDraft", lambda *arguments: draft)
    found = model.engine(slots=2, draft=model, draft_tokens=4)
    requests = [found.add(prompt, **SEARCH) for prompt in PROMPTS]
    for _ in found.run():
        pass
    assert [request.tokens for request in requests] == list(answers.values())
    counts, (acceptance, count) = found.counts, found.guess_counts["draft"]
    assert "lookup" not in found.guess_counts  # which the engine has none of
    if wrong:
        tried = 200 // LONGEST_PAUSE + LONGEST_PAUSE // FIRST_PAUSE + 10
        assert counts.accepted_tokens == 0 and 0 < counts.guessed_tokens < 2 * tried
        assert counts.steps == 200 and draft.calls.count(0) > 0.8 * len(draft.calls)
        assert acceptance < 0.25 and count == 0
        assert 1 in draft.calls[-4 * LONGEST_PAUSE :]  # tried again
    else:
        assert counts.accepted_tokens == counts.guessed_tokens > 0.7 * sum(map(len, answers.values()))
        assert counts.steps <= 1 + math.ceil(199 / 5) + 1
        assert (acceptance, count) == (1.0, 4)


@pytest.mark.parametrize("wrong", (0, 1))
def test_generators_adapt_too(model: LanguageModel, answers: dict[tuple[int, ...], list[int]], wrong: int) -> None:
    generator = model.generator(draft=model, draft_tokens=4, **SEARCH)
    draft = KnownDraft(answers, wrong)

    class One:
        def guess(self, tokens: Sequence[int], count: int) -> list[int]:
            return draft.guess({0: tokens}, {0: count})[0]

    generator._draft = One()  # type: ignore[assignment]
    generator.append(PROMPTS[0])
    assert generator.generate() == answers[tuple(PROMPTS[0])]
    if wrong:
        assert draft.calls.count(0) > 0.8 * len(draft.calls) and generator.timing.steps >= 199
    else:
        assert draft.calls.count(4) > 30 and generator.timing.steps < 50


def test_the_pace() -> None:
    pace = GuessPace()
    assert pace.limit == math.inf and pace.count(7) == 7 and pace.count(0) == 0 and pace.count(-3) == 0
    counts = []
    for _ in range(300):
        counts.append(pace.count(4))
        pace.note(counts[-1], 0)
    assert counts[0] == 4 and counts[:8] == sorted(counts[:8], reverse=True)
    tries = [i for i, count in enumerate(counts) if count and i > 8]
    gaps = [after - before for before, after in zip(tries, tries[1:], strict=False)]
    assert gaps == sorted(gaps) and gaps[0] > FIRST_PAUSE and gaps[-1] == LONGEST_PAUSE + 1
    assert max(counts[8:]) == 1
    while not pace.count(4):
        pass
    pace.note(1, 1)  # one right guess is enough to guess again
    for _ in range(20):
        assert (count := pace.count(4)) >= 1
        pace.note(count, count)
    assert pace.count(4) == 4
    pace.note(0, 0)
    assert pace.count(4) == 4


def test_half_of_the_guesses_are_right() -> None:
    """Guesses after the first wrong one say nothing about the acceptance."""
    pace = GuessPace()
    for step in range(40):
        count = pace.count(8)
        pace.note(count, min(count, step % 2))
    assert 1 <= pace.limit <= 2


def test_new_sequences_begin_with_the_acceptance_of_others() -> None:
    shared = GuessPaces()
    first = GuessPaces(shared)
    first.source = "draft"
    for _ in range(10):
        first.note(4, 0)
    assert GuessPaces(shared)["draft"].limit == 0 and GuessPaces(shared)["lookup"].limit == math.inf
    together = GuessPaces(shared, is_one=True)
    assert together["draft"] is shared["draft"]
    before = shared["lookup"].acceptance
    together.note(1, 0)  # recorded once
    assert shared["lookup"].acceptance == pytest.approx(before - 0.25)


def test_guesses_that_were_dropped_say_nothing() -> None:
    """After a rewind there are fewer tokens than before the guesses."""
    paces = SequencePaces()
    paces.expected = 5, [1, 2]
    paces.compare([9, 9, 9])
    assert paces["lookup"].acceptance == 1.0
    paces.expected = 2, [1, 2, 3]
    paces.compare([9, 9, 1, 2])  # two of three guesses were compared
    assert paces["lookup"].acceptance == 1.0
    paces.expected = 2, [1, 2, 3]
    paces.compare([9, 9, 4, 2])
    assert paces["lookup"].acceptance == 0.75
