"""`mirlo generate` and `mirlo chat`: text of a language model, streamed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.runtime.ranks import require_place
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.generate_arguments import search_options
from mirlo.tools.cli.options import given_options
from mirlo.tools.cli.perplexity import read_text
from mirlo.tools.cli.progress import Progress

if TYPE_CHECKING:
    from mirlo.generate import Generator, LanguageModel
    from mirlo.generate.prompt import Prompt

ADAPTER = "adapter"
"""The name of the only adapter of a command."""


def execute(arguments: Arguments) -> None:
    """Run the command."""
    if arguments.command == "generate":
        _check_prompt(arguments)
        if arguments.options.get("ranks", 1) > 1:
            _check_ranks(arguments)
            if require_place(arguments.options["ranks"]).rank > 0:  # all ranks choose the same tokens, one writes them
                with (
                    open(os.devnull, "w", encoding="utf-8") as nowhere,
                    redirect_stdout(nowhere),
                    redirect_stderr(nowhere),
                ):
                    _generate(_load(arguments), arguments)
                return
        if _is_seq2seq(arguments.folder):
            _rewrite(arguments)
            return
    model = _load(arguments)
    if arguments.command == "chat":
        _chat(model, arguments)
    elif arguments.prompts is not None:
        _answer_lines(model, arguments)
    else:
        _generate(model, arguments)


def _load(arguments: Arguments) -> LanguageModel:
    from mirlo import generate

    adapters = {ADAPTER: arguments.adapter} if arguments.adapter else None
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        return generate.load(
            arguments.folder, adapters=adapters, pages=arguments.pages, mmproj=arguments.mmproj, progress=progress,
            **arguments.options,
        )  # fmt: skip


def _check_ranks(arguments: Arguments) -> None:
    """Refuse what one rank alone would read."""
    from mirlo.generate import GenerationError

    if arguments.prompts is not None or arguments.prompt == "-":
        raise GenerationError("--ranks: each rank needs the prompt: give PROMPT as text")
    if _is_seq2seq(arguments.folder):
        raise GenerationError("--ranks: a model of an encoder and a decoder has one rank")


def _is_seq2seq(folder: str) -> bool:
    from mirlo.generate.seq2seq.config import is_seq2seq_folder

    return is_seq2seq_folder(Path(folder))


def _rewrite(arguments: Arguments) -> None:
    """Print what a model of an encoder and a decoder writes for a text."""
    from mirlo import generate
    from mirlo.generate import GenerationError

    others = ("prompts", "chat", "image", "mmproj", "adapter", "pages", "regex", "lark", "json_schema")
    refused = [name for name in others if getattr(arguments, name)]
    if refused:
        flag = refused[0].replace("_", "-")
        raise GenerationError(f"--{flag}: models of an encoder and a decoder do not take it")
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        model = generate.load_seq2seq(arguments.folder, progress=progress, **arguments.options)
    changes: dict[str, Any] = _changes(_given(arguments))
    for piece in model.stream(text, arguments.stop, **changes):
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()


def _check_prompt(arguments: Arguments) -> None:
    from mirlo.generate import GenerationError

    if (arguments.prompt is None) == (arguments.prompts is None):
        raise GenerationError("give a PROMPT, or --prompts with a file of them")
    if arguments.prompts is not None and arguments.image:
        raise GenerationError("--image: prompts of a file have no images")
    if arguments.prompts is not None and arguments.chat:
        raise GenerationError('--chat: prompts of a file are messages where they say so: {"messages": [...]}')


def _given(arguments: Arguments) -> dict[str, object]:
    """Return the search options that flags give."""
    return given_options(arguments, search_options())


def _changes(options: Mapping[str, object]) -> dict[str, object]:
    """Return changes to the search options of a folder: a temperature asks for random tokens."""
    return {"do_sample": True, **options} if options.get("temperature") else dict(options)


def _generator(model: LanguageModel, arguments: Arguments) -> Generator:
    adapter = ADAPTER if arguments.adapter else None
    changes: dict[str, Any] = _changes(_given(arguments))
    return model.generator(stop=arguments.stop, adapter=adapter, **_form(arguments), **changes)


def _form(arguments: Arguments) -> dict[str, Any]:
    """Return the form that answers have, if a flag gives one."""
    forms: dict[str, Any] = {} if arguments.regex is None else {"regex": arguments.regex}
    for form, file in (("json_schema", arguments.json_schema), ("lark", arguments.lark)):
        if file is not None:
            forms[form] = read_text(file)
    return forms


def _answer_lines(model: LanguageModel, arguments: Arguments) -> None:
    from mirlo.tools.cli.prompt_lines import PromptLines

    adapter = ADAPTER if arguments.adapter else None
    form = _form(arguments)
    lines = PromptLines(model, arguments.slots, arguments.stop, adapter, _given(arguments), _changes, form)
    lines.run(arguments.prompts, arguments.stream)
    if lines.is_failed:
        raise SystemExit(1)


def _generate(model: LanguageModel, arguments: Arguments) -> None:
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    generator = _generator(model, arguments)
    if arguments.chat:
        prompt: Prompt = model.chat_tokens([_message(text, arguments.image)])
    else:
        prompt = model.image_tokens(text, arguments.image) if arguments.image else text
    _show(generator, prompt)
    print(generator.timing, file=sys.stderr)


def _message(text: str, images: Sequence[str]) -> dict[str, object]:
    """Return a message of the user, with images before its text."""
    if not images:
        return {"role": "user", "content": text}
    parts: list[object] = [{"type": "image", "image": image} for image in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _show(generator: Generator, prompt: Prompt) -> str:
    """Print what follows a prompt as it comes; return it."""
    texts = []
    for text in generator.stream(prompt):
        texts.append(text)
        sys.stdout.write(text)
        sys.stdout.flush()
    print()
    return "".join(texts)


def _chat(model: LanguageModel, arguments: Arguments) -> None:
    """Read messages line by line until the end of the input, and answer each.

    The caches keep the conversation: only what a message adds to it is computed.
    """
    messages: list[dict[str, object]] = []
    if arguments.system:
        messages.append({"role": "system", "content": arguments.system})
    images: Sequence[str] = arguments.image
    generator = _generator(model, arguments)
    is_terminal = sys.stdin.isatty()
    while True:
        if is_terminal:
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if not line.strip():
            continue
        messages.append(_message(line.rstrip("\n"), images))
        images = ()
        tokens = model.chat_tokens(messages)
        known = generator.tokens
        kept = next(
            (i for i, (a, b) in enumerate(zip(tokens, known, strict=False)) if a != b), min(len(tokens), len(known))
        )
        generator.rewind(kept)
        messages.append({"role": "assistant", "content": _show(generator, tokens[kept:])})
        if arguments.verbose:
            print(generator.timing, file=sys.stderr)
