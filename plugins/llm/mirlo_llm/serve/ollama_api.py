"""Ollama's API for conversations, texts and embeddings, converted to and from OpenAI's."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timezone

from mirlo_llm.generate.request import LENGTH
from mirlo_llm.serve.answer_items import CALL, REASONING, TEXT, AnswerItem, Event, ItemWriter
from mirlo_llm.serve.answer_reader import AnswerForm
from mirlo_llm.serve.body import BodyFields, fields_of
from mirlo_llm.serve.embeddings import MAX_TEXTS, Embedded, EmbeddingRequest, read_dimensions, require_some
from mirlo_llm.serve.engine_thread import AnswerJob, Delivery
from mirlo_llm.serve.errors import refused
from mirlo_llm.serve.generation_body import (
    EFFORTS,
    MAX_MESSAGES,
    GenerationBody,
    read_chat,
    read_completion,
    read_texts,
)
from mirlo_llm.serve.options import ServeOptions

PREFIX = "/api/"
"""The prefix of this API's paths."""
LATEST = ":latest"
"""The tag that clients append to model names."""
OLLAMA_CHAT_KEYS = {"model", "messages", "tools", "format", "options", "stream", "think", "keep_alive"}
OLLAMA_TEXT_KEYS = {
    "model", "prompt", "suffix", "images", "system", "raw", "format", "options", "stream", "think", "keep_alive",
}  # fmt: skip
OLLAMA_EMBED_KEYS = {"model", "input", "truncate", "dimensions", "options", "keep_alive"}
OLLAMA_EMBEDDING_KEYS = {"model", "prompt", "options", "keep_alive"}
SHOW_KEYS = {"model", "name", "verbose"}
MAX_IMAGES, MAX_CALLS = 64, 128
_OPTIONS = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "seed": "seed", "stop": "stop",
    "repeat_penalty": "repetition_penalty", "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}  # fmt: skip
"""Keys of `options` by their names in OpenAI's API; others, such as `num_ctx`, concern Ollama's loading of models."""


def model_name(name: str) -> str:
    """Return the name of a model without the tag `latest`."""
    return name.removesuffix(LATEST)


def read_ollama_chat(body: BodyFields, options: ServeOptions) -> GenerationBody:
    """Read the body of a conversation."""
    messages = [
        _message(fields_of(each, f"messages[{i}]")) for i, each in enumerate(body.list("messages", MAX_MESSAGES))
    ]
    chat = {**_common(body), "messages": messages}
    if body.has("tools"):
        chat["tools"] = body.value("tools")
    return read_chat(BodyFields(chat), options)


def read_ollama_text(body: BodyFields, options: ServeOptions) -> GenerationBody:
    """Read the body of a text: a conversation of one message, or the unchanged text if it is `raw`."""
    if body.has("suffix"):
        raise refused("suffix", "the model continues texts only")
    common, prompt = _common(body), body.text("prompt")
    if body.flag("raw"):
        if body.has("system") or body.has("images") or body.has("format"):
            raise refused("raw", "a text that is raw has no 'system', 'images' or 'format'")
        common.setdefault("max_tokens", options.max_tokens)
        return read_completion(BodyFields({**common, "prompt": prompt}), options)
    system = [{"role": "system", "content": body.text("system")}] if body.has("system") else []
    return read_chat(BodyFields({**common, "messages": [*system, _with_images(body, "user", prompt)]}), options)


def read_ollama_embed(body: BodyFields) -> EmbeddingRequest:
    """Read the body of a request for embeddings: of a text, or of several."""
    texts = require_some(read_texts(body, "input", MAX_TEXTS, takes_tokens=False), "input")
    return EmbeddingRequest(texts, read_dimensions(body), truncates=body.flag("truncate", True))


def write_ollama_embed(request: EmbeddingRequest, embedded: Embedded) -> object:
    """Return the answer to a request for embeddings."""
    return {
        "model": embedded.model, "embeddings": embedded.rows.tolist(), "total_duration": round(embedded.seconds * 1e9),
        "load_duration": 0, "prompt_eval_count": embedded.tokens,
    }  # fmt: skip


def read_ollama_embedding(body: BodyFields) -> EmbeddingRequest:
    """Read the body of a request for one embedding, as older clients ask for it."""
    return EmbeddingRequest([body.text("prompt")], truncates=True)


def write_ollama_embedding(request: EmbeddingRequest, embedded: Embedded) -> object:
    """Return the answer to a request for one embedding."""
    return {"embedding": embedded.rows[0].tolist()}


