"""OpenAI's Responses API, converted to and from chat completions; the server stores no responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirlo_llm.generate.request import LENGTH
from mirlo_llm.serve.answer_items import CALL, REASONING, AnswerItem, Event, ItemWriter
from mirlo_llm.serve.answer_reader import AnswerForm
from mirlo_llm.serve.body import BodyFields, fields_of
from mirlo_llm.serve.completions import new_name
from mirlo_llm.serve.engine_thread import AnswerJob
from mirlo_llm.serve.errors import RequestError, refused
from mirlo_llm.serve.generation_body import MAX_MESSAGES, GenerationBody, read_chat
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.tools import MAX_TOOLS

RESPONSE_KEYS = {
    "model", "input", "instructions", "max_output_tokens", "stream", "temperature", "top_p", "tools", "tool_choice",
    "text", "reasoning", "metadata", "store", "user", "parallel_tool_calls", "include", "truncation",
    "previous_response_id", "conversation", "background", "service_tier", "safety_identifier", "prompt_cache_key",
}  # fmt: skip
_KINDS = ("message", "function_call", "function_call_output", "reasoning")
_TEXTS = ("input_text", "output_text", "text")


def read_response_body(body: BodyFields, options: ServeOptions) -> GenerationBody:
    """Read the body of a Responses request."""
    for key in ("previous_response_id", "conversation"):
        if body.has(key):
            raise refused(key, "the server keeps no responses: give the whole conversation in 'input'")
    if body.flag("background"):
        raise refused("background", "the server keeps no responses: wait for the answer")
    messages: list[dict[str, Any]] = []
    if body.has("instructions"):
        messages.append({"role": "system", "content": body.text("instructions")})
    if isinstance(body.value("input"), str):
        messages.append({"role": "user", "content": body.value("input")})
    else:
        for i, each in enumerate(body.list("input", MAX_MESSAGES)):
            _add_item(messages, fields_of(each, f"input[{i}]"))
    chat: dict[str, object] = {"messages": messages, "max_completion_tokens": body.value("max_output_tokens")}
    for key in ("model", "stream", "temperature", "top_p"):
        chat[key] = body.value(key)
    if body.has("tools"):
        chat["tools"] = [_tool(fields_of(each, f"tools[{i}]")) for i, each in enumerate(body.list("tools", MAX_TOOLS))]
    choice = body.value("tool_choice")
    if isinstance(choice, dict):
        body.inner("tool_choice").choice("type", ("function",))
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    chat["tool_choice"] = choice
    if body.has("reasoning") and body.inner("reasoning").has("effort"):
        chat["reasoning_effort"] = body.inner("reasoning").value("effort")
    if body.has("text") and body.inner("text").has("format"):
        form = body.inner("text").inner("format")
        kind = form.choice("type", ("text", "json_object", "json_schema"))
        schema = {"json_schema": {"schema": form.mapping("schema")}} if kind == "json_schema" else {}
        chat["response_format"] = {"type": kind, **schema}
    return read_chat(BodyFields(chat), options)


def _tool(tool: BodyFields) -> dict[str, object]:
    tool.choice("type", ("function",))
    function = {key: tool.value(key) for key in ("name", "description", "parameters") if tool.has(key)}
    return {"type": "function", "function": function}


def _add_item(messages: list[dict[str, Any]], item: BodyFields) -> None:
    """Add an input item to a conversation; tool calls belong to the preceding message."""
    kind = item.choice("type", _KINDS, "message")
    if kind == "message":
        role = item.choice("role", ("system", "developer", "user", "assistant"))
        messages.append({"role": role, "content": _content(item)})
    elif kind == "function_call_output":
        output = item.value("output")
        text = output if isinstance(output, str) else _content(item, "output")
        messages.append({"role": "tool", "tool_call_id": item.text("call_id", ""), "content": text})
    elif kind == "function_call":
        function = {"name": item.text("name"), "arguments": item.text("arguments", "{}")}
        call = {"id": item.text("call_id", ""), "type": "function", "function": function}
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": "", "tool_calls": []})
        messages[-1].setdefault("tool_calls", []).append(call)


def _content(item: BodyFields, key: str = "content") -> str | list[object]:
    value = item.value(key)
    if isinstance(value, str):
        return value
    parts: list[object] = []
    for i, each in enumerate(item.list(key, MAX_MESSAGES)):
        part = fields_of(each, f"{item.name(key)}[{i}]")
        if part.choice("type", (*_TEXTS, "input_image")) == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": part.text("image_url")}})
        else:
            parts.append({"type": "text", "text": part.text("text")})
    return parts


class ResponseWriter(ItemWriter):
    """Writes an answer in the format of the Responses API."""

    def __init__(self, body: GenerationBody, job: AnswerJob, model: str, form: AnswerForm) -> None:
        super().__init__(body, job, model, form)
        self._id, self._events = new_name("resp"), 0

    def first(self) -> list[Event]:
        """Return the first events of a stream."""
        return [self._event(f"response.{kind}", response=self._response(None)) for kind in ("created", "in_progress")]

    def last(self) -> list[Event]:
        """Return the last events of a stream."""
        return [self._event(f"response.{self._status}", response=self.whole())]

    def whole(self) -> Event:
        """Return the whole answer."""
        return self._response(self._status)

    @property
    def _status(self) -> str:
        return "incomplete" if self._reason == LENGTH else "completed"

    def _response(self, status: str | None) -> Event:
        prompt, cached, answer = self._counts
        usage = {
            "input_tokens": prompt, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": answer,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": prompt + answer,
        }  # fmt: skip
        call, tools = self._body.call, self._body.tools
        return {
            "id": self._id, "object": "response", "created_at": self._created, "status": status or "in_progress",
            "error": None, "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None, "model": self._model, "max_output_tokens": call.max_tokens, "metadata": {},
            "output": [] if status is None else [_object(item, True) for item in self._items],
            "parallel_tool_calls": True, "previous_response_id": None, "store": False,
            "temperature": call.search.get("temperature"), "top_p": call.search.get("top_p"),
            "tool_choice": tools.mode, "truncation": "disabled", "usage": None if status is None else usage,
            "tools": [{"type": "function", "name": x.name, "parameters": x.parameters} for x in tools.tools],
        }  # fmt: skip

    def _event(self, kind: str, **values: object) -> Event:
        self._events += 1
        return {"type": kind, "sequence_number": self._events - 1, **values}

    def _item_event(self, kind: str, item: AnswerItem, **values: object) -> Event:
        return self._event(f"response.{kind}", item_id=item.id, output_index=len(self._items) - 1, **values)

    def _begun(self, item: AnswerItem) -> list[Event]:
        place = len(self._items) - 1
        empty = AnswerItem(item.kind, item.id, item.name)
        events = [self._event("response.output_item.added", output_index=place, item=_object(empty, False))]
        if item.kind != CALL:
            events.append(self._item_event("content_part.added", item, content_index=0, part=_part(empty)))
        return events

    def _added(self, item: AnswerItem, piece: str) -> list[Event]:
        return [self._item_event(f"{_NAMES[item.kind]}.delta", item, delta=piece, **_in_content(item))]

    def _ended(self, item: AnswerItem) -> list[Event]:
        key = "arguments" if item.kind == CALL else "text"
        events = [self._item_event(f"{_NAMES[item.kind]}.done", item, **{key: item.text}, **_in_content(item))]
        if item.kind != CALL:
            events.append(self._item_event("content_part.done", item, content_index=0, part=_part(item)))
        place = len(self._items) - 1
        return [*events, self._event("response.output_item.done", output_index=place, item=_object(item, True))]


def response_error(error: RequestError) -> dict[str, object]:
    """Return an error as an event of a stream."""
    return {"type": "error", "code": error.code, "message": error.message, "param": error.parameter}


_NAMES: Mapping[str, str] = {CALL: "function_call_arguments", REASONING: "reasoning_text", "text": "output_text"}
"""Event names by kind of item."""


def _in_content(item: AnswerItem) -> dict[str, object]:
    return {} if item.kind == CALL else {"content_index": 0}


def _part(item: AnswerItem) -> Event:
    if item.kind == REASONING:
        return {"type": "reasoning_text", "text": item.text}
    return {"type": "output_text", "text": item.text, "annotations": [], "logprobs": []}


def _object(item: AnswerItem, is_done: bool) -> Event:
    """Return an output item."""
    status = {"id": item.id, "status": "completed" if is_done else "in_progress"}
    if item.kind == CALL:
        return {**status, "type": "function_call", "call_id": item.id, "name": item.name, "arguments": item.text}
    content = [_part(item)] if is_done else []
    if item.kind == REASONING:
        return {**status, "type": "reasoning", "summary": [], "content": content}
    return {**status, "type": "message", "role": "assistant", "content": content}
