"""Formats of tool calls: their delimiters and contents."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """A function that the client offers."""

    name: str
    parameters: Mapping[str, object]
    """A JSON schema of its arguments."""


@dataclass(frozen=True)
class ToolCall:
    """A tool call of a model."""

    name: str
    arguments: str
    """JSON."""


Tools = Mapping[str, Tool]
"""Tools by name."""
Parser = Callable[[str, Tools], "list[ToolCall] | None"]
"""Parses a text as calls; returns None for other text."""


@dataclass(frozen=True)
class CallForm:
    """A format of calls in an answer."""

    begin: str
    end: str
    """The closing delimiter; empty for the end of the answer, or the next `begin`."""
    parse: Parser
    is_closed_by_json: bool = True
    """Whether JSON calls end with their value, even if `end` is missing or occurs in a string."""


def call_of(value: object, tools: Tools) -> ToolCall | None:
    """Return the call in a JSON object."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    call = inner if isinstance(inner, dict) else value
    name = call.get("name", inner if isinstance(inner, str) else None)
    arguments = call.get("arguments", call.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _json(arguments)
    if not isinstance(name, str) or name not in tools or not isinstance(arguments, dict):
        return None
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def _json(text: str) -> object:
    """Return the value of JSON text; other text is returned unchanged."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def parse_json_calls(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse one or several objects or arrays, which `;` and `,` may separate."""
    result, rest, decoder = list[ToolCall](), text.strip(), json.JSONDecoder()
    while rest:
        try:
            value, at = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        for each in value if isinstance(value, list) else [value]:
            call = call_of(each, tools)
            if call is None:
                return None
            result.append(call)
        rest = re.sub(r"^\s*[;,]?\s*", "", rest[at:])
    return result or None


def parse_python_calls(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse a list of Python calls with named constants: `[weather(city="Bern"), time()]`."""
    text = text.strip()
    try:
        tree = ast.parse(text if text.startswith("[") else f"[{text}]", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(tree, ast.List) or not tree.elts:
        return None
    result = []
    for each in tree.elts:
        if not isinstance(each, ast.Call) or each.args:
            return None
        name = ast.unparse(each.func)
        try:
            arguments = {str(item.arg): ast.literal_eval(item.value) for item in each.keywords if item.arg}
            written = json.dumps(arguments, ensure_ascii=False)
        except (ValueError, TypeError, RecursionError):
            return None
        if name not in tools or len(arguments) < len(each.keywords):
            return None
        result.append(ToolCall(name, written))
    return result


def _value_of(text: str, tool: Tool, key: str) -> object:
    """Convert a text to an argument of the type that the tool declares."""
    properties = tool.parameters.get("properties")
    declared = properties.get(key) if isinstance(properties, dict) else None
    kind = declared.get("type") if isinstance(declared, dict) else None
    return text if kind == "string" else _json(text.strip())


_FUNCTION = re.compile(r"<function=([^>\n]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)(?:\n?</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_KEYS = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def parse_tagged_calls(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse functions and parameters in tags, the format of Qwen3-Coder."""
    result = []
    for name, body in _FUNCTION.findall(text):
        tool = tools.get(name.strip())
        if tool is None:
            return None
        arguments = {key.strip(): _value_of(value, tool, key.strip()) for key, value in _PARAMETER.findall(body)}
        result.append(ToolCall(tool.name, json.dumps(arguments, ensure_ascii=False)))
    return result or None


def _parse_keyed_calls(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse a name and pairs of keys and values in tags, the format of GLM."""
    name = re.split(r"<arg_key>|\n", text.strip(), maxsplit=1)[0].strip()
    tool = tools.get(name)
    if tool is None:
        return None
    arguments = {key.strip(): _value_of(value, tool, key.strip()) for key, value in _KEYS.findall(text)}
    return [ToolCall(tool.name, json.dumps(arguments, ensure_ascii=False))]


def parse_block(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse the text between `<tool_call>` and its end: JSON, or tags."""
    start = text.lstrip()
    if start.startswith(("{", "[")):
        return parse_json_calls(text, tools)
    return parse_tagged_calls(text, tools) if start.startswith("<function=") else _parse_keyed_calls(text, tools)


_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:\[ARGS\])?\s*(?=\{)")


def parse_mistral_calls(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse an array of objects, or names that are followed by arguments."""
    if text.lstrip().startswith(("[", "{")):
        return parse_json_calls(text, tools)
    result, rest, decoder = list[ToolCall](), text, json.JSONDecoder()
    while rest.strip():
        match = _NAMED.match(rest)
        if match is None:
            return None
        try:
            value, at = decoder.raw_decode(rest, match.end())
        except (ValueError, RecursionError):
            return None
        call = call_of({"name": match[1], "arguments": value}, tools)
        if call is None:
            return None
        result.append(call)
        rest = rest[at:]
    return result or None


_DEEPSEEK = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w.-]+)(?:<｜tool▁sep｜>)?\s*(?:```json)?\s*(\{.*?)\s*(?:```)?\s*"
    r"(?:<｜tool▁call▁end｜>|\Z)",
    re.DOTALL,
)


DEEPSEEK_MARKS = ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")


def parse_deepseek_calls(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse calls between special tokens, with arguments in a code fence or without."""
    found = [call_of({"name": name, "arguments": body.strip()}, tools) for name, body in _DEEPSEEK.findall(text)]
    calls = [call for call in found if call is not None]
    return calls if calls and len(calls) == len(found) else None


def parse_python_or_json(text: str, tools: Tools) -> list[ToolCall] | None:
    """Parse calls as JSON or as Python."""
    return parse_json_calls(text, tools) or parse_python_calls(text, tools)


FORMS = (
    CallForm("<tool_call>", "</tool_call>", parse_block),
    CallForm("<function=", "</function>", lambda text, tools: parse_tagged_calls(f"<function={text}", tools)),
    CallForm("[TOOL_CALLS]", "", parse_mistral_calls),
    CallForm("<|python_tag|>", "", parse_python_or_json, is_closed_by_json=False),
    CallForm("<|tool_call_start|>", "<|tool_call_end|>", parse_python_or_json),
    CallForm("<|tool_call|>", "<|/tool_call|>", parse_json_calls),
    CallForm("functools[", "", lambda text, tools: parse_json_calls(f"[{text}", tools), is_closed_by_json=False),
    CallForm("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", parse_deepseek_calls),
)
"""Formats of Hermes, Qwen, GLM and Granite; Qwen3-Coder without blocks; Mistral; Llama 3; LFM2; Granite and Phi-4;
Phi-4-mini; DeepSeek."""
BARE = CallForm("", "", parse_python_or_json, is_closed_by_json=False)
"""Calls that are a whole answer: those of Llama 3, and those of answers that must call a tool."""
FENCE = CallForm("```json", "```", parse_json_calls)
"""JSON in a code fence that is a whole answer."""
