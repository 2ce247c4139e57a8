"""The endpoints of a server, called in this process."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

for package in ("starlette", "tokenizers", "jinja2", "llguidance"):
    pytest.importorskip(package)
testclient = pytest.importorskip("starlette.testclient")

from folders import load  # noqa: E402
from mirlo_llm import generate  # noqa: E402
from mirlo_llm.generate.chat import ChatTemplate  # noqa: E402
from mirlo_llm.serve import run  # noqa: E402
from mirlo_llm.serve import tensor_backend as backends  # noqa: E402
from mirlo_llm.serve.application import Server  # noqa: E402
from mirlo_llm.serve.body import BodyBudget  # noqa: E402
from mirlo_llm.serve.errors import RequestError  # noqa: E402
from mirlo_llm.serve.options import ModelSource, ServeOptions  # noqa: E402
from served import (  # noqa: E402
    load_failure,
    ready_client,
    wait_until_ready,
    write_language_model,
    write_tensor_model,
    write_text_model,
)

KEY = "0123456789abcdef"

PICTURE = "data:image/png;base64,AAAA"


def client_of(server: Server) -> Any:
    return testclient.TestClient(server, raise_server_exceptions=True)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[ModelSource]:
    folder = tmp_path_factory.mktemp("served")
    return [
        ModelSource("tiny", write_language_model(folder / "tiny")),
        ModelSource("sum", write_tensor_model(folder / "sum.onnx")),
        ModelSource("mix", write_tensor_model(folder / "mix.onnx", mixes_rows=True)),
        ModelSource("texts", write_text_model(folder / "texts.onnx")),
    ]


@pytest.fixture(scope="module")
def server(sources: list[ModelSource]) -> Server:
    return Server(sources, ServeOptions(slots=4, queue=8, max_tokens=64, max_body=1 << 20))


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with ready_client(server) as client:
        yield client


@pytest.fixture(scope="module")
def alone(sources: list[ModelSource]) -> generate.LanguageModel:
    return load(sources[0].path)


def chat(client: Any, **body: Any) -> Any:
    given = {"model": "tiny", "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 8, "temperature": 0}
    return client.post("/v1/chat/completions", json=given | body)


def events_of(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_answers_are_those_of_a_generator(client: Any, alone: generate.LanguageModel) -> None:
    expected = "".join(alone.generator(max_new_tokens=20).stream("the quick brown fox"))
    body = {"model": "tiny", "prompt": "the quick brown fox", "max_tokens": 20, "temperature": 0}
    answer = client.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["text"] == expected and answer["object"] == "text_completion"
    assert answer["usage"]["completion_tokens"] == 20 and answer["usage"]["prompt_tokens"] == 5
    streamed = events_of(client.post("/v1/completions", json=body | {"stream": True}).text)
    assert "".join(event["choices"][0]["text"] for event in streamed) == expected
    assert streamed[-1]["choices"][0]["finish_reason"] == "length"


def test_conversations_are_formatted(client: Any, alone: generate.LanguageModel) -> None:
    messages = [{"role": "user", "content": "the fox"}]
    expected = "".join(alone.generator(max_new_tokens=8).stream(alone.chat_tokens(messages)))
    answer = chat(client).json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": expected, "refusal": None}
    parts = [{"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "fox"}]}]
    assert chat(client, messages=parts).json()["choices"][0]["message"]["content"] == expected
    events = events_of(chat(client, stream=True, stream_options={"include_usage": True}).text)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]) == expected
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 8


def test_several_answers(client: Any, alone: generate.LanguageModel) -> None:
    body = {"model": "tiny", "prompt": ["the fox", "a dog"], "n": 2, "max_tokens": 6, "temperature": 1, "seed": 3}
    choices = client.post("/v1/completions", json=body).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    for i, choice in enumerate(choices):
        options: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "seed": 3 + i % 2, "max_new_tokens": 6}
        expected = "".join(alone.generator(**options).stream(body["prompt"][i // 2]))
        assert choice["text"] == expected


def test_stops_end_answers(client: Any, alone: generate.LanguageModel) -> None:
    text = "".join(alone.generator(max_new_tokens=30).stream("the fox"))
    stop = text[10:12]
    body = {"model": "tiny", "prompt": "the fox", "max_tokens": 30, "temperature": 0, "stop": [stop]}
    choice = client.post("/v1/completions", json=body).json()["choices"][0]
    assert choice["text"] == text[: text.index(stop)] and choice["finish_reason"] == "stop"


def test_logprobs_are_those_of_the_logits(client: Any, alone: generate.LanguageModel) -> None:
    generator = alone.generator()
    generator.append(alone.chat_tokens([{"role": "user", "content": "the fox"}]))
    logits = generator.logits().reshape(-1).astype(np.float64)
    expected = np.sort(logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max())[::-1]
    content = chat(client, logprobs=True, top_logprobs=3).json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 8
    np.testing.assert_allclose([top["logprob"] for top in content[0]["top_logprobs"]], expected[:3], atol=1e-4)
    assert content[0]["logprob"] == content[0]["top_logprobs"][0]["logprob"]
    streamed = events_of(chat(client, logprobs=True, stream=True).text)
    pieces = [e["choices"][0]["logprobs"]["content"] for e in streamed if e["choices"][0]["logprobs"]]
    assert [token["token"] for piece in pieces for token in piece] == [token["token"] for token in content]


def test_forms_of_answers(client: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"enum": [1, 2]}},
        "required": ["age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    text = chat(client, response_format=form, max_tokens=60).json()["choices"][0]["message"]["content"]
    assert json.loads(text)["age"] in (1, 2)
    assert chat(client, regex="(red|blue)").json()["choices"][0]["message"]["content"] in ("red", "blue")


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}}, "required": ["city"],
            "additionalProperties": False,
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("is_streamed", [False, True])
def test_tools_that_must_be_called(client: Any, is_streamed: bool) -> None:
    answer = chat(client, tools=[TOOL], tool_choice="required", max_tokens=60, stream=is_streamed)
    if is_streamed:
        events = events_of(answer.text)
        (call,) = [c for e in events for c in e["choices"][0]["delta"].get("tool_calls", [])]
        reason = events[-1]["choices"][0]["finish_reason"]
    else:
        choice = answer.json()["choices"][0]
        (call,), reason = choice["message"]["tool_calls"], choice["finish_reason"]
    assert reason == "tool_calls" and call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["city"] in ("Bern", "Rome")
    result = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}]},
        {"role": "tool", "tool_call_id": call["id"], "content": "rain"},
    ]
    assert chat(client, tools=[TOOL], messages=result).status_code == 200


def test_models(client: Any) -> None:
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny", "sum", "mix", "texts"]
    assert client.get("/v1/models/tiny").json()["id"] == "tiny"
    assert client.get("/v1/models/none").json()["error"]["code"] == "model_not_found"


def test_large_bodies(client: Any) -> None:
    """What is large is read and written in threads, piece by piece, to the same answers and errors."""
    rows = 3000
    inputs = [
        {"name": name, "shape": [rows, 3], "datatype": "FP32", "data": [[i, 1, 0.5] for i in range(rows)]}
        for name in ("x", "bias")
    ]
    answer = client.post("/v2/models/sum/infer", json={"inputs": inputs})
    assert answer.status_code == 200, answer.text
    assert answer.json()["outputs"][0]["data"] == [value for i in range(rows) for value in (3.0 * i, 3.0, 1.5)]
    for prompt, status, message in (
        ("a" * 20_000, 400, "the prompt has 20"),
        ("ab " * 3000, 400, "the prompt has 6002 tokens"),
        ("a" * 900_000, 400, "the prompt has 900000 characters, the tokens that the server takes have up to"),
        (["a"] * 100_000, 400, "a request has up to 8 answers"),
        ([[]] * 140_000, 413, "more than 131072 arrays and objects"),
        ([1] * 300_000, 400, "the prompt has 300000 tokens"),
    ):
        body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 1}, separators=(",", ":"))
        answer = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, message in answer.text) == (status, True), answer.text


def test_bodies_are_limited_together() -> None:
    budget, first, second = BodyBudget(100), dict[str, Any](), dict[str, Any]()
    budget.take(first, 60), budget.take(first, 20)
    with pytest.raises(RequestError, match="too many bodies"):
        budget.take(second, 21)
    budget.release(second), budget.release(first), budget.release(first)
    budget.take(second, 100)


CHAIN = "start: r0\n" + "".join(f'r{i}: r{i + 1} "b"\n' for i in range(2999)) + 'r2999: "a"\n'


def schema_form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


BAD_BODIES: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "user"}]}, r"messages\[0\].content"),
    ({"messages": [{"role": "king", "content": "x"}]}, r"messages\[0\].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "image_url.url: expected"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}]},
        "the model takes no images",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "text and images only"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1 << 31}, "from 1 to 1073741824"),
    ({"structured_outputs": {}}, "expected one of json, regex, choice, grammar, json_object"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "expected one of json"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"regex": "a"}, "regex": "b"}, "an answer has one form, found regex too"),
    ({"max_tokens": True}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": 3}, "temperature"),
    ({"n": 9}, "n: expected"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["x"] * 17}, "up to 16"),
    ({"stream": 1}, "stream"),
    ({"stream_options": {}}, "stream_options"),
    ({"logit_bias": {"1": 200}}, "logit_bias: expected numbers from -100 to 100"),
    ({"logit_bias": {"a": 2}}, "logit_bias"),
    ({"logit_bias": {"123456789": 2}}, "a token must be from 0 to"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}}, "json_schema"),
    ({"regex": "("}, "regex"),
    ({"lark": CHAIN}, "lark: expected up to 500 rules that refer to one another, found 3001"),
    ({"lark": "start: a\na: b\nb: a\n"}, "lark: no answer can go on from here"),
    (schema_form({"$ref": "#"}), "json_schema: no answer can go on from here"),
    (
        schema_form({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}}}),
        "json_schema: circular",
    ),
    (
        schema_form({"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(3000)}}),
        "json_schema: expected up to 500 definitions that refer to one another, found 3002",
    ),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
    ({"tools": [TOOL, TOOL]}, "same name"),
    ({"tool_choice": "required"}, "there are no tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "no tool is named"),
    ({"model": "none"}, "there is no model"),
    ({"model": "sum"}, "no language model"),
    ({"model": 3}, "model: expected a text"),
    ({"messages": [{"role": "user", "content": "the fox " * 2000}]}, "the prompt has"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "surrogate"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
]


def test_an_image_is_refused_before_the_template_runs(
    alone: generate.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(*arguments: object, **variables: object) -> str:
        raise AssertionError("the template ran")

    monkeypatch.setattr(ChatTemplate, "render", render)
    message = {"role": "user", "content": [{"type": "image", "image": b"x"}]}
    with pytest.raises(generate.GenerationError, match="the model takes no images"):
        alone.chat_tokens([message])


@pytest.mark.parametrize(
    ("form", "answers"),
    [
        ({"choice": ["a.b", "c"]}, ("a.b", "c")),
        ({"regex": "x|y"}, ("x", "y")),
        ({"grammar": 'start: "x" | "y"'}, ("x", "y")),
        ({"json": {"enum": ["x", "y"]}}, ('"x"', '"y"')),
    ],
)
def test_structured_outputs(client: Any, form: dict[str, Any], answers: tuple[str, ...]) -> None:
    """The forms of answers as vLLM's clients give them."""
    answer = chat(client, structured_outputs=form, max_tokens=60).json()
    assert answer["choices"][0]["message"]["content"] in answers


