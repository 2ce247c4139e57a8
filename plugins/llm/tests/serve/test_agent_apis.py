"""Anthropic's API of messages and OpenAI's of responses: the answers of chat completions in other forms."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

for package in ("starlette", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)
pytest.importorskip("starlette.testclient")

from mirlo_llm.generate.request import END, LENGTH  # noqa: E402
from mirlo_llm.serve.answer_reader import AnswerForm  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.call_forms import Tool  # noqa: E402
from mirlo_llm.serve.engine_thread import Delivery  # noqa: E402
from mirlo_llm.serve.generation_body import GenerationBody  # noqa: E402
from mirlo_llm.serve.language import GenerationCall  # noqa: E402
from mirlo_llm.serve.messages_api import MessageWriter  # noqa: E402
from mirlo_llm.serve.options import ServeOptions, parse_models  # noqa: E402
from mirlo_llm.serve.responses_api import ResponseWriter  # noqa: E402
from mirlo_llm.serve.tools import ToolChoice  # noqa: E402
from served import ready_client, write_language_model  # noqa: E402

KEY = "0123456789abcdef"
SCHEMA = {
    "type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"],
    "additionalProperties": False,
}  # fmt: skip
CHAT: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the fox"}]
MESSAGES = {"system": "be brief", "messages": [{"role": "user", "content": [{"type": "text", "text": "the fox"}]}]}
RESPONSES = {"instructions": "be brief", "input": [{"role": "user", "content": "the fox"}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_model(tmp_path_factory.mktemp("agents") / "tiny")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Any]:
    with ready_client(Server(parse_models([str(folder)]), ServeOptions(max_tokens=64))) as running:
        yield running


def post(client: Any, path: str, **body: Any) -> Any:
    answer = client.post(path, json={"model": "tiny", "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    return answer


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream, whose names are their types."""
    events = []
    for each in text.split("\n\n"):
        if each:
            name, data = each.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {events[-1]['type']}"
    return events


def content_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of a streamed message, as clients put them together."""
    blocks: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "pieces": []})
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(blocks) - 1
            (piece,) = [value for key, value in event["delta"].items() if key != "type"]
            blocks[-1]["pieces"].append(piece)
    for block in blocks:
        text = "".join(block.pop("pieces"))
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
        else:
            block[block["type"]] = text
    return blocks


def test_messages(client: Any) -> None:
    expected = post(client, "/v1/chat/completions", messages=CHAT, max_tokens=8).json()
    answer = post(client, "/v1/messages", **MESSAGES, max_tokens=8).json()
    text = expected["choices"][0]["message"]["content"]
    assert answer["content"] == [{"type": "text", "text": text}] and answer["role"] == "assistant"
    assert (
        answer["stop_reason"] == {"length": "max_tokens", "stop": "end_turn"}[expected["choices"][0]["finish_reason"]]
    )
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == expected["usage"]["prompt_tokens"]
    assert usage["output_tokens"] == expected["usage"]["completion_tokens"]
    events = events_of(post(client, "/v1/messages", **MESSAGES, max_tokens=8, stream=True).text)
    assert content_of(events) == answer["content"] and events[0]["message"]["content"] == []
    assert [events[0]["type"], *(event["type"] for event in events[-2:])] == [
        "message_start", "message_delta", "message_stop",
    ]  # fmt: skip
    assert events[-2]["delta"]["stop_reason"] == answer["stop_reason"]
    count = client.post("/v1/messages/count_tokens", json={"model": "tiny", **MESSAGES}).json()
    assert count == {"input_tokens": expected["usage"]["prompt_tokens"]}


def test_calls_in_messages(client: Any) -> None:
    tools = {"tools": [{"name": "weather", "input_schema": SCHEMA}], "max_tokens": 60, "tool_choice": {"type": "any"}}
    answer = post(client, "/v1/messages", **MESSAGES, **tools).json()
    (call,) = answer["content"]
    assert call["type"] == "tool_use" and call["name"] == "weather" and call["input"]["city"] in ("Bern", "Rome")
    assert answer["stop_reason"] == "tool_use"
    events = events_of(post(client, "/v1/messages", **MESSAGES, **tools, stream=True).text)
    (streamed,) = content_of(events)
    assert {**streamed, "id": call["id"]} == call and events[-2]["delta"]["stop_reason"] == "tool_use"
    messages = [
        *MESSAGES["messages"],
        {"role": "assistant", "content": [{"type": "text", "text": "let me see"}, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "sun"}]},
    ]
    arguments = {"name": "weather", "arguments": json.dumps(call["input"])}
    past = [{"id": call["id"], "type": "function", "function": arguments}]
    chat = [
        *CHAT, {"role": "assistant", "content": "let me see", "tool_calls": past},
        {"role": "tool", "tool_call_id": call["id"], "content": "sun"},
    ]  # fmt: skip
    found = post(client, "/v1/messages", system="be brief", messages=messages, max_tokens=4).json()
    expected = post(client, "/v1/chat/completions", messages=chat, max_tokens=4).json()
    assert found["content"][0]["text"] == expected["choices"][0]["message"]["content"]


def test_responses(client: Any) -> None:
    expected = post(client, "/v1/chat/completions", messages=CHAT, max_tokens=8).json()
    answer = post(client, "/v1/responses", **RESPONSES, max_output_tokens=8).json()
    (item,) = answer["output"]
    assert item["content"][0]["text"] == expected["choices"][0]["message"]["content"]
    assert answer["status"] == {"length": "incomplete", "stop": "completed"}[expected["choices"][0]["finish_reason"]]
    assert answer["usage"]["total_tokens"] == expected["usage"]["total_tokens"]
    events = events_of(post(client, "/v1/responses", **RESPONSES, max_output_tokens=8, stream=True).text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    last = events[-1]
    assert (
        last["type"] == f"response.{answer['status']}" and last["response"]["output"][0]["content"][0]["text"] == text
    )
    assert text == item["content"][0]["text"]
    plain = post(client, "/v1/responses", input="the fox", instructions="be brief", max_output_tokens=8).json()
    assert plain["output"][0]["content"] == item["content"]


def test_calls_in_responses(client: Any) -> None:
    tools = {"tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}], "tool_choice": "required"}
    answer = post(client, "/v1/responses", **RESPONSES, **tools, max_output_tokens=60).json()
    (call,) = answer["output"]
    assert call["type"] == "function_call" and json.loads(call["arguments"])["city"] in ("Bern", "Rome")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    again = {**RESPONSES, "input": [*RESPONSES["input"], call, result]}
    function = {"name": "weather", "arguments": call["arguments"]}
    past = [{"id": call["call_id"], "type": "function", "function": function}]
    chat = [
        *CHAT, {"role": "assistant", "content": "", "tool_calls": past},
        {"role": "tool", "tool_call_id": call["call_id"], "content": "sun"},
    ]  # fmt: skip
    found = post(client, "/v1/responses", **again, max_output_tokens=4).json()
    expected = post(client, "/v1/chat/completions", messages=chat, max_tokens=4).json()
    assert found["output"][0]["content"][0]["text"] == expected["choices"][0]["message"]["content"]
    form = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}
    text = post(client, "/v1/responses", **RESPONSES, text=form, max_output_tokens=60).json()
    assert json.loads(text["output"][0]["content"][0]["text"])["city"] in ("Bern", "Rome")


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("messages", {"messages": CHAT[1:]}, "max_tokens: expected an integer, found nothing"),
        ("messages", {**MESSAGES, "max_tokens": 0}, "max_tokens"),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "video"}]}], "max_tokens": 2}, "type"),
        ("messages", {**MESSAGES, "max_tokens": 2, "tools": [{"type": "bash_20250124"}]}, "the server runs no tools"),
        ("responses", {**RESPONSES, "previous_response_id": "x"}, "the server keeps no responses"),
        ("responses", {**RESPONSES, "tools": [{"type": "web_search"}]}, r"tools\[0\].type"),
        ("responses", {"input": [{"type": "x"}]}, r"input\[0\].type"),
        ("responses", {"input": 3}, "input: expected an array"),
    ],
)
def test_wrong_bodies(client: Any, path: str, body: dict[str, Any], message: str) -> None:
    answer = client.post(f"/v1/{path}", json={"model": "tiny", **body})
    assert answer.status_code == 400
    error = answer.json()
    assert (error.get("type") == "error") == (path == "messages")
    with pytest.raises(ValueError, match=message):
        raise ValueError(error["error"]["message"])


def test_keys_of_messages() -> None:
    """Clients of Anthropic's API send keys in a header of their own; other endpoints do not read it."""
    from starlette.testclient import TestClient

    with TestClient(Server([], ServeOptions(keys=(KEY,)))) as client:
        for path, key, status in (
            ("messages", KEY, 404), ("messages", "x" * 16, 401), ("chat/completions", KEY, 401),
        ):  # fmt: skip
            answer = client.post(f"/v1/{path}", json={"model": "a", "max_tokens": 1}, headers={"x-api-key": key})
            assert answer.status_code == status, answer.text


