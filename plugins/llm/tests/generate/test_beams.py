"""Beam search against a plain one over ONNX Runtime, which computes each sequence from its start."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import VOCABULARY, OnDemand, Reference, contiguous, load, write_genai, write_plain
from mirlo_llm.generate import GenerationError, LanguageModel


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    folder = tmp_path_factory.mktemp("models")
    write_genai(folder / "f32"), write_plain(folder / "plain"), write_genai(folder / "paged", paged=True)
    return OnDemand(lambda kind: load(folder / kind))


def searched(
    model: Path, prompt: list[int], beams: int, count: int, ends: set[int], penalty: float, early: bool
) -> list[int]:
    """Return the best continuation: hypotheses are lists of tokens with the sums of their logarithms."""
    alive, ended = [(0.0, [])], list[tuple[float, list[int]]]()
    for length in range(1, count + 1):
        options = []
        for total, made in alive:
            logits = Reference(model).logits([*prompt, *made]).astype(np.float64)
            logarithms = logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())
            options += [(total + logarithms[token], [*made, token]) for token in range(VOCABULARY)]
        options = sorted(options, key=lambda each: -each[0])[: 2 * beams]
        ended += [(t / length**penalty, made) for t, made in options[:beams] if made[-1] in ends]
        ended = sorted(ended, key=lambda each: -each[0])[:beams]
        alive = [each for each in options if each[1][-1] not in ends][:beams]
        if len(ended) == beams and (early or ended[-1][0] >= options[0][0] / length**penalty):
            break
    else:
        ended += [(total / count**penalty, made) for total, made in alive]
    return max(ended, key=lambda each: each[0])[1]


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ("f32", "plain", "paged"))
@pytest.mark.parametrize(
    ("beams", "penalty", "early", "ends"),
    ((2, 1.0, False, 1), (4, 1.0, False, 60), (3, 0.0, False, 60), (4, 2.0, True, 60), (5, 1.0, True, 200)),
)
def test_beams(models: dict[str, LanguageModel], kind: str, beams: int, penalty: float, early: bool, ends: int) -> None:
    """With many tokens that end a sequence, sequences of different lengths compete."""
    random = np.random.default_rng(ends)
    chosen = tuple(int(token) for token in random.choice(VOCABULARY, ends, replace=False))
    model = LanguageModel(replace(models[kind].config, ends=chosen), models[kind].executable)
    for seed in range(2):
        prompt = [int(token) for token in np.random.default_rng(seed).integers(2, VOCABULARY, 4)]
        search: dict[str, Any] = {"num_beams": beams, "length_penalty": penalty, "early_stopping": early}
        generator = model.generator(max_new_tokens=7, **search)
        found = generator.generate(prompt)
        assert found == searched(contiguous(models, kind).config.model, prompt, beams, 7, set(chosen), penalty, early)
        assert generator.tokens == [*prompt, *found] and generator.is_done


def test_beams_are_no_less_probable_than_greedy_tokens(models: dict[str, LanguageModel]) -> None:
    model, prompt = models["f32"], [7, 8, 9]
    greedy = model.generator(max_new_tokens=6, min_length=100).generate(prompt)
    found = model.generator(max_new_tokens=6, min_length=100, num_beams=200).generate(prompt)

    def total(tokens: list[int]) -> float:
        sums = 0.0
        for i, token in enumerate(tokens):
            generator = model.generator()
            generator.append([*prompt, *tokens[:i]])
            logits = generator.logits().astype(np.float64)
            sums += logits[token] - math.log(np.exp(logits).sum())
        return sums

    assert total(found) >= total(greedy)


@pytest.mark.parametrize(
    ("call", "message"),
    (
        (lambda m: m.generator(num_beams=2, batch=2), "num_beams: a search with beams needs batch=1"),
        (lambda m: m.generator(num_beams=2, do_sample=True), "num_beams: expected 1 with do_sample, found 2"),
        (lambda m: m.generator(num_beams=2, stop="x"), "stop: .* no beams"),
        (lambda m: m.generator(num_beams=2, max_new_tokens=3).next(), "known at its end: use generate"),
    ),
)
def test_wrong_calls(models: dict[str, LanguageModel], call: Any, message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        call(models["f32"])