def test_an_answer_has_as_many_tokens_as_the_server_gives(client: Any) -> None:
    """Clients ask for more than there are."""
    answer = chat(client, max_tokens=32000, ignore_eos=True).json()
    assert answer["usage"]["completion_tokens"] <= 64 and answer["choices"][0]["finish_reason"] == "length"


def test_a_last_message_of_the_model_is_continued(client: Any) -> None:
    """Its text and what follows are what the model has written in one go."""
    user = {"role": "user", "content": "the fox"}
    whole = chat(client, messages=[user], max_tokens=12, ignore_eos=True).json()["choices"][0]["message"]["content"]
    prompt = client.post("/tokenize", json={"model": "tiny", "messages": [user]}).json()["tokens"]
    begun = [user, {"role": "assistant", "content": "a quick"}]
    tokens = client.post("/tokenize", json={"model": "tiny", "messages": begun}).json()["tokens"]
    assert tokens[: len(prompt)] == prompt and len(tokens) > len(prompt)
    text = client.post("/detokenize", json={"model": "tiny", "tokens": tokens[len(prompt) :]}).json()["content"]
    assert text.split() == ["a", "quick"] and whole
    usage = chat(client, messages=begun, max_tokens=2).json()["usage"]
    assert usage["prompt_tokens"] == len(tokens)


