"""The tools of a request, and conversations with tool calls."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mirlo_llm.serve.body import BodyFields, fields_of
from mirlo_llm.serve.call_forms import Tool
from mirlo_llm.serve.errors import refused

MAX_TOOLS = 128
MAX_PIECE = 1 << 20
"""Base64 characters that are decoded at once; a multiple of 4."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class ToolChoice:
    """The tools of a request, and whether one must be called."""

    tools: tuple[Tool, ...] = ()
    mode: str = "none"
    """"none", "auto" or "required"."""

    @property
    def schema(self) -> dict[str, object] | None:
        """Return the schema of an answer that must call a tool; None if it need not."""
        if self.mode != "required":
            return None
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": tool.parameters},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for tool in self.tools
        ]
        # Without white space, which a model could write until the answer is as long as it may be.
        return {"x-guidance": {"whitespace_flexible": False}, **(calls[0] if len(calls) == 1 else {"anyOf": calls})}


def read_tools(body: BodyFields) -> tuple[ToolChoice, list[object]]:
    """Return the tools of a request, and the list that the chat template gets."""
    listed = body.list("tools", MAX_TOOLS) if body.has("tools") else []
    tools = [_read_tool(fields_of(each, f"tools[{i}]")) for i, each in enumerate(listed)]
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise refused("tools", "two tools have the same name")
    choice = body.value("tool_choice")
    if choice is None:
        return ToolChoice(tuple(tools), "auto" if tools else "none"), list(listed)
    if isinstance(choice, str):
        mode = body.choice("tool_choice", ("none", "auto", "required"))
        if mode == "required" and not tools:
            raise refused("tool_choice", "there are no tools")
        if mode == "none" or not tools:
            return ToolChoice(), []
        return ToolChoice(tuple(tools), mode), list(listed)
    wanted = body.inner("tool_choice").inner("function").text("name")
    chosen = tuple(tool for tool in tools if tool.name == wanted)
    if not chosen:
        raise refused("tool_choice", f"no tool is named {wanted[:60]!a}")
    return ToolChoice(chosen, "required"), list(listed)


def _read_tool(tool: BodyFields) -> Tool:
    tool.choice("type", ("function",), "function")
    function = tool.inner("function")
    name = function.text("name")
    if not _NAME.fullmatch(name):
        raise refused(function.name("name"), "expected up to 64 letters, digits, '_', '-' and '.'")
    function.text("description", "")
    empty: dict[str, object] = {"type": "object", "properties": {}}
    return Tool(name, function.mapping("parameters") if function.has("parameters") else empty)


def template_messages(messages: Sequence[object]) -> list[dict[str, object]]:
    """Check a conversation, and convert it for chat templates."""
    return [_message(fields_of(each, f"messages[{i}]")) for i, each in enumerate(messages)]


_ROLES = ("system", "developer", "user", "assistant", "tool")


def _message(message: BodyFields) -> dict[str, object]:
    role = message.choice("role", _ROLES)
    result: dict[str, object] = {"role": "system" if role == "developer" else role, "content": _content(message)}
    if role == "assistant" and message.has("tool_calls"):
        calls = message.list("tool_calls", MAX_TOOLS)
        result["tool_calls"] = [
            _past_call(fields_of(each, f"{message.name('tool_calls')}[{i}]")) for i, each in enumerate(calls)
        ]
    elif not message.has("content"):
        raise message.fail("content", "a text or an array of parts")
    for key in ("name", "tool_call_id"):
        if message.has(key):
            result[key] = message.text(key, most=256)
    if role == "assistant" and message.has("reasoning_content"):
        result["reasoning_content"] = message.text("reasoning_content")
    return result


def _content(message: BodyFields) -> str | list[object]:
    """Return the content of a message: a text, or a list of parts if it has images."""
    value = message.value("content")
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise message.fail("content", "a text or an array of parts")
    parts = list[object]()
    for i, each in enumerate(value):
        part = fields_of(each, f"{message.name('content')}[{i}]")
        kind = part.text("type")
        if kind == "image_url":
            parts.append({"type": "image", "image": _image(part)})
        elif kind in ("text", "refusal"):
            parts.append({"type": "text", "text": part.text(kind)})
        else:
            raise refused(part.name("type"), f"the model takes text and images only, found {kind[:40]!a}")
    texts = [part["text"] for part in parts if isinstance(part, dict) and part["type"] == "text"]
    return "".join(texts) if len(texts) == len(parts) else parts


def _image(part: BodyFields) -> bytes:
    """Return the image file in a data URL; other addresses are refused."""
    field = part.inner("image_url")
    kind, _, data = field.text("url").partition(",")
    if not re.fullmatch(r"data:image/[\w.+-]{1,32};base64", kind[:60]) or not data:
        what = "expected data:image/TYPE;base64,DATA, as the server fetches no images from other addresses"
        raise refused(field.name("url"), what)
    try:  # in pieces, as each holds Python's lock
        pieces = [data[at : at + MAX_PIECE] for at in range(0, len(data), MAX_PIECE)]
        if any("=" in piece for piece in pieces[:-1]):
            raise ValueError("there is an end in the middle")
        return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except ValueError as error:
        raise refused(field.name("url"), f"the data are no base64: {error}") from None


def _past_call(call: BodyFields) -> dict[str, object]:
    function = call.inner("function")
    text = function.text("arguments", "{}")
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = text
    return {
        "id": call.text("id", ""),
        "type": "function",
        "function": {"name": function.text("name"), "arguments": arguments},
    }
