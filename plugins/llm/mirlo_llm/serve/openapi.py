"""The OpenAPI document of a server's endpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from mirlo_llm.serve.embeddings import EMBEDDING_KEYS, MAX_TEXTS, RERANKING_KEYS
from mirlo_llm.serve.generation_body import CHAT_KEYS, TEXT_KEYS
from mirlo_llm.serve.messages_api import COUNT_KEYS, MESSAGE_KEYS
from mirlo_llm.serve.ollama_api import (
    OLLAMA_CHAT_KEYS,
    OLLAMA_EMBED_KEYS,
    OLLAMA_EMBEDDING_KEYS,
    OLLAMA_TEXT_KEYS,
    SHOW_KEYS,
)
from mirlo_llm.serve.protocol import VERSION
from mirlo_llm.serve.responses_api import RESPONSE_KEYS
from mirlo_llm.serve.tokens import DETOKENIZE_KEYS, TOKENIZE_KEYS
from mirlo_llm.serve.transcriptions import FORM_KEYS, PARTS, PARTS_KEY, RESPONSE_FORMATS

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
TOKENS: Schema = {"type": "array", "items": COUNT, "minItems": 1}
TEXTS: Schema = {"anyOf": [TEXT, TOKENS, {"type": "array", "items": {"anyOf": [TEXT, TOKENS]}, "minItems": 1}]}
JSON, PLAIN, EVENTS, LINES = "application/json", "text/plain", "text/event-stream", "application/x-ndjson"


def _array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _range(kind: str, least: float, most: float) -> Schema:
    return {"type": kind, "minimum": least, "maximum": most}


_MESSAGE: Schema = {
    "type": "object", "required": ["role"],
    "properties": {"role": TEXT, "content": {}, "tool_calls": _array(ANY_OBJECT)},
}  # fmt: skip
_FIELDS: Mapping[str, Schema] = {
    "model": {**TEXT, "maxLength": 200}, "messages": _array(_MESSAGE, minItems=1), "prompt": TEXTS, "input": TEXTS,
    "n": {"type": "integer", "minimum": 1}, "best_of": {"type": "integer", "minimum": 1}, "stream": FLAG, "echo": FLAG,
    "stream_options": ANY_OBJECT, "seed": {"type": "integer"}, "max_tokens": {"type": "integer", "minimum": 1},
    "prompt_logprobs": _range("integer", 0, 20),
    "max_completion_tokens": {"type": "integer", "minimum": 1}, "temperature": _range("number", 0, 2),
    "stop": {"anyOf": [TEXT, _array(TEXT, maxItems=16)]}, "top_p": _range("number", 0, 1),
    "min_p": _range("number", 0, 1),
    "top_k": COUNT, "repetition_penalty": _range("number", 0.01, 100), "frequency_penalty": _range("number", -2, 2),
    "presence_penalty": _range("number", -2, 2), "top_logprobs": _range("integer", 0, 20), "user": TEXT,
    "stop_token_ids": {"type": "array", "items": COUNT, "maxItems": 16}, "ignore_eos": FLAG, "logit_bias": ANY_OBJECT,
    "regex": TEXT, "lark": TEXT, "grammar": TEXT, "suffix": TEXT, "tools": _array(ANY_OBJECT),
    "parallel_tool_calls": FLAG,
    "response_format": ANY_OBJECT, "chat_template_kwargs": ANY_OBJECT, "dimensions": {"type": "integer", "minimum": 1},
    "encoding_format": {"enum": ["float", "base64"]}, "query": TEXT, "return_documents": FLAG,
    "documents": _array({"anyOf": [TEXT, {"type": "object", "properties": {"text": TEXT}}]}, minItems=1),
    "top_n": {"type": "integer", "minimum": 1}, "language": TEXT,
    "file": {"type": "string", "format": "binary"},
}  # fmt: skip
"""The schemas of keys; unlisted keys may have any value."""
_ERROR: Schema = {"type": "object", "required": ["error"], "properties": {"error": {}}}
STATUSES = {
    400: "The request is wrong; the error says what.", 401: "The key is missing or unknown.",
    403: "A page of another site may not use the server.", 404: "There is no such model.",
    408: "The body did not come in time.", 413: "The body is too large.", 415: "The body has another type.",
    421: "The request names another host.", 429: "Too many requests wait.", 500: "The server has failed.",
    501: "The server lacks a package.", 503: "The server is starting or stopping.", 507: "There is not enough memory.",
}  # fmt: skip
"""The errors of all endpoints."""


def _body(keys: Collection[str], required: Collection[str], is_closed: bool = False, **instead: Schema) -> Schema:
    """Return the schema of a body with these keys; other keys are invalid if it `is_closed`."""
    properties = {key: instead.get(key, _FIELDS.get(key, {})) for key in sorted(keys)}
    return {"type": "object", "required": [*required], "properties": properties, "additionalProperties": not is_closed}


_INFER: Schema = {
    "type": "object", "required": ["inputs"],
    "properties": {"id": TEXT, "inputs": _array(ANY_OBJECT), "outputs": _array(ANY_OBJECT), "parameters": ANY_OBJECT},
}  # fmt: skip
_FORM = _body(
    {*FORM_KEYS, "file"}, ["file", "model"], True, response_format={"enum": [*RESPONSE_FORMATS]},
    prompt=TEXT, temperature=TEXT, **{PARTS_KEY: _array({"enum": [*PARTS]})},
)  # fmt: skip
BODIES: Mapping[str, tuple[str, Schema]] = {
    "/v1/chat/completions": (JSON, _body(CHAT_KEYS, ["model", "messages"], logprobs=FLAG)),
    "/v1/completions": (
        JSON,
        _body(TEXT_KEYS, ["model", "prompt"], logprobs=_range("integer", 0, 20), max_tokens=COUNT),
    ),
    "/v1/responses": (JSON, _body(RESPONSE_KEYS, ["model", "input"], input={}, text=ANY_OBJECT)),
    "/v1/messages": (JSON, _body(MESSAGE_KEYS, ["model", "messages", "max_tokens"])),
    "/v1/messages/count_tokens": (JSON, _body(COUNT_KEYS, ["model", "messages"])),
    "/v1/embeddings": (JSON, _body(EMBEDDING_KEYS, ["model", "input"])),
    "/v1/rerank": (JSON, _body(RERANKING_KEYS, ["model", "query", "documents"])),
    "/tokenize": (JSON, _body(TOKENIZE_KEYS, [], add_special_tokens=FLAG, add_special=FLAG, prompt=TEXT, content=TEXT)),
    "/detokenize": (JSON, _body(DETOKENIZE_KEYS, ["tokens"], tokens={"type": "array", "items": COUNT})),
    "/api/chat": (JSON, _body(OLLAMA_CHAT_KEYS, ["model", "messages"], messages=_array(ANY_OBJECT, minItems=1))),
    "/api/generate": (JSON, _body(OLLAMA_TEXT_KEYS, ["model", "prompt"], prompt=TEXT)),
    "/api/embed": (
        JSON,
        _body(
            OLLAMA_EMBED_KEYS,
            ["model", "input"],
            truncate=FLAG,
            input={"anyOf": [TEXT, _array(TEXT, minItems=1, maxItems=MAX_TEXTS)]},
        ),
    ),
    "/api/embeddings": (JSON, _body(OLLAMA_EMBEDDING_KEYS, ["model", "prompt"], prompt=TEXT)),
    "/api/show": (JSON, _body(SHOW_KEYS, [])),
    "/v1/audio/transcriptions": ("multipart/form-data", _FORM),
    "/v1/audio/translations": ("multipart/form-data", _FORM),
    "/v2/models/{name}/infer": (JSON, _INFER),
    "/v2/models/{name}/versions/{version}/infer": (JSON, _INFER),
}
"""Content types and schemas of bodies, by path."""


def _whole(*kinds: str) -> Mapping[str, Schema]:
    """Return the descriptions of answers of these types: an object in JSON, text otherwise."""
    return {kind: {"schema": ANY_OBJECT if kind == JSON else TEXT} for kind in kinds}


def _object_with(*keys: str) -> Schema:
    """Return the schema of an object that has one of these keys."""
    return {"type": "object", "anyOf": [{"required": [key]} for key in keys]}


def _json_text(schema: Schema) -> Schema:
    return {"type": "string", "contentMediaType": JSON, "contentSchema": schema}


_DATA_EVENT: Schema = {
    "type": "object", "required": ["data"],
    "properties": {"data": {"anyOf": [{"const": "[DONE]"}, _json_text(_object_with("choices", "error"))]}},
}  # fmt: skip
"""An event of data; [DONE] is the last one of an answer without an error."""
_NAMED_EVENT: Schema = {
    "type": "object", "required": ["event", "data"],
    "properties": {"event": TEXT, "data": _json_text(_object_with("type"))},
}  # fmt: skip
"""An event with the name of its type."""
_LINE = _object_with("model", "error")
"""A line of an answer of Ollama's endpoints."""
_STREAMED_DATA = {**_whole(JSON), EVENTS: {"itemSchema": _DATA_EVENT}}
_STREAMED_NAMED = {**_whole(JSON), EVENTS: {"itemSchema": _NAMED_EVENT}}
_STREAMED_LINES = {**_whole(JSON), LINES: {"itemSchema": _LINE}}
ANSWERS: Mapping[str, Mapping[str, Schema]] = {
    "/": _whole("text/html"), "/metrics": _whole(PLAIN),
    "/v1/chat/completions": _STREAMED_DATA, "/v1/completions": _STREAMED_DATA,
    "/v1/responses": _STREAMED_NAMED, "/v1/messages": _STREAMED_NAMED,
    "/api/chat": _STREAMED_LINES, "/api/generate": _STREAMED_LINES,
    "/v1/audio/transcriptions": _whole(JSON, PLAIN, "text/vtt"),
    "/v1/audio/translations": _whole(JSON, PLAIN, "text/vtt"),
    "/v2/models/{name}/infer": _whole(JSON, "application/octet-stream"),
    "/v2/models/{name}/versions/{version}/infer": _whole(JSON, "application/octet-stream"),
}  # fmt: skip
"""Answers by path and content type; a JSON object for others."""


def openapi_document(routes: Collection[tuple[str, str, str]], version: str, models: Collection[str]) -> dict[str, Any]:
    """Return the OpenAPI document for endpoints (method, path, summary) of a server of these models."""
    named = {"name": {"enum": [*models]} if models else TEXT, "version": {"enum": [VERSION]}}
    paths: dict[str, dict[str, Any]] = {}
    for method, path, purpose in routes:
        answers = ANSWERS.get(path, _whole(JSON))
        errors = {
            str(status): {"description": text, "content": {JSON: {"schema": _ERROR}}}
            for status, text in STATUSES.items()
        }
        operation: dict[str, Any] = {
            "summary": purpose, "responses": {"200": {"description": "The answer.", "content": answers}, **errors},
        }  # fmt: skip
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        if names:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": named[name]} for name in names
            ]
        if path in BODIES and method == "POST":
            kind, schema = BODIES[path]
            if models and "model" in schema["properties"]:
                schema = {**schema, "properties": {**schema["properties"], "model": named["name"]}}
            operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema}}}
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.2.0", "info": {"title": "mirlo serve", "version": version}, "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }  # fmt: skip