@pytest.mark.parametrize(("body", "message"), BAD_BODIES, ids=[str(i) for i in range(len(BAD_BODIES))])
def test_wrong_bodies(client: Any, body: dict[str, Any], message: str) -> None:
    given = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2} | body
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/chat/completions", content=json.dumps(given), headers=headers)
    assert answer.status_code in (400, 404), answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    import re

    assert re.search(message, error["message"]), error["message"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", {}, 400),
        (b"[]", {}, 400),
        (b"{", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b'{"model": NaN}', {}, 400),
        (b'{"model": 1e999}', {}, 400),
        (b'{"model": ' + b"9" * 5000 + b"}", {}, 400),
        (b'{"a":' * 200 + b"1" + b"}" * 200, {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"model": "tiny"}', {"content-type": "text/plain"}, 415),
        (b'{"model": "tiny"}', {"content-encoding": "gzip"}, 415),
        (b'{"model": "tiny"}', {"origin": "http://elsewhere"}, 403),
        (b" " * (1 << 20) + b"{}", {}, 413),
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v2/models/sum/infer"])
def test_wrong_content(client: Any, path: str, content: bytes, headers: dict[str, str], status: int) -> None:
    answer = client.post(path, content=content, headers={"content-type": "application/json"} | headers)
    assert answer.status_code == status, answer.text
    assert "error" in answer.json()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v2/models/none/infer", 404),
        ("GET", "/v2/models/sum/versions/2", 404),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v2/models/%0d%0aSet-Cookie:x", 404),
        ("POST", "/v1/embeddings", 400),
    ],
)
def test_wrong_paths(client: Any, method: str, path: str, status: int) -> None:
    answer = client.request(method, path, json={"model": "tiny", "input": "x"} if method == "POST" else None)
    assert answer.status_code == status and "error" in answer.json()
    assert "set-cookie" not in answer.headers


