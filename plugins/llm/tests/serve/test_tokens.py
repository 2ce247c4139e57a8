"""Tokens of texts, health and properties of a server; and keys of bodies that are not known."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

for package in ("starlette", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from folders import example  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.options import ServeOptions, parse_models  # noqa: E402
from served import ready_client, write_language_model  # noqa: E402

MESSAGES = [{"role": "user", "content": "the fox"}]


def server_of(folder: Path, **options: Any) -> Server:
    """Return a server of the model in a folder."""
    return Server(parse_models([str(folder)]), ServeOptions(max_tokens=8, **options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("tokens") / "tiny")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    with ready_client(server_of(folder)) as running:
        yield running


def test_tokens_and_texts(client: Any) -> None:
    answer = client.post("/tokenize", json={"prompt": "the fox", "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"]) and answer["max_model_len"] > 8
    plain = client.post("/tokenize", json={"model": "tiny", "content": "the fox"}).json()["tokens"]
    assert answer["tokens"][-len(plain) :] == plain
    text = client.post("/detokenize", json={"tokens": plain}).json()
    assert text["content"] == text["prompt"] and text["content"].split() == ["the", "fox"]
    assert client.post("/detokenize", json={"tokens": []}).json()["content"] == ""
    chat = client.post("/tokenize", json={"messages": MESSAGES}).json()["tokens"]
    usage = client.post("/v1/chat/completions", json={"model": "tiny", "messages": MESSAGES}).json()["usage"]
    assert len(chat) == usage["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("tokenize", {}, "prompt: expected a text, found nothing"),
        ("tokenize", {"prompt": 3}, "prompt: expected a text"),
        ("tokenize", {"model": "other", "prompt": "a"}, "there is no model 'other'"),
        ("tokenize", {"messages": [{"role": "x"}]}, "role"),
        ("detokenize", {"tokens": "a"}, "tokens: expected an array"),
        ("detokenize", {"tokens": [-1]}, "tokens: expected an array of tokens"),
        ("detokenize", {"tokens": [1 << 30]}, "a token must be from 0 to"),
    ],
)
def test_wrong_bodies(client: Any, path: str, body: dict[str, Any], text: str) -> None:
    answer = client.post(f"/{path}", json=body)
    assert answer.status_code in (400, 404) and text in answer.json()["error"]["message"]


def test_health_and_properties(client: Any) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    properties = client.get("/props").json()
    assert properties["model"] == "tiny" and properties["total_slots"] == 8 and properties["takes_tools"]
    assert properties["deviations"] == []
    assert client.get("/props?model=other").status_code == 404


def test_chosen_activations_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The tiny model has weights of 4 bits; every processor that the tests support multiplies int8 rows with them."""
    folder = example().write(tmp_path / "tiny", bits=4)
    server = Server(parse_models([str(folder)]), ServeOptions(), {"activations": "auto"})
    with caplog.at_level(logging.WARNING, "mirlo_llm.serve"), ready_client(server) as client:
        deviations = client.get("/props").json()["deviations"]
    assert deviations[0].startswith("activations: ")
    for text in deviations:
        assert f"model 'tiny': {text}" in caplog.text


def test_keys_that_are_not_known_are_named_once(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    body = {"model": "tiny", "prompt": "the fox", "max_tokens": 2, "cache_salt": "x"}
    with caplog.at_level(logging.WARNING, "mirlo_llm.serve"):
        for _ in range(2):
            assert client.post("/v1/completions", json=body).status_code == 200
    assert [each.getMessage() for each in caplog.records] == [
        "a request has the key 'cache_salt', which is not known and has no effect"
    ]


def test_keys_that_are_not_known_are_refused(folder: Path) -> None:
    with ready_client(server_of(folder, is_strict=True)) as running:
        answer = running.post("/v1/completions", json={"model": "tiny", "prompt": "a", "max_token": 2})
        assert answer.status_code == 400
        assert "max_token: this key is not known; did you mean 'max_tokens'?" in answer.json()["error"]["message"]


def test_rules_of_tokens(client: Any) -> None:
    """A bias makes a token the next one; a token ends an answer where the request says so, and where it does not."""

    def complete(**body: Any) -> dict[str, Any]:
        answer = client.post("/v1/completions", json={"model": "tiny", "prompt": "the fox", "max_tokens": 4, **body})
        assert answer.status_code == 200, answer.text
        choice: dict[str, Any] = answer.json()["choices"][0]
        return choice

    (token,) = client.post("/tokenize", json={"content": "the"}).json()["tokens"]
    biased = complete(logit_bias={str(token): 100})
    assert biased["text"].replace(" ", "") == "the" * 4 and biased["finish_reason"] == "length"
    ended = complete(logit_bias={str(token): 100}, stop_token_ids=[token])
    assert ended["text"] == "" and ended["finish_reason"] == "stop"
    (end,) = client.get("/props").json()["eos_token_ids"][:1]
    assert complete(logit_bias={str(end): 100})["finish_reason"] == "stop"
    assert complete(logit_bias={str(end): 100}, ignore_eos=True)["finish_reason"] == "length"
