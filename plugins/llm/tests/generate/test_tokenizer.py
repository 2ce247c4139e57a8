"""Folders with tokenizers and chat templates, the command line, and what is said without the packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from folders import example
from mirlo_llm import generate
from mirlo_llm.generate import GenerationError, LanguageModel, ModelFolderError
from mirlo_llm.generate.chat import read_template
from mirlo_llm.generate.tokenizer import ModelTokenizer

from mirlo.extend.process import Bounds
from mirlo.extend.runtime import can_fork, run_forked

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written: Path = example().write(tmp_path_factory.mktemp("tiny"), bits=4)
    return written


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return generate.load(folder)


@pytest.mark.sample(0)
def test_text_is_streamed(model: LanguageModel) -> None:
    assert model.tokenizer is not None
    for prompt in ("the lazy dog", "größer", "日本語の", "a\n b"):
        generator = model.generator(max_new_tokens=30)
        made = "".join(generator.stream(prompt))
        again = model.generator(max_new_tokens=30)
        tokens = again.generate(prompt)
        assert tokens == generator.tokens[-len(tokens) :]
        assert made == generator.text == model.tokenizer.decode(tokens)


def test_stop(model: LanguageModel) -> None:
    whole = "".join(model.generator(max_new_tokens=30).stream("the quick"))
    for start in range(2, len(whole) - 3, 5):
        stop = whole[start : start + 3]
        if "\ufffd" in stop:
            continue
        generator = model.generator(max_new_tokens=30, stop=stop)
        assert "".join(generator.stream("the quick")) == whole[: whole.index(stop)]
        assert generator.is_done
        made = model.generator(max_new_tokens=30, stop=stop).generate("the quick")
        assert made == generator.tokens[-len(made) :]


def test_special_tokens_stand_at_the_start_only(model: LanguageModel) -> None:
    generator = model.generator(max_new_tokens=1)
    generator.append("the")
    generator.append(" dog")
    assert generator.tokens.count(0) == 1


def test_chat(model: LanguageModel) -> None:
    messages = [
        {"role": "user", "content": "the dog"}, {"role": "assistant", "content": "jumps"},
        {"role": "user", "content": "over"},
    ]  # fmt: skip
    assert model.template is not None and model.tokenizer is not None
    text = model.template.render(messages)
    assert text == "<|start|><|user|>the dog<|end|><|model|>jumps<|end|><|user|>over<|end|><|model|>"
    tokens = model.chat_tokens(messages)
    assert tokens[:2] == [0, 2] and tokens[-1] == 3 and tokens == model.tokenizer.encode(text, special=False)
    for wrong in ({"role": "user"}, "text"):
        with pytest.raises(GenerationError, match="a message is a dict with 'role' and 'content'"):
            model.chat_tokens([wrong])  # type: ignore[list-item]


def with_template(folder: Path, template: Any) -> Path:
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "bos_token": {"content": "<s>"}})
    )
    return folder


HOSTILE = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% set x = messages.__class__ %}{{ x() }}",
    "{{ messages.append(1) }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{% for i in range(10000000) %}{% endfor %}",
    "{{ raise_exception.__globals__.os }}",
    "{% include '/etc/passwd' %}",
    "{{ 1 / 0 }}",
)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not limit memory")
def test_files_of_tokenizers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for which the package aborts, as memory ends, is an error, and ends no process but the tokenizer's."""
    path = example().write(tmp_path / "tiny") / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"] |= {f"token {i}": 1000 + i for i in range(100_000)}
    monkeypatch.setattr("mirlo.generate.tokenizer.BOUNDS", Bounds(memory=48 << 20))
    reason = r"tokenizer\.json: the tokenizer cannot be read: (its process ended by|it takes too much memory)"
    with pytest.raises(ModelFolderError, match=reason):
        ModelTokenizer(path, json.dumps(content).encode())
    assert ModelTokenizer(path, path.read_bytes()).encode("a", False)


def test_long_texts_have_the_same_tokens_in_another_process(tmp_path: Path) -> None:
    path = example().write(tmp_path / "tiny") / "tokenizer.json"
    tokenizer, known = ModelTokenizer(path, path.read_bytes()), tokenizers.Tokenizer.from_file(str(path))
    for text in ("the quick é\U0001f600 " * 900, "a" * 5000, "x" * 3):
        for special in (False, True):
            assert tokenizer.encode(text, special) == known.encode(text, add_special_tokens=special).ids
        pair = known.encode(text, "fox")
        assert tokenizer.encode_pair(text, "fox", None) == (pair.ids, pair.type_ids)
        assert tokenizer.encode_pair(text, None, 7)[0] == known.encode(text).ids[:7]
        assert len(text) <= len(known.encode(text).ids) * tokenizer.longest
    with pytest.raises(GenerationError, match="surrogates not allowed"):
        tokenizer.encode("\ud800" * 5000, False)
    tokenizer.most_characters = 100
    with pytest.raises(GenerationError, match="the text has 101 characters, expected up to 100"):
        tokenizer.encode("a" * 101, False)


