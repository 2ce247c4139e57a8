"""lm-evaluation-harness against a server in a process of its own: log likelihoods, whole texts, generated answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "uvicorn", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)

from mirlo_llm import generate  # noqa: E402
from served import serving, write_language_model  # noqa: E402

pytestmark = [
    pytest.mark.sample(0),
    pytest.mark.skipif(sys.platform == "win32", reason="servers end by signals"),
]
TEXTS = ["the quick brown fox jumps", "the lazy dog", "a dog and a fox are quick and brown"]
BEGIN = 0
"""The first token of texts."""
CHOICES = [" over", " the fox", " quick brown dog"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("evaluated") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> generate.LanguageModel:
    return generate.load(folder)


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(folder, "--slots", 3) as server:
        yield server.address


@pytest.fixture(scope="module")
def evaluated(address: str, folder: Path) -> dict[str, Any]:
    """Return the samples of each task."""
    lm_eval = pytest.importorskip("lm_eval")
    pytest.importorskip("aiohttp")
    from datasets import Dataset, DatasetDict
    from lm_eval.api.task import ConfigurableTask

    rows = Dataset.from_list([{"text": text, "choices": CHOICES, "answer": i} for i, text in enumerate(TEXTS)])
    common = {
        "custom_dataset": lambda **_: DatasetDict({"test": rows}),
        "test_split": "test",
        "doc_to_text": "{{text}}",
    }
    tasks = [
        ConfigurableTask(config=common | {"task": task, "output_type": output, "target_delimiter": "", **options})
        for task, output, options in (
            ("choices", "multiple_choice", {"doc_to_target": "answer", "doc_to_choice": "choices"}),
            ("texts", "loglikelihood_rolling", {"doc_to_text": "", "doc_to_target": "{{text}}"}),
            (
                "answers", "generate_until",
                {"doc_to_target": "answer", "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 7}},
            ),
        )
    ]  # fmt: skip
    arguments = {
        "model": "tiny", "base_url": f"{address}/v1/completions", "tokenizer": str(folder), "num_concurrent": 3,
        "tokenizer_backend": "huggingface", "max_retries": 1, "max_length": 200, "eos_string": "<|end|>",
    }  # fmt: skip
    results = lm_eval.simple_evaluate(
        model="local-completions", model_args=arguments, tasks=tasks, log_samples=True, bootstrap_iters=0
    )
    samples: dict[str, Any] = results["samples"]
    return {task: sorted(each, key=lambda sample: sample["doc_id"]) for task, each in samples.items()}


def log_likelihood(model: generate.LanguageModel, before: list[int], tokens: list[int]) -> tuple[float, bool]:
    """Return the logarithm of the probability of tokens after others, and whether each is the most probable one."""
    whole = [*before, *tokens]
    rows = np.concatenate([part.copy() for part in model.text_logits(np.array(whole))]).astype(np.float64)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
    pairs = [(row[token], row.max()) for row, token in zip(rows[len(before) - 1 : -1], tokens, strict=True)]
    return sum(own for own, _ in pairs), all(own == most for own, most in pairs)


def tokens_of(model: generate.LanguageModel, text: str) -> list[int]:
    assert model.tokenizer is not None
    return model.tokenizer.encode(text, special=False)


def test_choices(evaluated: dict[str, Any], model: generate.LanguageModel) -> None:
    """The harness divides a text in its own tokenizer; the server answers for the tokens that it sends."""
    for text, sample in zip(TEXTS, evaluated["choices"], strict=True):
        before = tokens_of(model, text)
        for choice, ((found, is_greedy),) in zip(CHOICES, sample["resps"], strict=True):
            expected, is_best = log_likelihood(model, before, tokens_of(model, text + choice)[len(before) :])
            assert (float(found), is_greedy in (True, "True")) == (pytest.approx(expected, abs=1e-3), is_best)


def test_whole_texts(evaluated: dict[str, Any], model: generate.LanguageModel) -> None:
    for text, sample in zip(TEXTS, evaluated["texts"], strict=True):
        expected, _ = log_likelihood(model, [BEGIN], tokens_of(model, text))
        ((found,),) = sample["resps"]
        assert float(found) == pytest.approx(expected, abs=1e-3)


def test_answers(evaluated: dict[str, Any], model: generate.LanguageModel) -> None:
    for text, sample in zip(TEXTS, evaluated["answers"], strict=True):
        generator = model.generator(max_new_tokens=7, stop=["\n\n", "<|end|>"])
        expected = "".join(generator.stream(tokens_of(model, text)))
        assert sample["resps"] == [[expected]]
