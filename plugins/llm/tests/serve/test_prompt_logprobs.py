"""Probabilities of the tokens of prompts, as evaluation harnesses ask for them: `echo`, `prompt_logprobs`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from folders import load  # noqa: E402
from mirlo_llm import generate  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.options import ServeOptions, parse_models  # noqa: E402
from served import ready_client, write_language_model  # noqa: E402

TEXT = "the quick brown fox jumps over the lazy dog"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("prompts") / "tiny")


@pytest.fixture(scope="module")
def alone(folder: Path) -> generate.LanguageModel:
    return load(folder)


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    with ready_client(Server(parse_models([str(folder)]), ServeOptions(max_tokens=8))) as running:
        yield running


def complete(client: Any, **body: Any) -> Any:
    answer = client.post("/v1/completions", json={"model": "tiny", "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def expected_logprobs(model: generate.LanguageModel, tokens: list[int]) -> np.ndarray:
    """Return the logarithms of the probabilities of all tokens after each token."""
    rows = np.concatenate([part.copy() for part in model.text_logits(np.array(tokens))]).astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    result: np.ndarray = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
    return result


def tokens_of(client: Any, text: str) -> list[int]:
    tokens: list[int] = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
    return tokens


@pytest.mark.parametrize("as_tokens", [False, True])
def test_echo_with_logprobs(client: Any, alone: generate.LanguageModel, as_tokens: bool) -> None:
    """The tokens of the prompt are as those of the answer; a prompt that was read before has them too."""
    tokens = tokens_of(client, TEXT)
    expected = expected_logprobs(alone, tokens)
    prompt = tokens if as_tokens else TEXT
    for _ in range(2):
        (choice,) = complete(client, prompt=prompt, max_tokens=1, logprobs=1, echo=True)
        found = choice["logprobs"]
        assert (
            len(found["tokens"]) == len(tokens) + 1 and found["token_logprobs"][0] is found["top_logprobs"][0] is None
        )
        own = found["token_logprobs"][1 : len(tokens)]
        np.testing.assert_allclose(
            own, [row[token] for row, token in zip(expected[:-1], tokens[1:], strict=True)], atol=1e-4
        )
        best = [max(top.values()) for top in found["top_logprobs"][1:]]
        np.testing.assert_allclose(best, expected.max(-1), atol=1e-4)
        assert all(len(top) == 1 for top in found["top_logprobs"][1:])
        if not as_tokens:
            assert choice["text"].startswith(TEXT) and len(choice["text"]) > len(TEXT)


def test_no_answer(client: Any) -> None:
    (whole,) = complete(client, prompt=TEXT, max_tokens=2, logprobs=2, echo=True)
    (choice,) = complete(client, prompt=TEXT, max_tokens=0, logprobs=2, echo=True)
    assert choice["text"] == TEXT and choice["finish_reason"] == "length"
    count = len(tokens_of(client, TEXT))
    assert choice["logprobs"]["token_logprobs"] == whole["logprobs"]["token_logprobs"][:count]
    assert complete(client, prompt=TEXT, max_tokens=0, echo=True)[0]["text"] == TEXT
    assert complete(client, prompt=TEXT, max_tokens=0)[0]["text"] == ""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0}
    assert client.post("/v1/chat/completions", json=body).status_code == 400


def test_prompts_of_one_request(client: Any) -> None:
    """Prompts of different lengths, in one call, have what each has alone; one token has nothing before it."""
    texts: list[Any] = [TEXT, "the fox", tokens_of(client, TEXT)[:1]]
    together = complete(client, prompt=texts, max_tokens=2, logprobs=1, echo=True)
    for text, choice in zip(texts, together, strict=True):
        (alone,) = complete(client, prompt=text, max_tokens=2, logprobs=1, echo=True)
        assert choice["text"] == alone["text"]
        np.testing.assert_allclose(
            choice["logprobs"]["token_logprobs"][1:], alone["logprobs"]["token_logprobs"][1:], atol=1e-4
        )


def test_prompt_logprobs_by_themselves(client: Any) -> None:
    (echoed,) = complete(client, prompt=TEXT, max_tokens=1, logprobs=3, echo=True)
    (choice,) = complete(client, prompt=TEXT, max_tokens=1, prompt_logprobs=3)
    tokens, found = tokens_of(client, TEXT), choice["prompt_logprobs"]
    assert len(found) == len(tokens) and found[0] is None and choice["logprobs"] is None
    for token, row, value in zip(tokens[1:], found[1:], echoed["logprobs"]["token_logprobs"][1:-1], strict=True):
        assert 3 <= len(row) <= 4 and row[str(token)]["logprob"] == pytest.approx(value, abs=1e-4)
    body = {"model": "tiny", "prompt": TEXT, "prompt_logprobs": 1, "stream": True}
    assert "a stream has none" in client.post("/v1/completions", json=body).json()["error"]["message"]


def test_streams(client: Any) -> None:
    (whole,) = complete(client, prompt=TEXT, max_tokens=3, logprobs=1, echo=True)
    body = {"model": "tiny", "temperature": 0, "prompt": TEXT, "max_tokens": 3, "logprobs": 1, "echo": True}
    lines = client.post("/v1/completions", json=body | {"stream": True}).text.split("\n\n")
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines if line and "[DONE]" not in line]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    for key in ("tokens", "token_logprobs", "text_offset"):
        joined = [each for chunk in chunks for each in (chunk["logprobs"] or {}).get(key, [])]
        assert joined == whole["logprobs"][key], key