@pytest.mark.parametrize("template", HOSTILE)
def test_hostile_templates(tmp_path: Path, template: str) -> None:
    """The sandbox gives nothing that an object holds: it is undefined, or an error."""
    found = read_template(with_template(tmp_path, template))
    assert found is not None
    with pytest.raises(ModelFolderError, match="tokenizer_config.json: the chat template fails"):
        found.render([{"role": "user", "content": "x"}])


UNBOUNDED = {
    "a power that is folded": "{{ 2 ** 100000 }}",
    "a power that is endless": "{{ 10 ** (10 ** 10) }}",
    "a text that is folded": "{{ 'x' * 10 ** 11 }}",
    "nested conditions": "{% if x %}" * 5000 + "{% endif %}" * 5000,
    "nested loops": "{% for i in x %}" * 30 + "{% endfor %}" * 30,
    "nested sets": "{% set x %}" * 2000 + "{% endset %}" * 2000,
    "nested parentheses": "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}",
    "a power of arguments": "{% set n = messages | length + 9 %}{{ n ** (n ** n) }}",
    "a long text": "{{ '%9999999999d' | format(1) }}",
    "a longer text": "{{ 'x' | center(messages | length * 10 ** 11) }}",
    "a text that doubles": "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x=n.x ~ n.x %}{% endfor %}",
    "a list that doubles": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x=n.x + n.x %}{% endfor %}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "macros": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a long answer": "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
}
"""Templates that take more time or memory than there is, or that Python's compiler does not take."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", UNBOUNDED)
def test_templates_are_bounded(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.generate.chat.BOUNDS", Bounds(seconds=2))
    with pytest.raises(ModelFolderError, match=r"tokenizer_config\.json: the chat template (fails|cannot be read): \w"):
        found = read_template(with_template(tmp_path, UNBOUNDED[kind]))
        assert found is not None
        for _ in range(2):  # the second call has another process
            found.render([{"role": "user", "content": "x"}])


@pytest.mark.sample(0)
def test_templates_after_failures_and_in_forks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A template goes on after one that did not end, and in forks, which share no process with their parent."""
    monkeypatch.setattr("mirlo.generate.chat.BOUNDS", Bounds(seconds=2))
    slow = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    template = f"{{% if messages[0].content == 'slow' %}}{slow}{{% endif %}}{{{{ messages[0].content }}}}"
    found = read_template(with_template(tmp_path, template))
    assert found is not None
    with pytest.raises(ModelFolderError, match=r"takes longer than (2|10) s"):
        found.render([{"role": "user", "content": "slow"}])
    texts = ["quick", 'a\n"\u2028\ud800\U0001f600', "x" * 100_000]
    for text in texts:
        assert found.render(({"role": "user", "content": text},)) == text
    if can_fork():
        done = run_forked(lambda: found.render([{"role": "user", "content": "fork"}]).encode())
        assert done.content == b"fork"
    assert found.render([MappingProxyType({"role": "user", "content": np.int64(3)})]) == "3"
    with pytest.raises(GenerationError, match="hold what JSON does: found a object"):
        found.render([{"role": "user", "content": object()}])


@pytest.mark.parametrize(
    ("template", "message"),
    (
        ("{% if %}", "the chat template cannot be read"),
        (3, "'chat_template': expected a template"),
        ([{"name": "tools", "template": "x"}], "'chat_template': expected a template"),
        ([3], "'chat_template': expected a template"),
    ),
)
def test_wrong_templates(tmp_path: Path, template: Any, message: str) -> None:
    with pytest.raises(ModelFolderError, match=message):
        read_template(with_template(tmp_path, template))


def test_forms_of_templates(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x"}]
    for template in ("{{ bos_token }}{{ messages[0].content }}", [{"name": "default", "template": "{{ bos_token }}x"}]):
        found = read_template(with_template(tmp_path, template))
        assert found is not None and found.render(messages) == "<s>x"
    (tmp_path / "chat_template.jinja").write_text("{{ messages | tojson }}{{ raise_exception('never') if false }}")
    found = read_template(tmp_path)
    assert found is not None and json.loads(found.render(messages).removesuffix("None")) == messages
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    found = read_template(tmp_path)
    assert found is not None
    with pytest.raises(GenerationError, match="the chat template refuses the messages: roles must alternate"):
        found.render(messages)


@pytest.mark.parametrize("content", (b"", b"{}", b"\xff", b"[1]", b'{"model": {"type": "BPE"}}', b'"' + b"a" * 1000))
def test_hostile_tokenizers(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ModelFolderError, match="tokenizer.json: the tokenizer cannot be read"):
        ModelTokenizer(tmp_path / "tokenizer.json", content)


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mirlo", *arguments], input=given, capture_output=True, text=True, check=False
    )


