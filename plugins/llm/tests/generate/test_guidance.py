"""Answers of a given form: JSON of a schema, texts that match a regular expression, sentences of a grammar."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import example, write_genai
from hostile_forms import draw
from mirlo_llm import generate
from mirlo_llm.generate import GenerationError, LanguageModel, ModelFolderError
from mirlo_llm.generate.errors import FormError
from mirlo_llm.generate.references import lark_chain, longest_chain, schema_chain

from mirlo.testing.commands import output_of, run_command

pytest.importorskip("tokenizers")
pytest.importorskip("llguidance")

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["fox", "dog"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},  # random tokens would be spaces without end
}
SEARCHES: tuple[dict[str, Any], ...] = (
    {}, {"do_sample": True, "temperature": 3.0, "seed": 1}, {"lookup": 3}, {"repetition_penalty": 1.2},
    {"do_sample": True, "top_k": 3, "seed": 2},
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return generate.load(example().write(tmp_path_factory.mktemp("tiny")))


@pytest.mark.sample(0)
@pytest.mark.parametrize("search", SEARCHES)
def test_forms(model: LanguageModel, search: dict[str, Any]) -> None:
    for prompt in ("the lazy dog", "{"):
        generator = model.generator(json_schema=SCHEMA, max_new_tokens=60, **search)
        found = json.loads("".join(generator.stream(prompt)))
        assert found["name"] in ("fox", "dog") and 1 <= found["age"] <= 99 and len(found) == 2
        assert generator.tokens[-1] in model.config.ends
        pattern = r"(fox|dog) jumps [0-9]{3}( times)?"
        text = "".join(model.generator(regex=pattern, max_new_tokens=40, **search).stream(prompt))
        assert re.fullmatch(pattern, text)
        grammar = 'start: "the " WORD (" and " WORD)? "!"\nWORD: /[a-c]{2}/'
        text = "".join(model.generator(lark=grammar, max_new_tokens=40, **search).stream(prompt))
        assert re.fullmatch(r"the [a-c]{2}( and [a-c]{2})?!", text)


GBNF = (
    ('root ::= "the " word (" and " word)? "!"\nword ::= [a-c]{2}', r"the [a-c]{2}( and [a-c]{2})?!"),
    ('# a comment\nroot ::= start-word\nstart-word ::= "x" | [0-9] [0-9]', r"x|[0-9]{2}"),
    ('root ::= "\\"" [^"\\\\]{1,3} "\\"" "\\n"', r'"[^"\\]{1,3}"\n'),
    ('start: "a" /[xy]{2}/', r"a[xy]{2}"),  # Lark's syntax
    ('root ::= (\n  "a" |\n  "b" item\n) "c"\nitem ::= "d"{2,3}', r"(a|bd{2,3})c"),
)


@pytest.mark.parametrize(("grammar", "pattern"), GBNF)
def test_grammars_of_llama_cpp(model: LanguageModel, grammar: str, pattern: str) -> None:
    for search in ({}, {"do_sample": True, "seed": 5}):
        generator = model.generator(grammar=grammar, max_new_tokens=60, **search)
        assert re.fullmatch(pattern, "".join(generator.stream("the lazy dog")))
    engine = model.engine(slots=1)
    request = engine.add("the lazy dog", grammar=grammar, max_new_tokens=60)
    assert model.tokenizer is not None
    request.result()
    assert re.fullmatch(pattern, request.take())


def test_each_answer_has_the_form(model: LanguageModel) -> None:
    generator = model.generator(regex="[ab]{4}", max_new_tokens=20, do_sample=True, seed=3)
    answers = ["".join(generator.stream(prompt)) for prompt in ("x", "y", "z")]
    assert all(re.fullmatch("[ab]{4}", answer) for answer in answers)
    length = len(generator.tokens)
    generator.rewind(length - 3)
    assert "".join(generator.stream("again")) and generator.is_done


def test_rewound_and_batched(model: LanguageModel) -> None:
    search: dict[str, Any] = {"regex": "[a-d]{6}", "max_new_tokens": 20}
    generator = model.generator(**search)
    first = generator.generate("x")
    prompt = len(generator.tokens) - len(first)
    generator.rewind(prompt + 2)
    assert generator.generate() == first
    batch = model.generator(batch=2, **search).generate("x", "the fox")
    assert batch == [first, model.generator(**search).generate("the fox")]


@pytest.mark.parametrize("regex", ("(ab|ba|cd)(e|f)", "ab", "[a-c]{3}"))
@pytest.mark.parametrize("beams", (3, 8))
def test_beams(model: LanguageModel, regex: str, beams: int) -> None:
    """Where the form leaves fewer tokens than there are beams, too."""
    generator = model.generator(regex=regex, num_beams=beams, max_new_tokens=8)
    generator.generate("x")
    assert re.fullmatch(regex, generator.text)


def test_beams_that_no_token_may_follow(model: LanguageModel) -> None:
    with pytest.raises(GenerationError, match="no token may follow"):
        model.generator(regex="ab", num_beams=3, min_length=20, max_new_tokens=30).generate("x")


@pytest.mark.parametrize(
    ("form", "message"),
    (
        ({"regex": "("}, "regex: "),
        ({"regex": 3}, "regex: expected text, found 3"),
        ({"lark": "start: missing"}, "lark: "),
        ({"json_schema": "{"}, "json_schema: "),
        ({"json_schema": {"type": "nothing"}}, "json_schema: "),
        ({"json_schema": 3}, "json_schema: expected a dict or JSON as text, found 3"),
        ({"json_schema": {"x": object()}}, "json_schema: .* not JSON serializable"),
        ({"grammar": "root ::= missing"}, "grammar: Rule 'missing' not found"),
        ({"grammar": "root ::= ["}, "grammar: "),
        ({"grammar": 'word ::= "a"'}, "grammar: No 'root' rule"),
        ({"grammar": 'root ::= "a'}, "grammar: "),
        ({"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000}, "grammar: its parts are too deep"),
        (
            {"grammar": "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(900)) + 'r900 ::= "a"\n'},
            "grammar: expected up to 500 rules that refer to one another, found 902",
        ),
        ({"grammar": 3}, "grammar: expected text, found 3"),
        ({"regex": "a", "lark": "b"}, "an answer has one form, found regex and lark"),
    ),
)
def test_wrong_forms(model: LanguageModel, form: dict[str, Any], message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        model.generator(**form)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(3000)) + 'r3000: "a"\n', "found 3002"),
        ("start: a\na: b\nb: a\n", "no answer can go on from here"),
    ],
)
def test_references_are_bounded(model: LanguageModel, form: str, message: str) -> None:
    with pytest.raises(FormError, match=message):
        model.generator(lark=form)


@pytest.mark.skipif(sys.platform == "win32", reason="the process ends in another way")
def test_a_crash_of_the_compiler_is_an_error(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that refer to one another in a long chain end the process that compiles them, and no other one."""
    monkeypatch.setattr("mirlo.generate.guidance.MAX_CHAIN", 1 << 30)
    chain = "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(20000)) + 'r20000: "a"\n'
    going = model.generator(regex="[a-d]{6}", max_new_tokens=9)
    texts = going.stream("x")
    first = next(texts)
    with pytest.raises(FormError, match="lark: its process ended by signal SIG(SEGV|BUS)"):
        model.generator(lark=chain)
    assert re.fullmatch("[a-d]{6}", first + "".join(texts))


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(60))
def test_hostile_forms(model: LanguageModel, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each form is an error, or an answer has it, whether its references are counted before or not."""
    monkeypatch.setattr("mirlo.generate.guidance.MAX_CHAIN", (500, 1 << 30)[seed % 2])
    form, text = draw(random.Random(seed))
    arguments: dict[str, Any] = {form: text}
    try:
        generator = model.generator(max_new_tokens=4, do_sample=True, seed=seed, **arguments)
        assert len(generator.generate("x")) <= 4
    except FormError as error:
        assert str(error).startswith(f"{form}: ")


def test_chains_of_references() -> None:
    assert longest_chain({}) == 0
    assert longest_chain({"a": {"b", "c"}, "b": {"c"}, "c": {"d"}, "x": {"a"}}) == 4
    assert longest_chain({"a": {"b"}, "b": {"a", "c"}, "c": {"c"}}) == 3
    generator = random.Random(1)
    for _ in range(200):
        names = range(generator.randint(1, 7))
        graph = {str(i): {str(j) for j in names if generator.random() < 0.25} for i in names}
        assert longest_chain(graph) == _longest(graph)
    assert schema_chain({"$ref": "#/a~1b", "a/b": {"items": [{"$ref": "#/c%64"}]}, "cd": {"$ref": "other"}}) == 3
    assert lark_chain('start: a "b" | C // d\na: D\nC: /x/\nD.2: C\nb: a\nd: b\n%ignore C') == 5


def _longest(graph: dict[str, set[str]]) -> int:
    """Return the longest chain, where all that refer to each other are one after the other: by trying everything."""
    reached = {name: {name} for name in graph}
    for _ in graph:
        for name in graph:
            reached[name] |= {further for other in graph[name] for further in reached[other]}
    circles = {name: frozenset(other for other in reached[name] if name in reached[other]) for name in graph}

    def length(circle: frozenset[str]) -> int:
        after = {circles[other] for name in circle for other in graph[name]} - {circle}
        return len(circle) + max(map(length, after), default=0)

    return max(length(circle) for circle in circles.values())


@pytest.mark.sample(0)
def test_what_is_missing(model: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_genai(tmp_path)
    plain = generate.load(folder)
    with pytest.raises(GenerationError, match="there is no tokenizer.json, which forms of answers need"):
        plain.generator(regex="a")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json: the tokenizer cannot be read: "):
        generate.load(folder).generator(regex="a")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(GenerationError, match=r"package 'llguidance': pip install 'mirlo-llm\[generate\]'"):
        model.generator(regex="a")


@pytest.mark.sample(0)
def test_commands(tmp_path: Path) -> None:
    """Flags give the form; a line of a file of prompts may give another one."""
    folder = example().write(tmp_path / "tiny")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    (tmp_path / "a.lark").write_text('start: "the " /[a-c]{2}/', encoding="utf-8")
    (tmp_path / "prompts").write_text('"the dog"\n{"prompt": "a", "regex": "[xy]{3}"}\n', encoding="utf-8")
    command, length = ("generate", folder), ("--max-new-tokens", 60)
    found = json.loads(output_of(run_command(*command, "the dog", *length, "--json-schema", tmp_path / "schema.json")))
    assert found["name"] in ("fox", "dog")
    assert re.fullmatch("(fox|dog)\n", output_of(run_command(*command, "the dog", *length, "--regex", "fox|dog")))
    assert re.fullmatch(
        "the [a-c]{2}\n", output_of(run_command(*command, "the dog", *length, "--lark", tmp_path / "a.lark"))
    )
    lines = output_of(
        run_command(*command, *length, "--prompts", tmp_path / "prompts", "--regex", "fox|dog")
    ).splitlines()
    texts = {answer["id"]: answer["text"] for answer in map(json.loads, lines)}
    assert re.fullmatch("fox|dog", texts[1]) and re.fullmatch("[xy]{3}", texts[2])
    (tmp_path / "b.lark").write_bytes(b"\xff\xfe")
    for flag, value, text in (
        ("--lark", tmp_path / "none", "none: No such file or directory"),
        ("--grammar", tmp_path / "b.lark", "b.lark: not a text in UTF-8"),
        ("--lark", tmp_path / "b.lark", "b.lark: not a text in UTF-8"),
        ("--json-schema", tmp_path / "a.lark", "json_schema: "),
    ):
        done = run_command(*command, "the dog", *length, flag, value)
        assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr
