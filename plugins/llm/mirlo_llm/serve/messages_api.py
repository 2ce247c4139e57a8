"""Anthropic's Messages API, converted to and from chat completions."""

from __future__ import annotations

import json

from mirlo_llm.generate.request import LENGTH, STOP
from mirlo_llm.serve.answer_items import CALL, REASONING, TEXT, AnswerItem, Event, ItemWriter
from mirlo_llm.serve.body import BodyFields, fields_of
from mirlo_llm.serve.completions import new_name
from mirlo_llm.serve.errors import refused
from mirlo_llm.serve.generation_body import MAX_MESSAGES, GenerationBody, read_chat
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.tools import MAX_TOOLS

MESSAGE_KEYS = {
    "model", "messages", "max_tokens", "system", "stop_sequences", "stream", "temperature", "top_p", "top_k", "tools",
    "tool_choice", "metadata", "thinking", "service_tier",
}  # fmt: skip
COUNT_KEYS = MESSAGE_KEYS - {"max_tokens", "stop_sequences", "stream", "temperature", "top_p", "top_k", "service_tier"}
MAX_PARTS = 4096
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read_message_body(body: BodyFields, options: ServeOptions) -> GenerationBody:
    """Read the body of a Messages request."""
    if not body.has("max_tokens"):
        raise body.fail("max_tokens", "an integer")
    return read_chat(BodyFields(chat_of_messages(body)), options)


def chat_of_messages(body: BodyFields) -> dict[str, object]:
    """Convert a body to that of a chat completion."""
    messages: list[object] = []
    if body.has("system"):
        messages.append({"role": "system", "content": _plain_text(body, "system")})
    for i, each in enumerate(body.list("messages", MAX_MESSAGES)):
        messages += _messages_of(fields_of(each, f"messages[{i}]"))
    chat: dict[str, object] = {"messages": messages, "stop": body.value("stop_sequences")}
    for key in ("model", "max_tokens", "stream", "temperature", "top_p", "top_k"):
        chat[key] = body.value(key)
    if body.has("tools"):
        chat["tools"] = [_tool(fields_of(each, f"tools[{i}]")) for i, each in enumerate(body.list("tools", MAX_TOOLS))]
    if body.has("tool_choice"):
        choice = body.inner("tool_choice")
        kind = choice.choice("type", (*_CHOICES, "tool"))
        named = {"type": "function", "function": {"name": choice.value("name")}}
        chat["tool_choice"] = named if kind == "tool" else _CHOICES[kind]
    if body.has("thinking"):
        is_on = body.inner("thinking").choice("type", ("enabled", "disabled", "adaptive")) != "disabled"
        chat["chat_template_kwargs"] = {"enable_thinking": is_on}
    return chat


def _tool(tool: BodyFields) -> dict[str, object]:
    if tool.text("type", "custom") != "custom":
        raise refused(tool.name("type"), "the server runs no tools: expected one with 'input_schema'")
    function = {"name": tool.value("name"), "parameters": tool.value("input_schema")}
    return {"type": "function", "function": {**function, "description": tool.text("description", "")}}


def _plain_text(body: BodyFields, key: str) -> str:
    """Return a text, or the concatenated texts of blocks."""
    value = body.value(key)
    if isinstance(value, str):
        return value
    blocks = [fields_of(each, f"{body.name(key)}[{i}]") for i, each in enumerate(body.list(key, MAX_PARTS))]
    for block in blocks:
        block.choice("type", ("text",))
    return "\n".join(block.text("text") for block in blocks)


def _messages_of(message: BodyFields) -> list[object]:
    """Convert a message; tool results become separate messages."""
    role = message.choice("role", ("user", "assistant", "system"))
    if isinstance(message.value("content"), str):
        return [{"role": role, "content": message.value("content")}]
    results: list[object] = []
    parts: list[object] = []
    calls: list[object] = []
    thoughts: list[str] = []
    for i, each in enumerate(message.list("content", MAX_PARTS)):
        block = fields_of(each, f"{message.name('content')}[{i}]")
        kind = block.choice("type", ("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"))
        if kind == "text":
            parts.append({"type": "text", "text": block.text("text")})
        elif kind == "image":
            source = block.inner("source")
            source.choice("type", ("base64",))
            url = f"data:{source.text('media_type', most=64)};base64,{source.text('data')}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
        elif kind == "tool_use":
            function = {"name": block.text("name"), "arguments": json.dumps(block.mapping("input"))}
            calls.append({"id": block.text("id", ""), "type": "function", "function": function})
        elif kind == "tool_result":
            text = _plain_text(block, "content") if block.has("content") else ""
            results.append({"role": "tool", "tool_call_id": block.text("tool_use_id", ""), "content": text})
        elif kind == "thinking":
            thoughts.append(block.text("thinking"))
    own: dict[str, object] = {"role": role, "content": parts}
    if calls:
        own["tool_calls"] = calls
    if thoughts:
        own["reasoning_content"] = "\n".join(thoughts)
    return [*results, *([own] if parts or calls or thoughts or not results else [])]


class MessageWriter(ItemWriter):
    """Writes an answer in the format of the Messages API."""

    def first(self) -> list[Event]:
        """Return the first events of a stream."""
        return [{"type": "message_start", "message": self._message([], None)}]

    def last(self) -> list[Event]:
        """Return the last events of a stream."""
        delta = {"stop_reason": self._stop_reason, "stop_sequence": None}
        return [{"type": "message_delta", "delta": delta, "usage": self._usage}, {"type": "message_stop"}]

    def whole(self) -> Event:
        """Return the whole answer."""
        return self._message([_block(item) for item in self._items], self._stop_reason)

    def _message(self, content: list[Event], reason: str | None) -> Event:
        return {
            "id": new_name("msg"), "type": "message", "role": "assistant", "model": self._model, "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": self._usage,
        }  # fmt: skip

    @property
    def _stop_reason(self) -> str:
        if self._reason == LENGTH:
            return "max_tokens"
        return "tool_use" if self._has_calls else "stop_sequence" if self._reason == STOP else "end_turn"

    @property
    def _usage(self) -> Event:
        prompt, cached, answer = self._counts
        counts = {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
        return {**counts, "output_tokens": answer}

    @property
    def _place(self) -> Event:
        return {"index": len(self._items) - 1}

    def _begun(self, item: AnswerItem) -> list[Event]:
        block = _block(AnswerItem(item.kind, item.id, item.name, ["{}"] if item.kind == CALL else []))
        return [{"type": "content_block_start", **self._place, "content_block": block}]

    def _added(self, item: AnswerItem, piece: str) -> list[Event]:
        kinds = {TEXT: ("text_delta", "text"), REASONING: ("thinking_delta", "thinking")}
        kind, key = kinds.get(item.kind, ("input_json_delta", "partial_json"))
        return [{"type": "content_block_delta", **self._place, "delta": {"type": kind, key: piece}}]

    def _ended(self, item: AnswerItem) -> list[Event]:
        return [{"type": "content_block_stop", **self._place}]


def _block(item: AnswerItem) -> Event:
    """Return an item as a block of the content."""
    if item.kind == CALL:
        return {"type": "tool_use", "id": item.id, "name": item.name, "input": json.loads(item.text)}
    if item.kind == REASONING:
        return {"type": "thinking", "thinking": item.text, "signature": ""}
    return {"type": "text", "text": item.text}