def tensor(name: str, data: Any, shape: Any = (1, 3), datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "datatype": datatype, "data": data, **more}


def test_inference_as_json(client: Any) -> None:
    inputs = [tensor("x", [1, 2, 3]), tensor("bias", [[10, 20, 30.5]])]
    answer = client.post("/v2/models/sum/infer", json={"id": "7", "inputs": inputs}).json()
    expected = {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [12.0, 24.0, 36.5]}
    assert answer == {"model_name": "sum", "model_version": "1", "id": "7", "outputs": [expected]}
    assert client.post("/v2/models/sum/versions/1/infer", json={"inputs": inputs}).status_code == 200


def infer_binary(client: Any, head: dict[str, Any], *parts: bytes) -> Any:
    content = json.dumps(head).encode()
    headers = {"inference-header-content-length": str(len(content)), "content-type": "application/octet-stream"}
    return client.post("/v2/models/sum/infer", content=content + b"".join(parts), headers=headers)


def binary(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": size}}


def test_inference_as_bytes(client: Any) -> None:
    x, bias = np.random.default_rng(0).standard_normal((2, 2, 3), np.float32)
    head = {"inputs": [binary("x", 24), binary("bias", 24)], "parameters": {"binary_data_output": True}}
    answer = infer_binary(client, head, x.tobytes(), bias.tobytes())
    size = int(answer.headers["inference-header-content-length"])
    described = json.loads(answer.content[:size])["outputs"][0]
    assert described["parameters"] == {"binary_data_size": 24}
    found = np.frombuffer(answer.content[size:], np.float32).reshape(2, 3)
    np.testing.assert_allclose(found, 2 * x + bias, rtol=1e-6)
    not_finite = np.full((2, 3), np.inf, np.float32).tobytes()
    head["parameters"] = {}
    refused = infer_binary(client, head, not_finite, not_finite)
    assert refused.status_code == 400 and "binary_data" in refused.json()["error"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([tensor("x", [1, 2, 3])], "needs bias"),
        ([tensor("q", [1, 2, 3])], "no input 'q'"),
        ([tensor("x", [1, 2, 3])] * 2, "given twice"),
        ([tensor("x", [1, 2])], "expected 3 elements"),
        ([tensor("x", ["a", "b", "c"])], "FP32"),
        ([tensor("x", [True, 1, 2])], "FP32"),
        ([tensor("x", [1e300, 1, 2])], "does not fit"),
        ([tensor("x", [None, 1, 2])], "null"),
        ([tensor("x", {"a": 1})], "an array"),
        ([tensor("x", [1, 2, 3], (-1, 3))], "sizes"),
        ([tensor("x", [1, 2, 3], (1.5, 2))], "sizes"),
        ([tensor("x", [], (0, 1 << 63))], "sizes"),
        ([tensor("x", [1, 2, 3], datatype="INT64")], "FP32"),
        ([tensor("x", [1, 2, 3, 4], (1, 4)), tensor("bias", [1, 2, 3, 4], (1, 4))], "3"),
        ([tensor("x", [1, 2, 3]), tensor("bias", [1] * 6, (2, 3))], "first dims"),
        ([tensor("x", [1, 2, 3], parameters={"binary_data_size": 12})], "as JSON and as bytes"),
        ("x", "an array"),
        ([3], "an object"),
    ],
)
def test_wrong_tensors(client: Any, inputs: Any, message: str) -> None:
    answer = client.post("/v2/models/sum/infer", json={"inputs": inputs})
    assert answer.status_code == 400 and message in answer.json()["error"], answer.text


