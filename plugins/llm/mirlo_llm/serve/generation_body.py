"""The bodies of chat and text completions of OpenAI's API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from mirlo_llm.generate.guidance import FORMS
from mirlo_llm.generate.json_file import is_count, is_number
from mirlo_llm.generate.request import TokenRules
from mirlo_llm.serve.answer_reader import MARKS
from mirlo_llm.serve.body import BodyFields
from mirlo_llm.serve.errors import refused
from mirlo_llm.serve.language import GenerationCall
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.tools import ToolChoice, read_tools, template_messages

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
"""Levels of reasoning effort, for templates that use them."""
MAX_MESSAGES = 4096
MAX_TOKENS = 1 << 30
"""Largest accepted number of tokens; the server generates as many as `max_tokens` and the context allow."""
MAX_STOPS, MAX_STOP = 16, 1024
MAX_BIAS, MAX_BIASES, MAX_DIGITS = 100, 1024, 9
"""Limits of `logit_bias`: absolute value, number of entries, digits of a token."""
MAX_FORM, MAX_CHOICES = 1 << 16, 1024
"""Limits of constraints: characters, and number of choices."""
STRUCTURED = ("json", "regex", "choice", "grammar", "json_object")
"""Keys of `structured_outputs`."""
_COMMON = {
    "model", "n", "stream", "stream_options", "stop", "seed", "temperature", "top_p", "top_k", "min_p",
    "repetition_penalty", "frequency_penalty", "presence_penalty", "max_tokens", "logprobs", "logit_bias", "user",
    "regex", "lark", "grammar", "structured_outputs", "stop_token_ids", "ignore_eos",
}  # fmt: skip
CHAT_KEYS = _COMMON | {
    "messages", "max_completion_tokens", "top_logprobs", "response_format", "tools", "tool_choice",
    "parallel_tool_calls", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "modalities",
    "chat_template_kwargs", "reasoning_effort",
}  # fmt: skip
TEXT_KEYS = _COMMON | {"prompt", "echo", "suffix", "best_of", "prompt_logprobs"}


@dataclass(frozen=True)
class GenerationBody:
    """A parsed body."""

    call: GenerationCall
    is_chat: bool
    has_usage: bool
    """Whether a stream ends with the token counts."""
    tools: ToolChoice
    echo: bool = False
    """Whether answers repeat the prompts."""
    has_prompt_logprobs: bool = False
    """Whether answers contain the probabilities of prompt tokens separately."""


def read_chat(body: BodyFields, options: ServeOptions) -> GenerationBody:
    """Read the body of a chat completion."""
    messages = template_messages(body.list("messages", MAX_MESSAGES))
    if not messages:
        raise refused("messages", "there are no messages")
    if body.has("modalities") and body.value("modalities") != ["text"]:
        raise refused("modalities", "the model answers with text only")
    tools, shown = read_tools(body)
    template = dict(body.mapping("chat_template_kwargs")) if body.has("chat_template_kwargs") else {}
    if not template.keys().isdisjoint({"messages", "add_generation_prompt", "bos_token", "eos_token", "tools"}):
        raise refused("chat_template_kwargs", "it may not replace messages, tools and special tokens")
    if body.has("reasoning_effort"):
        effort = body.choice("reasoning_effort", EFFORTS)
        template = {"reasoning_effort": effort, "enable_thinking": effort != "none", **template}
    if shown:
        template["tools"] = shown
    form = _response_form(body)
    schema = tools.schema
    if schema is not None:
        if form:
            raise refused("response_format", "an answer that must call a tool has the form of that call")
        form = {"json_schema": schema}
    logprobs = None
    if body.flag("logprobs"):
        logprobs = body.count("top_logprobs", 0, 20, 0)
    elif body.has("top_logprobs"):
        raise refused("top_logprobs", 'it needs "logprobs": true')
    most = body.count("max_completion_tokens", 1, MAX_TOKENS)
    call = _call(body, options, most, messages=messages, template=template, form=form, logprobs=logprobs, kept=MARKS)
    return GenerationBody(call, True, _has_usage(body), tools)


def read_completion(body: BodyFields, options: ServeOptions) -> GenerationBody:
    """Read the body of a text completion."""
    prompts = _prompts(body, options)
    if body.has("suffix"):
        raise refused("suffix", "the model continues texts only")
    best = body.count("best_of", 1, options.max_choices)
    if best is not None and best != body.count("n", 1, options.max_choices, 1):
        raise refused("best_of", "expected the same as 'n': answers are not compared")
    logprobs = body.count("logprobs", 0, 20)
    of_prompt, echo = body.count("prompt_logprobs", 0, 20), body.flag("echo")
    if of_prompt is not None and body.flag("stream"):
        raise refused("prompt_logprobs", 'a stream has none: use "echo" with "logprobs"')
    most = max((each for each in (logprobs if echo else None, of_prompt) if each is not None), default=None)
    call = _call(body, options, 16, prompts=prompts, form=_form(body), logprobs=logprobs, prompt_logprobs=most)
    return GenerationBody(call, False, _has_usage(body), ToolChoice(), echo, of_prompt is not None)


def _call(body: BodyFields, options: ServeOptions, most: int | None, **parts: Any) -> GenerationCall:
    count = body.count("n", 1, options.max_choices, 1)
    assert count is not None
    least = 0 if "prompts" in parts else 1  # without an answer there are the tokens of the prompt
    asked = body.count("max_tokens", least, MAX_TOKENS, most)
    call = GenerationCall(
        count=count,
        max_tokens=None if asked is None else min(asked, options.max_tokens),
        stop=_stops(body),
        search=_search(body),
        seed=body.count("seed", -(1 << 63), (1 << 63) - 1),
        is_streamed=body.flag("stream"),
        rules=_rules(body),
        **parts,
    )
    if call.answers > options.max_choices:
        raise refused("n", f"a request has up to {options.max_choices} answers, found {call.answers}")
    return call


def _rules(body: BodyFields) -> TokenRules:
    """Return the rules for single tokens."""
    bias: dict[int, float] = {}
    for key, value in (body.mapping("logit_bias") if body.has("logit_bias") else {}).items():
        if len(key) > MAX_DIGITS or not key.isdecimal() or not is_number(value) or abs(value) > MAX_BIAS:
            raise refused(
                "logit_bias", f"expected numbers from -{MAX_BIAS} to {MAX_BIAS} by tokens, found {key[:20]!a}"
            )
        bias[int(key)] = float(value)
    if len(bias) > MAX_BIASES:
        raise refused("logit_bias", f"expected up to {MAX_BIASES} tokens, found {len(bias)}")
    ends = body.list("stop_token_ids", MAX_STOPS) if body.has("stop_token_ids") else []
    if ends and not is_tokens(ends):
        raise body.fail("stop_token_ids", "an array of tokens")
    return TokenRules(bias, tuple(each for each in ends if isinstance(each, int)), body.flag("ignore_eos"))


def _search(body: BodyFields) -> dict[str, object]:
    """Return the search options in a body."""
    fields = {
        "temperature": body.number("temperature", 0, 2),
        "top_p": body.number("top_p", 0, 1),
        "min_p": body.number("min_p", 0, 1),
        "top_k": body.count("top_k", 0, 1 << 30),
        "repetition_penalty": body.number("repetition_penalty", 0.01, 100),
        "frequency_penalty": body.number("frequency_penalty", -2, 2),
        "presence_penalty": body.number("presence_penalty", -2, 2),
    }
    search: dict[str, object] = {name: value for name, value in fields.items() if value is not None}
    if search.get("top_p") == 0:  # the most probable token
        del search["top_p"]
        search["temperature"] = 0.0
    if "temperature" in search:
        search["do_sample"] = search["temperature"] != 0
    elif not search.keys().isdisjoint({"top_p", "min_p", "top_k"}):
        search["do_sample"] = True
    return search


def _stops(body: BodyFields) -> tuple[str, ...]:
    if not body.has("stop"):
        return ()
    value = body.value("stop")
    stops = [value] if isinstance(value, str) else body.list("stop", MAX_STOPS)
    if not all(isinstance(stop, str) and 0 < len(stop) <= MAX_STOP for stop in stops):
        raise refused("stop", f"expected texts of 1 to {MAX_STOP} characters")
    return tuple(str(stop) for stop in stops)


def _has_usage(body: BodyFields) -> bool:
    if not body.has("stream_options"):
        return False
    if not body.flag("stream"):
        raise refused("stream_options", 'it needs "stream": true')
    return body.inner("stream_options").flag("include_usage")


def _form(body: BodyFields) -> dict[str, object]:
    """Return the constraint on answers from keys outside of OpenAI's API."""
    forms: dict[str, object] = {
        key: body.text(key, most=MAX_FORM) for key in FORMS if key != "json_schema" and body.has(key)
    }
    if not body.has("structured_outputs"):
        return forms
    if forms:
        raise refused("structured_outputs", f"an answer has one form, found {' and '.join(forms)} too")
    return _structured(body.inner("structured_outputs"))


