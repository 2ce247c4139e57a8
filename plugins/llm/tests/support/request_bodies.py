"""What the server reads from bodies of requests: each body with everything, and with each of its values changed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path
from typing import Any

from mirlo_llm.serve import embeddings, generation_body, messages_api, ollama_api, responses_api
from mirlo_llm.serve.body import BodyFields
from mirlo_llm.serve.errors import RequestError
from mirlo_llm.serve.options import ServeOptions

from mirlo.testing.snapshots import checksum

TABLE = Path(__file__).parents[1] / "serve" / "bodies.txt"
OPTIONS = ServeOptions(max_tokens=64, max_choices=4, max_body=1 << 16)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
IMAGE = "data:image/png;base64,iVBORw0KGgo="
FUNCTION = {"name": "find", "description": "finds", "parameters": SCHEMA}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"city": "Bern"}'}}
COMMON = {
    "model": "tiny", "n": 2, "stream": True, "stream_options": {"include_usage": True}, "stop": ["a", "b"], "seed": 3,
    "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "repetition_penalty": 1.5,
    "frequency_penalty": 0.75, "presence_penalty": -0.75, "max_tokens": 9, "logit_bias": {"5": 2.5}, "user": "u",
    "stop_token_ids": [4, 5], "ignore_eos": True,
}  # fmt: skip
CHAT = {
    **COMMON, "logprobs": True, "top_logprobs": 2, "tools": [{"type": "function", "function": FUNCTION}],
    "messages": [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "name": "ann", "content": [
            {"type": "text", "text": "the fox"}, {"type": "image_url", "image_url": {"url": IMAGE}}]},
        {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "here"},
    ],
    "tool_choice": "auto", "modalities": ["text"], "chat_template_kwargs": {"a": 1}, "reasoning_effort": "low",
    "max_completion_tokens": 11,
}  # fmt: skip
TEXT = {**COMMON, "prompt": ["the fox", "a dog"], "echo": True, "best_of": 2, "logprobs": 3}
OLLAMA_OPTIONS = {
    "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "seed": 3, "stop": ["a"], "repeat_penalty": 1.5,
    "frequency_penalty": 0.75, "presence_penalty": -0.75, "num_predict": 9,
}  # fmt: skip
OLLAMA = {"model": "tiny", "options": OLLAMA_OPTIONS, "stream": False, "think": "low", "keep_alive": 1}
OLLAMA_CALL = {"function": {"name": "find", "arguments": {"city": "Bern"}}}

Reader = Callable[[BodyFields], object]
BODIES: dict[str, tuple[Reader, Set[str], dict[str, Any]]] = {
    "chat": (lambda body: generation_body.read_chat(body, OPTIONS), generation_body.CHAT_KEYS, CHAT),
    "chat with a function": (
        lambda body: generation_body.read_chat(body, OPTIONS), generation_body.CHAT_KEYS,
        {**CHAT, "tool_choice": {"type": "function", "function": {"name": "find"}}, "tools": [
            {"type": "function", "function": FUNCTION}, {"type": "function", "function": {"name": "other"}}]},
    ),
    "chat in a form": (
        lambda body: generation_body.read_chat(body, OPTIONS), generation_body.CHAT_KEYS,
        {"messages": CHAT["messages"][:1],
         "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    ),
    "text": (lambda body: generation_body.read_completion(body, OPTIONS), generation_body.TEXT_KEYS, TEXT),
    "text in a form": (
        lambda body: generation_body.read_completion(body, OPTIONS), generation_body.TEXT_KEYS,
        {"prompt": [3, 4], "prompt_logprobs": 2, "structured_outputs": {"choice": ["a", "b."]}},
    ),
    "text by a rule": (
        lambda body: generation_body.read_completion(body, OPTIONS), generation_body.TEXT_KEYS,
        {"prompt": "the fox", "regex": "[ab]+"},
    ),
    "messages": (
        lambda body: messages_api.read_message_body(body, OPTIONS), messages_api.MESSAGE_KEYS,
        {
            "model": "tiny", "max_tokens": 9, "system": [{"type": "text", "text": "be brief"}], "stream": True,
            "temperature": 0.5, "top_p": 0.25, "top_k": 7, "stop_sequences": ["a"],
            "tools": [{"type": "custom", "name": "find", "description": "finds", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "find"}, "thinking": {"type": "enabled", "budget_tokens": 8},
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "the fox"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "id": "c1", "name": "find", "input": {"city": "Bern"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "here"}]},
            ],
        },
    ),
    "responses": (
        lambda body: responses_api.read_response_body(body, OPTIONS), responses_api.RESPONSE_KEYS,
        {
            "model": "tiny", "instructions": "be brief", "max_output_tokens": 9, "stream": True, "temperature": 0.5,
            "top_p": 0.25, "background": False, "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": {"type": "function", "name": "find"}, "reasoning": {"effort": "low"},
            "text": {"format": {"type": "text"}},
            "input": [
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "the fox"}, {"type": "input_image", "image_url": IMAGE}]},
                {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "output_text", "text": "here"}]},
                {"type": "reasoning"},
            ],
        },
    ),
    "responses in a form": (
        lambda body: responses_api.read_response_body(body, OPTIONS), responses_api.RESPONSE_KEYS,
        {"input": "the fox", "text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    "ollama chat": (
        lambda body: ollama_api.read_ollama_chat(body, OPTIONS), ollama_api.OLLAMA_CHAT_KEYS,
        {
            **OLLAMA, "tools": [{"type": "function", "function": FUNCTION}],
            "messages": [
                {"role": "user", "content": "the fox", "images": ["aGk="]},
                {"role": "assistant", "content": "so", "thinking": "hm", "tool_calls": [OLLAMA_CALL]},
                {"role": "tool", "tool_name": "find", "content": "here"},
            ],
        },
    ),
    "ollama text": (
        lambda body: ollama_api.read_ollama_text(body, OPTIONS), ollama_api.OLLAMA_TEXT_KEYS,
        {**OLLAMA, "prompt": "the fox", "system": "be brief", "images": ["aGk="], "format": SCHEMA, "raw": False},
    ),
    "ollama raw text": (
        lambda body: ollama_api.read_ollama_text(body, OPTIONS), ollama_api.OLLAMA_TEXT_KEYS,
        {"prompt": "the fox", "raw": True},
    ),
    "ollama embed": (
        ollama_api.read_ollama_embed, ollama_api.OLLAMA_EMBED_KEYS,
        {"model": "tiny", "input": ["a", "b"], "truncate": False, "dimensions": 3},
    ),
    "ollama embedding": (
        ollama_api.read_ollama_embedding, ollama_api.OLLAMA_EMBEDDING_KEYS, {"model": "tiny", "prompt": "a"},
    ),
    "embeddings": (
        embeddings.OPENAI.read, embeddings.OPENAI.keys,
        {"model": "tiny", "input": ["a", [1, 2]], "encoding_format": "base64", "dimensions": 3},
    ),
}  # fmt: skip
"""By kind of request: what reads the body, its keys, and a body."""
VALUES = (
    None, True, False, 0, 1, -1, 2.5, 3.0, 1e30, 1 << 70, "", "x", "x" * (1 << 17), "none", "required", "text", [],
    ["x"], [["x"]], [1, 2], {}, {"type": "x"},
)  # fmt: skip
"""What takes the place of each value."""
MANY = 1 << 13
"""How often an element of an array is repeated, which is more than is accepted."""


def outcome(read: Reader, keys: Set[str], body: dict[str, Any]) -> str:
    """Return what is read from a body, or the error."""
    fields = BodyFields(body)
    try:
        fields.require_known(keys)
        return str(read(fields))
    except RequestError as error:
        return f"{error.status} {error.parameter} {error}"


def lines() -> Iterable[str]:
    """Return the lines of the table: the outcome of each body, then a checksum of its changes at each place."""
    for kind, (read, keys, body) in BODIES.items():
        whole = outcome(read, keys, body)
        yield f"{kind}: {whole}"
        for place in _places(body):
            outcomes = [outcome(read, keys, changed) for changed in _changes(body, place)]
            refused = sum(each[:1].isdigit() for each in outcomes)
            name = ".".join(map(str, place))
            yield f"{kind} {name}: {refused} of {len(outcomes)} refused, {checksum(outcomes)}"
        for key in sorted(keys - body.keys()):
            yield f"{kind} {key}: {checksum([outcome(read, keys, {**body, key: value}) for value in VALUES])}"
        yield f"{kind} unknown: {outcome(read, keys, {**body, 'x': 1})}"


def _places(value: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict) and above[-1:] not in (("parameters",), ("input_schema",), ("schema",)):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, each in inner:
        yield (*above, key)
        yield from _places(each, (*above, key))


def _changes(body: dict[str, Any], place: tuple[str | int, ...]) -> Iterator[dict[str, Any]]:
    """Yield the body without the value at a place, with each of `VALUES` there, and with many copies of an array's."""
    *above, last = place

    def container(root: Any) -> Any:
        for key in above:
            root = root[key]
        return root

    changed = copy.deepcopy(body)
    del container(changed)[last]
    yield changed
    for value in VALUES:
        changed = copy.deepcopy(body)
        container(changed)[last] = value
        yield changed
    if isinstance(last, int) and last == 0:
        changed = copy.deepcopy(body)
        own = container(changed)
        own[:] = own[:1] * MANY
        yield changed


SNAPSHOTS = {"../plugins/llm/tests/serve/bodies.txt": lines}