def test_wrong_bytes(client: Any) -> None:
    good = np.zeros((2, 3), np.float32).tobytes()
    for head, parts, message in (
        ([binary("x", 24), binary("bias", 24)], (good,), "are left"),
        ([binary("x", 24), binary("bias", 20)], (good, good[:20]), "expected 24 bytes"),
        ([binary("x", 24), binary("bias", 24)], (good, good, b"rest"), "belong to no input"),
    ):
        answer = infer_binary(client, {"inputs": head}, *parts)
        assert answer.status_code == 400 and message in answer.json()["error"]
    headers = {"inference-header-content-length": "999999"}
    assert client.post("/v2/models/sum/infer", content=b"{}", headers=headers).status_code == 400


def test_texts(client: Any) -> None:
    body = {"inputs": [tensor("x", ["a", "\u00fc"], [2], "BYTES")]}
    answer = client.post("/v2/models/texts/infer", json=body).json()
    assert answer["outputs"][0]["data"] == ["a!", "\u00fc!"]
    content = b"".join(struct.pack("<I", len(each)) + each for each in (b"a", "\u00fc".encode()))
    head = {
        "inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(content)}}]
    }
    for rest, status in ((content, 200), (content[:-1] + b"\xff", 400), (struct.pack("<I", 9) + content[4:], 400)):
        text = json.dumps(head).encode()
        headers = {"inference-header-content-length": str(len(text))}
        assert client.post("/v2/models/texts/infer", content=text + rest, headers=headers).status_code == status


