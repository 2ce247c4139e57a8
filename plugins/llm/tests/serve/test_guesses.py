"""Guesses of a served model, by lookup and by a draft model: answers stay the same, and figures count them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

for package in ("starlette", "tokenizers", "jinja2"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm import generate  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.errors import ServeError  # noqa: E402
from mirlo_llm.serve.options import ServeOptions, parse_drafts, parse_models  # noqa: E402
from served import load_failure, ready_client, write_language_model, write_tensor_model  # noqa: E402

PROMPTS = ("the fox the fox the fox the", "a dog", "the quick brown fox")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("guesses") / "tiny")


def counter(client: Any, name: str) -> int:
    (value,) = re.findall(rf'^mirlo_{name}_tokens_total{{model="tiny"}} (\d+)$', client.get("/metrics").text, re.M)
    return int(value)


@pytest.mark.sample(0)
@pytest.mark.parametrize("kind", ("lookup", "draft"))
def test_answers_are_those_without_guesses(folder: Path, kind: str) -> None:
    sources = parse_models([str(folder)])
    options = {"lookup": {"lookup": 4}, "draft": {"draft_tokens": 3}}[kind]
    if kind == "draft":
        sources = parse_drafts([str(folder)], sources)
    model = generate.load(folder)
    with ready_client(Server(sources, ServeOptions(slots=4, max_tokens=64, **options))) as client:  # type: ignore[arg-type]
        warmed = counter(client, "guessed"), counter(client, "accepted")
        penalty = {} if kind == "draft" else {"repetition_penalty": 0.05}
        body = {"model": "tiny", "prompt": list(PROMPTS), "max_tokens": 30, "temperature": 0, **penalty}
        choices = client.post("/v1/completions", json=body).json()["choices"]
        for choice, prompt in zip(choices, PROMPTS, strict=True):
            assert choice["text"] == "".join(model.generator(max_new_tokens=30, **penalty).stream(prompt))
        guessed, accepted = counter(client, "guessed") - warmed[0], counter(client, "accepted") - warmed[1]
        text = client.get("/metrics").text
        (acceptance,) = re.findall(rf'^mirlo_guess_acceptance{{model="tiny",source="{kind}"}} (\S+)$', text, re.M)
        (count,) = re.findall(rf'^mirlo_guess_tokens{{model="tiny",source="{kind}"}} (\S+)$', text, re.M)
    assert 0 < accepted <= guessed
    assert 0 < float(acceptance) <= 1 and 0 <= float(count) <= 4
    if kind == "draft":  # the model guesses its own tokens
        assert accepted == guessed


def test_wrong_drafts(folder: Path, tmp_path: Path) -> None:
    tensors = write_tensor_model(tmp_path / "sum.onnx")
    both = parse_models([str(folder), str(tensors)])
    assert [source.draft for source in parse_drafts([f"tiny={folder}"], both)] == [folder, None]
    for texts, message in (
        ([str(folder)], "expected MODEL=PATH of a draft model, for one of tiny, sum"),
        ([f"tiny={folder}", f"tiny={folder}"], "'tiny' has a draft model already"),
        (["tiny=nowhere"], "there is no such file or folder"),
    ):
        with pytest.raises(ServeError, match=message):
            parse_drafts(texts, both)
    sources = parse_drafts([f"sum={folder}"], parse_models([str(tensors)]))
    assert "draft models are for language models of a decoder" in load_failure(Server(sources, ServeOptions()))
