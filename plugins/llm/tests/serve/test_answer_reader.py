"""Answers with reasoning and calls of tools: what is read does not depend on where the text is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mirlo_llm.serve.answer_reader import MARKS, THINK, AnswerForm, AnswerReader, Part, ReadText, joined, read_answer
from mirlo_llm.serve.call_forms import Tool, ToolCall

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
TOOLS = {name: Tool(name, CITY) for name in ("weather", "news")}
CALL = ToolCall("weather", '{"city": "Bern", "days": 2}')
NEWS = ToolCall("news", '{"city": "Bern"}')
OBJECT = '{"name": "weather", "arguments": {"city": "Bern", "days": 2}}'
LLAMA = '{"name": "weather", "parameters": {"city": "Bern", "days": 2}}'
PYTHON = "[weather(city=\"Bern\", days=2), news(city='Bern')]"
TAGGED = "<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>"
KEYED = (
    "weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>"
)
ARGUMENTS = '{"city": "Bern", "days": 2}'
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
    + ARGUMENTS
    + "\n```<｜tool▁call▁end｜>"
    '<｜tool▁call▁begin｜>news<｜tool▁sep｜>{"city": "Bern"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
CALLS = {
    "Hermes, Qwen": (f"<tool_call>\n{OBJECT}\n</tool_call>", [CALL]),
    "two blocks": (f"<tool_call>{OBJECT}</tool_call>\n<tool_call>{OBJECT}</tool_call>", [CALL, CALL]),
    "a block that does not end": (f"<tool_call>\n{OBJECT}", [CALL]),
    "Qwen3-Coder": (f"<tool_call>\n{TAGGED}\n</tool_call>", [CALL]),
    "Qwen3-Coder without a block": (TAGGED, [CALL]),
    "GLM": (f"<tool_call>{KEYED}\n</tool_call>", [CALL]),
    "Granite": (f"<|tool_call|>[{OBJECT}]", [CALL]),
    "Granite 3.0": (f"<tool_call>[{OBJECT}]", [CALL]),
    "Mistral": (f"[TOOL_CALLS][{OBJECT}, {OBJECT}]", [CALL, CALL]),
    "Mistral with names": (
        f'[TOOL_CALLS]weather[ARGS]{ARGUMENTS}[TOOL_CALLS]news[ARGS]{{"city": "Bern"}}',
        [CALL, NEWS],
    ),
    "Mistral with numbers": (f"[TOOL_CALLS]weather[CALL_ID]a1b2[ARGS]{ARGUMENTS}", [CALL]),
    "Llama 3": (LLAMA, [CALL]),
    "Llama 3, two": (f"{LLAMA}; {LLAMA}", [CALL, CALL]),
    "Llama 3 with a mark": (f"<|python_tag|>{LLAMA}", [CALL]),
    "Llama 4, Python": (PYTHON, [CALL, NEWS]),
    "LFM2": (f"<|tool_call_start|>{PYTHON}<|tool_call_end|>", [CALL, NEWS]),
    "Phi-4": (f"<|tool_call|>[{OBJECT}]<|/tool_call|>", [CALL]),
    "Phi-4-mini": (f"functools[{OBJECT}]", [CALL]),
    "DeepSeek": (DEEPSEEK, [CALL, NEWS]),
    "a fence": (f"```json\n{OBJECT}\n```", [CALL]),
}
ALONE = ("Llama 3", "Llama 3, two", "Llama 4, Python", "a fence")
"""Forms of calls that are a whole answer."""
HARMONY = (
    "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
    f"<|constrain|>json<|message|>{ARGUMENTS}<|call|>"
)


def in_pieces(form: AnswerForm, text: str, cuts: list[int]) -> list[Part]:
    """Read a text that is cut at these places."""
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    reader, parts = AnswerReader(form), list[Part]()
    for begin, end in zip(places, places[1:], strict=False):
        parts += reader.feed(text[begin:end])
    return joined([*parts, *reader.finish()])


@pytest.mark.parametrize("name", CALLS)
def test_forms_of_calls(name: str) -> None:
    text, calls = CALLS[name]
    form = AnswerForm(TOOLS, think=THINK[0])
    assert read_answer(form, text) == calls
    assert read_answer(form, f"<think>\nI need it.\n</think>\n\n{text}") == [ReadText("I need it.", True), *calls]
    if name not in ALONE:
        assert read_answer(form, f"Let me see.\n\n{text}") == [ReadText("Let me see."), *calls]
    assert read_answer(AnswerForm({}), text) == [ReadText(text)]  # without tools there are no calls
    assert [in_pieces(form, text, [cut]) for cut in range(len(text))] == [calls] * len(text)
    assert in_pieces(form, text, list(range(len(text)))) == calls


@pytest.mark.parametrize("text", [text for text, _ in CALLS.values()])
def test_calls_of_other_tools_are_text(text: str) -> None:
    form = AnswerForm({"time": Tool("time", {})})
    assert read_answer(form, text) == [ReadText(text)]


def test_channels() -> None:
    form = AnswerForm(TOOLS, has_channels=True)
    assert read_answer(form, HARMONY) == [ReadText("Let me see.", True), CALL]
    final = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes, 2 < 3."
    assert read_answer(form, final) == [ReadText("Hm.", True), ReadText("Yes, 2 < 3.")]
    assert read_answer(form, "plain") == [ReadText("plain")]
    for text in (HARMONY, final):
        assert all(in_pieces(form, text, [cut]) == read_answer(form, text) for cut in range(len(text)))


def test_reasoning() -> None:
    for think in THINK:
        form = AnswerForm({}, think=think)
        assert read_answer(form, f"{think[0]}why{think[1]}\nso") == [ReadText("why", True), ReadText("so")]
        begun = AnswerForm({}, think=think, is_thinking=True)
        assert read_answer(begun, f"\nwhy\n{think[1]}\n\nso ") == [ReadText("why", True), ReadText("so ")]
        assert read_answer(begun, "why") == [ReadText("why", True)]
    assert read_answer(AnswerForm({}), " <think> a") == [ReadText(" <think> a")]


def test_text_in_arguments_ends_no_call() -> None:
    arguments = json.dumps({"city": '</tool_call> ``` " } [TOOL_CALLS]'})
    text = f'<tool_call>{{"name": "news", "arguments": {arguments}}}</tool_call>after'
    assert read_answer(AnswerForm(TOOLS), text) == [ToolCall("news", arguments), ReadText("after")]


PIECES = st.sampled_from(
    [
        *MARKS, OBJECT, LLAMA, PYTHON, TAGGED, KEYED, ARGUMENTS, "weather", "```json", "```", "\n", " ", "{", "}", "[",
        '"', "<", "text", "; ", "final", "analysis", "assistant", " to=functions.news ",
    ]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(PIECES | st.text("<>|[]{}`\"' \nab_ftool", max_size=4), max_size=12).map("".join),
    st.lists(st.integers(0, 1 << 16), max_size=12),
    st.sampled_from([None, *THINK]),
    st.booleans(),
    st.sampled_from(["tools", "none", "required", "channels"]),
)
def test_any_cut_gives_what_the_whole_gives(
    text: str, cuts: list[int], think: tuple[str, str] | None, is_thinking: bool, kind: str
) -> None:
    tools = {} if kind == "none" else TOOLS
    form = AnswerForm(tools, kind == "required", think, is_thinking, kind == "channels")
    whole = read_answer(form, text)
    assert in_pieces(form, text, cuts) == whole
    assert in_pieces(form, text, list(range(len(text)))) == whole