def _common(body: BodyFields) -> dict[str, object]:
    """Return the keys that both kinds of requests have, in the format of OpenAI's API."""
    result: dict[str, object] = {"model": body.value("model"), "stream": body.flag("stream") or not body.has("stream")}
    if body.has("options"):
        given = body.inner("options")
        result |= {known: given.value(key) for key, known in _OPTIONS.items() if given.has(key)}
        most = given.value("num_predict")
        if most is not None and not (isinstance(most, int) and not isinstance(most, bool)):
            raise given.fail("num_predict", "an integer")
        if most is not None and most > 0:  # less stands for any number
            result["max_tokens"] = most
    if body.has("format"):
        schema = body.value("format")
        if schema == "json":
            result["response_format"] = {"type": "json_object"}
        else:
            own = {"schema": body.mapping("format")}
            result["response_format"] = {"type": "json_schema", "json_schema": own}
    if body.has("think"):
        think = body.value("think")
        if isinstance(think, bool):
            result["chat_template_kwargs"] = {"enable_thinking": think}
        else:
            result["reasoning_effort"] = body.choice("think", EFFORTS)
    return result


def _message(message: BodyFields) -> dict[str, object]:
    """Return a message in the format of OpenAI's API."""
    role = message.choice("role", ("system", "user", "assistant", "tool"))
    result = _with_images(message, role, message.text("content", ""))
    if message.has("thinking"):
        result["reasoning_content"] = message.text("thinking")
    if message.has("tool_calls"):
        calls = []
        for i, each in enumerate(message.list("tool_calls", MAX_CALLS)):
            function = fields_of(each, f"{message.name('tool_calls')}[{i}]").inner("function")
            arguments = json.dumps(function.mapping("arguments"))
            calls.append({"type": "function", "function": {"name": function.text("name"), "arguments": arguments}})
        result["tool_calls"] = calls
    if message.has("tool_name"):
        result["name"] = message.text("tool_name")
    return result


def _with_images(fields: BodyFields, role: str, text: str) -> dict[str, object]:
    """Return a message with a text and the base64 images of a body."""
    images = fields.list("images", MAX_IMAGES) if fields.has("images") else []
    if not all(isinstance(each, str) for each in images):
        raise fields.fail("images", "an array of images in base64")
    if not images:
        return {"role": role, "content": text}
    # Requests do not name the type of an image, and encoders read it from the file.
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/any;base64,{each}"}} for each in images]
    return {"role": role, "content": [*parts, {"type": "text", "text": text}]}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


class OllamaWriter(ItemWriter):
    """Writes the answer of a conversation: parts of a message, then token counts."""

    def __init__(self, body: GenerationBody, job: AnswerJob, model: str, form: AnswerForm) -> None:
        super().__init__(body, job, model, form)
        self._start = time.perf_counter_ns()
        self._first: int | None = None
        """When the first part came."""

    def chunks(self, deliveries: Sequence[Delivery]) -> list[Event]:
        """Return the lines for deliveries."""
        if self._first is None and deliveries:
            self._first = time.perf_counter_ns()
        return super().chunks(deliveries)

    def first(self) -> list[Event]:
        """Return the first lines of a stream: none."""
        return []

    def last(self) -> list[Event]:
        """Return the last line of a stream."""
        return [self._ending([])]

    def whole(self) -> Event:
        """Return the whole answer."""
        return self._ending(self._items)

    def _line(self, items: Sequence[AnswerItem]) -> Event:
        """Return a line with the content of some items."""
        message: Event = {"role": "assistant", "content": "".join(item.text for item in items if item.kind == TEXT)}
        thoughts = "".join(item.text for item in items if item.kind == REASONING)
        calls = [
            {"function": {"name": item.name, "arguments": json.loads(item.text)}} for item in items if item.kind == CALL
        ]
        message |= {"thinking": thoughts} if thoughts else {}
        message |= {"tool_calls": calls} if calls else {}
        return {"model": self._model, "created_at": _now(), **self._content(message), "done": False}

    def _content(self, message: Event) -> Event:
        """Return the keys of a line with parts of a message."""
        return {"message": message}

    def _ending(self, items: Sequence[AnswerItem]) -> Event:
        end, (prompt, _, answer) = time.perf_counter_ns(), self._counts
        first = end if self._first is None else self._first
        return {
            **self._line(items), "done": True, "done_reason": "length" if self._reason == LENGTH else "stop",
            "total_duration": end - self._start, "load_duration": 0, "prompt_eval_count": prompt,
            "prompt_eval_duration": first - self._start, "eval_count": answer, "eval_duration": end - first,
        }  # fmt: skip

    def _begun(self, item: AnswerItem) -> list[Event]:
        return []

    def _added(self, item: AnswerItem, piece: str) -> list[Event]:
        return [] if item.kind == CALL or not piece else [self._line([AnswerItem(item.kind, item.id, pieces=[piece])])]

    def _ended(self, item: AnswerItem) -> list[Event]:
        return [self._line([item])] if item.kind == CALL else []


class OllamaTextWriter(OllamaWriter):
    """Writes the answer to a text."""

    def _content(self, message: Event) -> Event:
        return {"response": message["content"], **({"thinking": message["thinking"]} if "thinking" in message else {})}