def _structured(form: BodyFields) -> dict[str, object]:
    """Return the constraint on answers in vLLM's format: one of several keys."""
    (key, *others) = [each for each in STRUCTURED if form.has(each)] or [""]
    if not key or others:
        raise refused(form.name(""), f"expected one of {', '.join(STRUCTURED)}")
    if key == "choice":
        texts = form.list(key, MAX_CHOICES)
        if not texts or not all(isinstance(each, str) for each in texts):
            raise form.fail(key, "an array of texts")
        return {"regex": "|".join(re.escape(str(each)) for each in texts)}
    if key == "json_object":
        return {"json_schema": {"type": "object"}} if form.flag(key) else {}
    if key == "json":
        value = form.value(key)
        return {"json_schema": value if isinstance(value, str) else form.mapping(key)}
    return {key: form.text(key, most=MAX_FORM)}


def _response_form(body: BodyFields) -> Mapping[str, object]:
    form = _form(body)
    if not body.has("response_format"):
        return form
    response_format = body.inner("response_format")
    kind = response_format.choice("type", ("text", "json_object", "json_schema"))
    if kind == "text":
        return form
    if form:
        raise refused("response_format", f"an answer has one form, found {' and '.join(form)} too")
    if kind == "json_object":
        return {"json_schema": {"type": "object"}}
    schema = response_format.inner("json_schema")
    return {"json_schema": schema.mapping("schema")}


