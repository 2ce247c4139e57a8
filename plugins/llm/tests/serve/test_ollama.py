"""Ollama's API: its answers are those of OpenAI's for the same requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

for package in ("starlette", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm.serve.answer_reader import AnswerForm  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.body import BodyFields  # noqa: E402
from mirlo_llm.serve.engine_thread import Delivery  # noqa: E402
from mirlo_llm.serve.ollama_api import OllamaWriter, read_ollama_chat, read_ollama_text  # noqa: E402
from mirlo_llm.serve.options import ServeOptions, parse_models  # noqa: E402
from served import ready_client, write_language_model  # noqa: E402

CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the fox"}]
GREEDY = {"temperature": 0, "num_predict": 8}
SCHEMA = {
    "type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"],
    "additionalProperties": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("ollama") / "tiny")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    with ready_client(Server(parse_models([str(folder)]), ServeOptions(max_tokens=64, has_ollama=True))) as running:
        yield running


def post(client: Any, path: str, **body: Any) -> Any:
    answer = client.post(path, json={"model": "tiny:latest", **body})
    assert answer.status_code == 200, answer.text
    return answer


def lines_of(answer: Any) -> list[dict[str, Any]]:
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def openai(client: Any, path: str, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.post(path, json={"model": "tiny", "temperature": 0, "max_tokens": 8, **body}).json()
    return found


def test_conversations(client: Any) -> None:
    expected = openai(client, "/v1/chat/completions", messages=CHAT)
    text = expected["choices"][0]["message"]["content"]
    whole = post(client, "/api/chat", messages=CHAT, options=GREEDY, stream=False).json()
    assert whole["message"] == {"role": "assistant", "content": text} and whole["done"] and whole["model"] == "tiny"
    assert whole["done_reason"] == expected["choices"][0]["finish_reason"]
    assert whole["prompt_eval_count"] == expected["usage"]["prompt_tokens"]
    assert whole["eval_count"] == expected["usage"]["completion_tokens"]
    assert whole["total_duration"] == whole["prompt_eval_duration"] + whole["eval_duration"] > 0
    *parts, last = lines_of(post(client, "/api/chat", messages=CHAT, options=GREEDY))  # a stream unless it says no
    assert "".join(part["message"]["content"] for part in parts) == text and not any(part["done"] for part in parts)
    assert last["done"] and last["message"]["content"] == "" and last["eval_count"] == whole["eval_count"]


def test_texts(client: Any) -> None:
    expected = openai(client, "/v1/chat/completions", messages=CHAT)["choices"][0]["message"]["content"]
    body = {"prompt": "the fox", "system": "be brief", "options": GREEDY}
    whole = post(client, "/api/generate", **body, stream=False).json()
    assert whole["response"] == expected and "message" not in whole
    *parts, last = lines_of(post(client, "/api/generate", **body))
    assert "".join(part["response"] for part in parts) == expected and last["done"]
    raw = post(client, "/api/generate", prompt="the fox", raw=True, options=GREEDY, stream=False).json()
    assert raw["response"] == openai(client, "/v1/completions", prompt="the fox")["choices"][0]["text"]
    ended = post(client, "/api/generate", prompt="the fox", raw=True, stream=False, options={**GREEDY, "stop": ["e"]})
    assert ended.json()["response"] == raw["response"].partition("e")[0]


def test_formats(client: Any) -> None:
    body = {"messages": CHAT, "stream": False, "options": {"temperature": 0}}
    found = json.loads(post(client, "/api/chat", **body, format=SCHEMA).json()["message"]["content"])
    assert found["city"] in ("Bern", "Rome")


def test_models(client: Any) -> None:
    (model,) = client.get("/api/tags").json()["models"]
    assert model["name"] == model["model"] == "tiny" and model["size"] > 0
    assert [each["name"] for each in client.get("/api/ps").json()["models"]] == ["tiny"]
    for body in ({"model": "tiny"}, {"name": "tiny:latest"}):
        assert client.post("/api/show", json=body).json()["capabilities"] == ["completion", "tools"]
    assert client.get("/api/version").json()["version"]
    document = client.get("/openapi.json").json()["paths"]
    assert "requestBody" in document["/api/chat"]["post"] and "/api/tags" in document


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("chat", {"messages": []}, "messages: there are no messages"),
        ("chat", {"messages": [{"role": "other", "content": "a"}]}, "role"),
        ("chat", {"messages": CHAT, "options": {"temperature": 9}}, "temperature"),
        ("chat", {"messages": CHAT, "options": {"num_predict": "a"}}, "options.num_predict: expected an integer"),
        ("chat", {"messages": CHAT, "format": "xml"}, "format"),
        ("chat", {"messages": CHAT, "think": "much"}, "think"),
        ("chat", {"messages": [{"role": "user", "content": "a", "images": [3]}]}, "images"),
        ("generate", {"prompt": "a", "suffix": "b"}, "suffix: the model continues texts only"),
        ("generate", {"prompt": "a", "raw": True, "system": "b"}, "raw: a text that is raw has no 'system'"),
        ("generate", {"model": "other", "prompt": "a"}, "there is no model 'other'"),
        ("show", {"model": "other"}, "there is no model 'other'"),
    ],
)
def test_wrong_requests(client: Any, path: str, body: dict[str, Any], text: str) -> None:
    answer = client.post(f"/api/{path}", json={"model": "tiny", **body})
    assert answer.status_code in (400, 404) and text in answer.json()["error"]


def test_calls_of_tools() -> None:
    """An answer's call is a line of its own; conversations give calls back with arguments as objects."""
    function = {"name": "weather", "parameters": SCHEMA}
    job: Any = SimpleNamespace(requests=[SimpleNamespace(prompt=[1, 2], reused_tokens=0, tokens=[3])])
    body = read_ollama_chat(
        BodyFields({"messages": CHAT, "tools": [{"type": "function", "function": function}]}), ServeOptions()
    )
    form = AnswerForm({tool.name: tool for tool in body.tools.tools})
    text = 'let me see <tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
    streamed = OllamaWriter(body, job, "tiny", form)
    pieces = [streamed.chunks([Delivery(0, each, (), None)]) for each in text]
    lines = [line for each in [*pieces, streamed.chunks([Delivery(0, "", (), "stop")])] for line in each]
    calls = [line["message"]["tool_calls"] for line in lines if "tool_calls" in line["message"]]  # type: ignore[index, operator]
    assert calls == [[{"function": {"name": "weather", "arguments": {"city": "Rome"}}}]]
    whole = OllamaWriter(body, job, "tiny", form)
    whole.take([Delivery(0, text, (), "stop")])
    message: Any = whole.whole()["message"]
    assert message["tool_calls"] == calls[0] and message["content"].strip() == "let me see"
    again = [*CHAT, message, {"role": "tool", "tool_name": "weather", "content": "sun"}]
    read = read_ollama_chat(BodyFields({"messages": again, "think": False}), ServeOptions())
    assert read.call.messages is not None and len(read.call.messages) == 4
    assert read.call.template["enable_thinking"] is False and read.call.is_streamed


@pytest.mark.parametrize("path", ["chat", "generate"])
def test_images_are_part_of_the_message(path: str) -> None:
    """They have no type in this API: encoders of images read it from the file."""
    images = ["aGk=", "AAEC"]
    if path == "chat":
        message = {"role": "user", "content": "the fox", "images": images}
        body = read_ollama_chat(BodyFields({"messages": [message]}), ServeOptions())
    else:
        body = read_ollama_text(BodyFields({"prompt": "the fox", "images": images}), ServeOptions())
    assert body.call.messages is not None
    *parts, text = body.call.messages[0]["content"]
    assert [part["image"] for part in parts] == [b"hi", b"\0\1\2"]
    assert text == {"type": "text", "text": "the fox"}


def test_a_server_has_it_on_request(folder: Path) -> None:
    with ready_client(Server(parse_models([str(folder)]), ServeOptions(is_lazy=True))) as running:
        assert running.get("/api/tags").status_code == 404
