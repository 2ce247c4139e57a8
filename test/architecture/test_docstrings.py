"""Docstrings of the core and of the packages: imperative for functions, in the words of the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from commands import ROOT
from parsed_package import house

from mirlo.benchmarks.house import is_imperative

COINED = re.compile(
    r"\b(behind(?! (?:the|a) (?:interface|server))|so many|tells?|told|nobody|somebody|who|people|under way)\b", re.I
)
"""Words with a plainer one in the field: after, this many, print or list, users; in flight."""
FOLDERS = ("plugins/*/mirlo_*/**/*.py", "benchmarks/**/*.py", "examples/*.py")
"""Files beside those of the core; tests state facts, in place of instructions."""
LEFT = ("memory behind", "leaves behind", "leave memory behind", "protobuf behind")
"""Uses of `behind` that mean no order."""


def test_docstrings_of_functions_are_imperative() -> None:
    wrong = [f"{each.place} {each.text}" for each in docstrings() if each.is_function and not is_imperative(each.text)]
    assert not wrong, "begin with a verb in the imperative mood:\n" + "\n".join(wrong)


def test_docstrings_use_the_words_of_the_field() -> None:
    wrong = [f"{each.place} '{match.group()}'" for each in docstrings() if (match := coined_word(each.text))]
    assert not wrong, "say after, this many, print, users, in flight:\n" + "\n".join(wrong)


def test_docstrings_with_coined_words_are_found() -> None:
    for text in ("What is behind it.", "So many rows.", "Tell the size.", "Products under way.", "For who asks."):
        assert coined_word(text), text
    for text in ("Models behind the interface of a server.", "The memory behind a value.", "The whole row."):
        assert coined_word(text) is None, text


def test_no_paragraph_says_what_the_one_before_it_says() -> None:
    wrong = [f"{each.place} '{again:.60}'" for each in docstrings() for again in said_again(each.text)]
    assert not wrong, "leave one of both:\n" + "\n".join(wrong)


def test_paragraphs_that_say_the_same_are_found() -> None:
    for text in ("Move.\n\n`a` are the layers that change.\n\n`a` are the products that change.\n", "a b c\n\na b c"):
        assert len(said_again(text)) == 1, text
    for text in ("Move.", "Move a row.\n\nThe rows that follow stay where they are.", ""):
        assert not said_again(text), text


class Docstring(NamedTuple):
    """A docstring, or the text below the name of a constant or a field."""

    place: str
    text: str
    is_function: bool


def coined_word(text: str) -> re.Match[str] | None:
    """Return the first coined word of a docstring, if it has one."""
    for phrase in LEFT:
        text = text.replace(phrase, "")
    return COINED.search(text)


def said_again(text: str) -> list[str]:
    """Return the paragraphs of a docstring that have most of the words of the one before them."""
    words = [set(paragraph.lower().split()) for paragraph in re.split(r"\n\s*\n", text)]
    pairs = zip(words, words[1:], re.split(r"\n\s*\n", text)[1:], strict=False)
    return [again.strip() for one, other, again in pairs if len(one & other) > 0.7 * max(len(one), len(other))]


@cache
def docstrings() -> list[Docstring]:
    """Return the docstrings of the core, the packages, the benchmarks and the examples."""
    others = [path for pattern in FOLDERS for path in ROOT.glob(pattern)]
    trees = {**house().trees, **{path: ast.parse(path.read_text(encoding="utf-8")) for path in others}}
    return [each for path, tree in trees.items() for each in docstrings_of(tree, path.relative_to(ROOT).as_posix())]


def docstrings_of(tree: ast.Module, file: str) -> Iterator[Docstring]:
    """Yield the docstrings of a file."""
    functions = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.add(id(node.body[0]))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Docstring(f"{file}:{node.lineno}", node.value.value, id(node) in functions)