def _prompts(body: BodyFields, options: ServeOptions) -> list[str | list[int]]:
    prompts = read_texts(body, "prompt", options.max_body)
    if not prompts:
        raise refused("prompt", "there is no prompt")
    if len(prompts) > options.max_choices:
        raise refused("prompt", f"a request has up to {options.max_choices} answers, found {len(prompts)} prompts")
    return prompts


def read_texts(body: BodyFields, key: str, most: int, takes_tokens: bool = True) -> list[str | list[int]]:
    """Return one or several texts, each as text or as tokens, where these are taken; an array has `most` elements."""
    value = body.value(key)
    if isinstance(value, str):
        return [value]
    listed = body.list(key, most)
    if takes_tokens and is_tokens(listed):
        return [listed]
    texts: list[str | list[int]] = []
    for each in listed:
        if isinstance(each, str) or (takes_tokens and is_tokens(each)):
            texts.append(each)
        else:
            what = "a text, tokens, or an array of them" if takes_tokens else "a text, or an array of texts"
            raise refused(key, f"expected {what}")
    return texts


def is_tokens(value: object) -> TypeGuard[list[int]]:
    """Return whether a value is an array of tokens."""
    return isinstance(value, list) and bool(value) and all(is_count(token, 0, 1 << 31) for token in value)