@pytest.mark.sample(0)
def test_commands(folder: Path, model: LanguageModel) -> None:
    expected = "".join(model.generator(max_new_tokens=12).stream("the lazy dog"))
    from mirlo.extend.runtime import terminal_lines

    done = run("generate", str(folder), "the lazy dog", "--max-new-tokens", "12")
    assert done.returncode == 0 and done.stdout == f"{terminal_lines(expected)}\n"
    assert "tokens/s), then 11 tokens in" in done.stderr
    best = model.generator(max_new_tokens=6, num_beams=3)
    tokens = best.generate("the lazy dog")
    assert list(model.generator(max_new_tokens=6, num_beams=3).stream("the lazy dog")) == [best.text]
    assert model.tokenizer is not None and best.text == model.tokenizer.decode(tokens)
    done = run("generate", str(folder), "the lazy dog", "--max-new-tokens", "6", "--num-beams", "3")
    assert done.stdout == f"{terminal_lines(best.text)}\n"
    done = run("generate", str(folder), "-", "--max-new-tokens", "12", given="the lazy dog")
    assert done.stdout == f"{terminal_lines(expected)}\n"
    search = ("--temperature", "0.9", "--top-k", "5", "--seed", "4", "--max-new-tokens", "9")
    done = run("generate", str(folder), "the", "--chat", *search)
    generator = model.generator(do_sample=True, temperature=0.9, top_k=5, seed=4, max_new_tokens=9)
    expected = "".join(generator.stream(model.chat_tokens([{"role": "user", "content": "the"}])))
    assert done.stdout == f"{terminal_lines(expected)}\n"


@pytest.mark.sample(0)
def test_chat_command(folder: Path, model: LanguageModel) -> None:
    done = run("chat", str(folder), "--max-new-tokens", "6", given="the dog\n\nthe fox\n")
    assert done.returncode == 0 and done.stderr == ""
    from mirlo.extend.runtime import terminal_lines

    generator = model.generator(max_new_tokens=6)
    first = "".join(generator.stream(model.chat_tokens([{"role": "user", "content": "the dog"}])))
    assert done.stdout.startswith(f"{terminal_lines(first)}\n")
    done = run("chat", str(folder), "--max-new-tokens", "6", "--system", "a fox", given="the dog\n")
    told = [{"role": "system", "content": "a fox"}, {"role": "user", "content": "the dog"}]
    generator = model.generator(max_new_tokens=6)
    assert done.stdout == f"{terminal_lines(''.join(generator.stream(model.chat_tokens(told))))}\n"


@pytest.mark.sample(0)
def test_command_errors(tmp_path: Path, folder: Path) -> None:
    done = run("generate", str(tmp_path), "x")
    assert done.returncode == 1 and "neither genai_config.json nor config.json is there" in done.stderr
    done = run("generate", str(folder), "x", "--top-p", "2")
    assert done.returncode == 1 and "top_p: expected more than 0, at most 1, found 2.0" in done.stderr


def test_prompts_of_a_file(tmp_path: Path, folder: Path, model: LanguageModel) -> None:
    prompts = ["the lazy dog", "the quick brown fox", "a language model", "the quick brown dog"]
    messages = [{"role": "user", "content": "the dog"}]
    drawn = {"temperature": 0.9, "top_k": 5, "seed": 4}
    lines = [
        json.dumps(prompts[0]), json.dumps({"id": "b", "prompt": prompts[1], "max_new_tokens": 4}), "", "no JSON",
        json.dumps({"prompt": prompts[2], **drawn}), json.dumps({"messages": messages}), json.dumps({"tokens": [-1]}),
        json.dumps({"prompt": prompts[3], "top_q": 1}), json.dumps({"prompt": prompts[3], "stop": " "}), "[1]",
        json.dumps({"id": 1.5, "prompt": "the"}), json.dumps({"prompt": 1}), json.dumps({"prompt": "a", "tokens": []}),
        json.dumps({"prompt": "a", "temperature": 10**400}), json.dumps({"prompt": "a", "seed": 10**400}),
        json.dumps({"prompt": "a", "regex": "\ud800"}),
    ]  # fmt: skip
    (tmp_path / "prompts").write_text("\n".join(lines), encoding="utf-8")
    expected = {
        1: model.generator(max_new_tokens=9).stream(prompts[0]),
        "b": model.generator(max_new_tokens=4).stream(prompts[1]),
        5: model.generator(max_new_tokens=9, do_sample=True, **drawn).stream(prompts[2]),
        6: model.generator(max_new_tokens=9).stream(model.chat_tokens(messages)),
        9: model.generator(max_new_tokens=9, stop=" ").stream(prompts[3]),
    }
    texts = {name: "".join(pieces) for name, pieces in expected.items()}
    flags = ("--max-new-tokens", "9", "--slots", "2")
    done = run("generate", str(folder), "--prompts", str(tmp_path / "prompts"), *flags)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["id"]: line["text"] for line in found if "text" in line} == texts
    errors = {line["id"]: line["error"] for line in found if "error" in line}
    assert sorted(errors) == [4, 7, 8, 10, 11, 12, 13, 14, 15, 16] and done.returncode == 1
    assert errors[4].startswith("line 4: expected JSON") and "no option of a search is named 'top_q'" in errors[8]
    assert "a token must be from 0" in errors[7] and "'id': expected a text or an integer" in errors[11]
    assert "temperature: expected a number, found 1000" in errors[14] and "surrogates not allowed" in errors[16]
    assert "15 requests: prompts of" in done.stderr and "tokens/s)" in done.stderr
    streamed = run("generate", str(folder), "--prompts", "-", "--stream", *flags, given="\n".join(lines[:2]))
    found = [json.loads(line) for line in streamed.stdout.splitlines()]
    assert streamed.returncode == 0
    for name in (1, "b"):
        pieces = [line["delta"] for line in found if line["id"] == name and "delta" in line]
        assert "".join(pieces) == texts[name] and len(pieces) > 1