def test_metadata(client: Any) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    assert client.get("/v2/health/live").status_code == 200
    model = client.get("/v2/models/sum").json()
    assert model["platform"] == "mirlo_llvm" and model["versions"] == ["1"]
    assert model["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
    assert client.get("/v2/models/sum/ready").json() == {"name": "sum", "ready": True}


def test_rows_that_depend_on_each_other_are_not_batched(client: Any, server: Server) -> None:
    def is_batched(name: str) -> bool:
        backend: Any = server.state.pool.models[name].backend
        return bool(backend.is_batched)

    assert is_batched("sum") and not is_batched("mix")


def test_figures(client: Any) -> None:
    chat(client)
    text = client.get("/metrics").text
    for line in (
        'mirlo_requests_total{endpoint="/v1/chat/completions",model="tiny",status="200"}',
        'mirlo_generated_tokens_total{model="tiny"}',
        'mirlo_model_loaded{model="sum"} 1',
    ):
        assert line in text
    assert client.get("/v1/models/a%22b%0a").status_code == 404
    parser = pytest.importorskip("prometheus_client.parser")
    assert len(list(parser.text_string_to_metric_families(client.get("/metrics").text))) > 10


def test_the_page_runs_its_own_script_only(client: Any) -> None:
    answer = client.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "http://" not in answer.text and "https://" not in answer.text and "innerHTML" not in answer.text


def test_keys_hosts_and_stopping(sources: list[ModelSource]) -> None:
    server = Server(sources[1:2], ServeOptions(keys=(KEY,)))
    with ready_client(server) as client:
        assert client.get("/").status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": KEY}):
            answer = client.get("/v1/models", headers=headers)
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
        good = {"authorization": f"Bearer {KEY}"}
        assert client.get("/v1/models", headers=good).status_code == 200
        assert client.get("/metrics").status_code == 401
        server.state.is_stopping = True
        assert client.get("/v2/health/ready").status_code == 503
        refused = client.get("/v1/models", headers=good)
        assert refused.status_code == 503 and refused.headers["retry-after"] == "5"
    with client_of(Server(sources[1:2], ServeOptions())) as client:
        assert client.get("/v2", headers={"host": "evil.example:8000"}).status_code == 403
        assert client.get("/v2", headers={"host": "[::1]:8000"}).status_code == 200


@pytest.mark.sample(0)
def test_models_make_room_for_each_other(sources: list[ModelSource]) -> None:
    """With memory for one of two, both answer; each is loaded when it is needed."""
    server = Server(sources[1:3], ServeOptions(memory=1))
    with client_of(server) as client:
        pool = server.state.pool
        for model in pool.models.values():
            model.nbytes = 1
        kept = backends.TensorBackend.nbytes
        backends.TensorBackend.nbytes = property(lambda self: 1)  # type: ignore[assignment,method-assign]
        try:
            wait_until_ready(client)
            for name in ("sum", "mix", "sum"):
                inputs = [tensor("x", [1, 2, 3]), tensor("bias", [0, 0, 0])]
                assert client.post(f"/v2/models/{name}/infer", json={"inputs": inputs}).status_code == 200
                assert [model.source.name for model in pool.loaded] == [name]
        finally:
            backends.TensorBackend.nbytes = kept  # type: ignore[method-assign]


@pytest.mark.sample(0)
def test_a_model_that_does_not_fit_is_an_error(sources: list[ModelSource]) -> None:
    server = Server(sources[:1], ServeOptions(memory=1 << 20))
    assert "raise --memory" in load_failure(server)


@pytest.mark.sample(0)
def test_the_loop_is_that_of_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server runs in uvloop's loop where the package is installed, and else in Python's own."""
    pretended: Any = ModuleType("uvloop")
    pretended.run = lambda coroutine: None
    monkeypatch.setitem(sys.modules, "uvloop", pretended)
    assert run._loop_runner() is pretended.run
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run._loop_runner() is asyncio.run
