"""Regular expressions: what ONNX Runtime, by RE2, makes of generated ones; and time that texts cannot stretch."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from expressions import draw_expression, draw_text
from onnx import TensorProto, helper

from mirlo.runtime.regex.automaton import Regex, pieces_of, tokens_of
from mirlo.runtime.regex.syntax import RegexError


def session_of(operator: str, domain: str = "", **attributes: object) -> onnxruntime.InferenceSession | None:
    """Return a session of ONNX Runtime for one operator on strings; None if it refuses the attributes."""
    node = helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)
    kind = TensorProto.BOOL if operator == "RegexFullMatch" else TensorProto.STRING
    x, y = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"]), helper.make_tensor_value_info("y", kind, None)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception:  # of an attribute
        return None


def regex_of(expression: str) -> Regex | None:
    try:
        return Regex(expression)
    except RegexError:
        return None


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(100))
def test_full_matches(seed: int) -> None:
    """The same expressions are right, and match the same texts."""
    generator = random.Random(seed)
    for _ in range(60):
        expression = draw_expression(generator)
        session, regex = session_of("RegexFullMatch", pattern=expression), regex_of(expression)
        assert (session is None) == (regex is None), expression
        if session is None or regex is None:
            continue
        texts = [draw_text(generator, expression) for _ in range(20)]
        expected = session.run(None, {"x": np.array(texts, object)})[0].tolist()
        assert [regex.matches(text) for text in texts] == expected, expression


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("kind", ["tokenexp", "separators"])
def test_tokens(seed: int, kind: str) -> None:
    """Matches in a text are the same, one after the other: the first, and of those at a place the longest."""
    generator = random.Random(seed)
    for _ in range(40):
        expression, least = draw_expression(generator), generator.randint(1, 3)
        if expression == ".":  # which ONNX Runtime takes for letters
            continue
        given: dict[str, object] = {kind: [expression] if kind == "separators" else expression}
        session = session_of("Tokenizer", "com.microsoft", mark=0, pad_value="#", mincharnum=least, **given)
        regex = regex_of(expression)
        assert (session is None) == (regex is None), expression
        find: Callable[[Regex, str, int], object] = pieces_of if kind == "separators" else tokens_of
        if session is None or regex is None or r"\B" in expression:
            continue
        for text in [draw_text(generator, expression) for _ in range(12)]:
            expected = session.run(None, {"x": np.array([text], object)})[0].tolist()[0]
            assert list(find(regex, text, least)) == expected, (expression, text, least)  # type: ignore[call-overload]


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["Greek", "Lu", "L", "M", "Han", "P", "Sc", "Zs", "Cf", "Latin", "Nd", "Common"])
def test_groups_of_unicode(name: str) -> None:
    """All characters, in both directions of case."""
    texts = [chr(code) for code in [*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE01F0)]]
    for expression in (rf"\p{{{name}}}", rf"(?i)\p{{{name}}}", rf"(?i)[^\p{{{name}}}b-s]"):
        session = session_of("RegexFullMatch", pattern=expression)
        assert session is not None
        expected, regex = session.run(None, {"x": np.array(texts, object)})[0].tolist(), Regex(expression)
        assert [text for text, matches in zip(texts, expected, strict=True) if regex.matches(text) != matches] == []


@pytest.mark.parametrize("code", [0, 0o1, 0o12, 0o21, 0o101, 0o117, 0o171, 0o177])
def test_characters_by_octal_numbers(code: int) -> None:
    expression = rf"\{code:03o}8"
    session, regex = session_of("RegexFullMatch", pattern=expression), Regex(expression)
    assert session is not None
    texts = [chr(code) + "8", chr(code // 8) + str(code % 8) + "8", chr(code)]
    assert [regex.matches(text) for text in texts] == session.run(None, {"x": np.array(texts, object)})[0].tolist()
    assert regex.matches(texts[0])


LONG = 50_000


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(a+)+b", "a" * LONG),
        ("(a|aa)*c", "a" * LONG),
        ("(.*)(.*)(.*)(.*)x", "a\u00e9" * (LONG // 2)),
        ("((a*)*)*b", "a" * LONG),
        ("(a|b)*a(a|b){12}", "".join(random.Random(0).choice("ab") for _ in range(LONG))),
        ("a|a.*b", "a" * LONG),
        (r"\b|.\b.*c", "ab " * (LONG // 3)),
        ("(x+x+)+y", "x" * LONG),
    ],
)
def test_time_is_linear(expression: str, text: str) -> None:
    """What takes other engines longer than anybody waits, and the square of the text's length, takes a moment here."""
    regex = Regex(expression)
    regex.matches(text)
    assert len("".join(tokens_of(regex, text, 1))) <= len(text)
    assert len("".join(pieces_of(regex, text, 1))) <= len(text)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(", "missing ')'"),
        (")", "unexpected ')'"),
        ("[a", "missing ]: [a"),
        ("a**", "bad repetition operator: **"),
        ("*a", "no argument for repetition operator: *"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(a{100}){11}", "invalid repetition size: {11}"),
        ("\\", "trailing"),
        (r"\1", r"invalid escape sequence: \1"),
        ("(?=a)", "invalid perl operator: (?="),
        ("(?<=a)", "invalid perl operator: (?<"),
        (r"\p{Klingon}", r"invalid character class range: \p{Klingon}"),
        ("[b-a]", "invalid character class range: b-a"),
        (r"\C", "not bytes"),
        ("(" * 200 + ")" * 200, "more than 100 groups in each other"),
        ("a" * 30_000, "pattern too large"),
    ],
)
def test_wrong_expressions(expression: str, message: str) -> None:
    with pytest.raises(RegexError, match=re.escape(message)):
        Regex(expression)