@pytest.mark.sample(0)
def test_prompts_that_are_missing(tmp_path: Path, folder: Path) -> None:
    for arguments, message in (
        ((), "give a PROMPT, or --prompts with a file of them"),
        (("x", "--prompts", "y"), "give a PROMPT, or --prompts"),
        (("--prompts", str(tmp_path / "none")), "No such file"),
        (("--prompts", str(tmp_path)), "Is a directory"),
    ):
        done = run("generate", str(folder), *arguments)
        assert done.returncode == 1 and message in done.stderr


def test_lines_are_answered_as_they_come(folder: Path) -> None:
    """A program may wait for the answer to a line before it writes the next one."""
    command = [sys.executable, "-m", "mirlo", "generate", str(folder), "--prompts", "-", "--max-new-tokens", "4"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    for _ in range(2):
        process.stdin.write('"the dog"\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["tokens"] == 4
    process.stdin.close()
    assert process.wait(60) == 0


OPTIONS = ("id", "stop", "max_new_tokens", "temperature", "top_k", "json_schema", "regex")
VALUES = (
    "null",
    "true",
    "-1",
    "1e400",
    "NaN",
    "1" * 400,
    '"\\ud800"',
    "{}",
    "[[]]",
    "[null]",
    '[{"role": 1}]',
    '{"a": 1}',
)


def _wrong_lines() -> list[bytes]:
    """Return lines that are no requests: no JSON, other values, too deep, and keys with values of other types."""
    others = [b"{", b"nul", b"\xff\xfe", b"null", b"[]", b"7", b"{}", b"[" * 100_000, b'{"prompt": "a", "tokens": [1]}']
    fields = [f'{{"{key}": {value}}}'.encode() for key in ("prompt", "messages", "tokens") for value in VALUES]
    return [*others, *fields, b'{"tokens": [1000000000]}', b'{"tokens": [-1]}', b'{"prompt": "a", "unknown": 1}']


def test_lines_that_are_no_requests(folder: Path, tmp_path: Path) -> None:
    """Each becomes a line with an error, whatever it is, and the requests between them are answered."""
    wrong, right = _wrong_lines(), b'{"id": "right", "prompt": "the dog", "max_new_tokens": 2}'
    options = [
        f'{{"prompt": "a", "max_new_tokens": 1, "{key}": {value}}}'.encode() for key in OPTIONS for value in VALUES[::2]
    ]
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b"\n".join(each for line in [*wrong, *options] for each in (line, right)))
    command = [sys.executable, "-m", "mirlo", "generate", str(folder), "--prompts", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    by_line = {each["id"]: each for each in answers if each["id"] != "right"}
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert sum(each["id"] == "right" and each["tokens"] == 2 for each in answers) == len(wrong) + len(options)
    assert len(answers) == 2 * (len(wrong) + len(options))
    for at, line in enumerate(wrong):
        assert f"line {2 * at + 1}: " in by_line[2 * at + 1]["error"], line


@pytest.mark.parametrize("package", ("tokenizers", "jinja2"))
def test_without_the_package(folder: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(GenerationError, match=rf"package '{package}': pip install 'mirlo-llm\[generate\]'"):
        if package == "tokenizers":
            ModelTokenizer(folder / "tokenizer.json", b"{}")
        else:
            read_template(folder)