ANSWER = 'I see.</think>Well, <tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call> and more'
FORM = AnswerForm({"weather": Tool("weather", SCHEMA)}, False, ("<think>", "</think>"), True)


def writer_of(kind: Any) -> Any:
    request = SimpleNamespace(prompt=[1, 2], tokens=[3], reused_tokens=0)
    body = GenerationBody(GenerationCall(), True, False, ToolChoice())
    return kind(body, SimpleNamespace(requests=[request]), "tiny", FORM)


@pytest.mark.parametrize("reason", [END, LENGTH])
@pytest.mark.parametrize("kind", [MessageWriter, ResponseWriter])
def test_the_cuts_of_a_stream_change_nothing(kind: Any, reason: str) -> None:
    draw = random.Random(0)
    for count in range(40):
        require_same(kind, draw.sample(range(1, len(ANSWER)), count), reason)
    require_same(kind, list(range(1, len(ANSWER))), reason)


def require_same(kind: Any, cuts: list[int], reason: str) -> None:
    """Compare the answer to a stream that is cut in these places with the whole one."""
    whole, streamed = writer_of(kind), writer_of(kind)
    whole.take([Delivery(0, ANSWER, [], reason)])
    places = [0, *sorted(cuts), len(ANSWER)]
    events = streamed.first()
    for begin, end in zip(places, places[1:], strict=False):
        events += streamed.chunks([Delivery(0, ANSWER[begin:end], [], reason if end == len(ANSWER) else None)])
    events += streamed.last()
    assert streamed.is_done
    items = [[item.kind, item.name, item.text] for item in whole._items]
    assert items == [[item.kind, item.name, item.text] for item in streamed._items]
    assert [kind for kind, _, _ in items] == ["reasoning", "text", "call", "text"]
    if kind is MessageWriter:
        ids = {"id": None}
        assert [{**each, **ids} for each in content_of(events)] == [
            {"signature": "", **each, **ids} if each["type"] == "thinking" else {**each, **ids}
            for each in whole.whole()["content"]
        ]
