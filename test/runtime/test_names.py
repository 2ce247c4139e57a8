"""Text from files is made safe for each place that it is written to."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from mirlo.runtime import names
from mirlo.tools.fuzz.names import PAYLOADS, unsafe_c, unsafe_text

TEXTS = (*PAYLOADS, *(chr(code) for code in (*range(0x100), 0x2028, 0x202E, 0xFEFF, 0xD800, 0x1F642, 0x10FFFF)))


@pytest.mark.parametrize("text", PAYLOADS, ids=ascii)
def test_comments_of_c_stay_comments(text: str) -> None:
    comment = f"/* {names.c_comment(text)} */"
    assert not list(unsafe_c(comment)) and "\n" not in comment


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no GCC, whose preprocessor says what a comment is")
def test_a_compiler_sees_nothing_in_comments() -> None:
    text = "".join(f"/* {names.c_comment(text)} */\n" for text in TEXTS)
    command = ["gcc", "-std=c11", "-trigraphs", "-E", "-P", "-xc", "-"]
    assert subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.strip() == ""


def test_identifiers_of_c_are_identifiers_and_differ() -> None:
    texts = [*TEXTS, "a.b", "a_b", "a b", "a-b", names.c_identifier("a.b"), "_", "", "1"]
    made = [names.c_identifier(text) for text in dict.fromkeys(texts)]
    assert all(name.isascii() and name.isidentifier() for name in made)
    assert len(set(made)) == len(made) and names.c_identifier("plain_1") == "plain_1"


def test_words_of_a_shell_are_words() -> None:
    texts = [text for text in TEXTS if "\0" not in text and not 0xD800 <= ord(text[0]) <= 0xDFFF]
    script = "printf '%s\\0' " + " ".join(map(names.shell_word, texts))
    found = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    assert found.decode().split("\0")[:-1] == texts
    assert not list(unsafe_text(script))


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_terminals_are_shown_one_line(text: str) -> None:
    shown = names.terminal(text)
    assert shown.isprintable() and names.terminal(shown) == shown
    stream = io.StringIO(newline="")
    names.TerminalStream(stream).write(f"one\n\ttwo {text}\n")
    assert all(char.isprintable() or char in "\n\t" for char in stream.getvalue())


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("text", PAYLOADS, ids=ascii)
def test_html_shows_text_as_text(text: str) -> None:
    page = _Page()
    page.feed(f"<p title=\"{names.html(text)}\" lang='{names.html(text)}'>{names.html(text)}</p>")
    page.close()
    assert page.tags == ["p"] and page.text == names.terminal_lines(text)
    data = names.html_json({text: [text]})
    assert json.loads(data) == {text: [text]} and not set("<>&") & set(data)


def test_repeated_names_are_numbered() -> None:
    bases = ["a", "a_1", "a", "b", "a", "a_1", "a_1_1", "b"]
    assert names.unique_names(bases) == ["a", "a_1", "a_2", "b", "a_3", "a_1_1", "a_1_1_1", "b_1"]
