"""`mirlo generate` and `mirlo chat`: text of a language model, streamed."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo.extend.command import PackageCommand, Progress, add_options, add_package_options, given_options, positive
from mirlo.extend.ranks import require_place
from mirlo_llm.commands.perplexity import add_folder, code_options, read_text

if TYPE_CHECKING:
    from mirlo_llm.generate import Generator, LanguageModel
    from mirlo_llm.generate.prompt import Prompt

ADAPTER = "adapter"
"""The name of the adapter that a command loads."""


def search_options() -> type:
    """Return the class of the search options."""
    from mirlo_llm.generate.search import SearchOptions

    return SearchOptions


def _add_generate(parser: ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", help="the text to continue; '-' reads it from standard input"
    )
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        help="generate text for many prompts together: each line is a JSON string, or an object with 'prompt', "
        "'messages' or 'tokens' and options; '-' reads standard input. Answers are lines of JSON, as they complete",
    )
    parser.add_argument(
        "--slots", metavar="N", type=positive, default=8, help="number of prompts that run at a time (default: 8)"
    )
    parser.add_argument("--stream", action="store_true", help="with --prompts: also write text as it is generated")
    parser.add_argument("--chat", action="store_true", help="format the prompt as a message of a chat")
    _add_generation(parser)
    add_package_options(parser)


def _add_chat(parser: ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument("--system", metavar="TEXT", help="system message of the conversation")
    _add_generation(parser)


def _add_generation(parser: ArgumentParser) -> None:
    search = parser.add_argument_group("sampling")
    # The folder of the model has the defaults.
    add_options(parser, of=search_options, group=search, shows_defaults=False)
    search.add_argument("--adapter", metavar="FILE", help="use a LoRA adapter: a file .onnx_adapter or .safetensors")
    search.add_argument("--stop", metavar="TEXT", action="append", default=[], help="stop before this text")
    form = parser.add_argument_group("structured output").add_mutually_exclusive_group()
    form.add_argument("--json-schema", metavar="FILE", help="generate JSON that follows the schema in this file")
    form.add_argument("--regex", metavar="PATTERN", help="generate text that matches this regular expression")
    form.add_argument("--lark", metavar="FILE", help="generate text of the grammar in this file, in Lark's syntax")
    form.add_argument("--grammar", metavar="FILE", help="generate text of the grammar in this file, in GBNF or Lark")
    add_options(parser, of=code_options)
    add_options(parser, "target", "threads", "activations", "invariant", "kv_cache_dtype", "cache", "jobs")
    parser.add_argument(
        "--image",
        metavar="FILE",
        action="append",
        default=[],
        help="an image, for models with image input: at its placeholder in the prompt, or else before the prompt; in a "
        "chat, in the first message. May be repeated",
    )
    parser.add_argument(
        "--mmproj",
        metavar="FILE",
        help="the image encoder of a GGUF file: llama.cpp's mmproj file",
    )
    parser.add_argument(
        "--pages", metavar="N", type=positive, help="maximum number of pages of the caches of PagedAttention"
    )


def execute(arguments: Namespace) -> None:
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


def _load(arguments: Namespace) -> LanguageModel:
    from mirlo_llm import generate

    adapters = {ADAPTER: arguments.adapter} if arguments.adapter else None
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        return generate.load(
            arguments.folder, adapters=adapters, pages=arguments.pages, mmproj=arguments.mmproj, progress=progress,
            **given_options(arguments, code_options()), **arguments.options,
        )  # fmt: skip


def _check_ranks(arguments: Namespace) -> None:
    """Raise an error for inputs that only one rank would read."""
    from mirlo_llm.generate import GenerationError

    if arguments.prompts is not None or arguments.prompt == "-":
        raise GenerationError("--ranks: each rank needs the prompt: give PROMPT as text")
    if _is_seq2seq(arguments.folder):
        raise GenerationError("--ranks: encoder-decoder models run on one rank")


def _is_seq2seq(folder: str) -> bool:
    from mirlo_llm.generate.seq2seq.config import is_seq2seq_folder

    return is_seq2seq_folder(Path(folder))


def _rewrite(arguments: Namespace) -> None:
    """Run an encoder-decoder model on a text, and print its output."""
    from mirlo_llm import generate
    from mirlo_llm.generate import GenerationError

    others = ("prompts", "chat", "image", "mmproj", "adapter", "pages", "regex", "lark", "grammar", "json_schema")
    refused = [name for name in others if getattr(arguments, name)]
    if refused:
        flag = refused[0].replace("_", "-")
        raise GenerationError(f"--{flag}: encoder-decoder models do not support it")
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        model = generate.load_seq2seq(arguments.folder, progress=progress, **arguments.options)
    changes: dict[str, Any] = _changes(_flag_options(arguments))
    for piece in model.stream(text, arguments.stop, **changes):
        sys.stdout.write(piece)
        sys.stdout.flush()
    print()


def _check_prompt(arguments: Namespace) -> None:
    from mirlo_llm.generate import GenerationError

    if (arguments.prompt is None) == (arguments.prompts is None):
        raise GenerationError("give a PROMPT, or --prompts with a file of them")
    if arguments.prompts is not None and arguments.image:
        raise GenerationError("--image: prompts of a file have no images")
    if arguments.prompts is not None and arguments.chat:
        raise GenerationError('--chat: prompts of a file select it themselves: {"messages": [...]}')


def _flag_options(arguments: Namespace) -> dict[str, object]:
    """Return the search options that flags set."""
    return given_options(arguments, search_options())


def _changes(options: Mapping[str, object]) -> dict[str, object]:
    """Return changes to the search options of a folder; a temperature enables sampling."""
    return {"do_sample": True, **options} if options.get("temperature") else dict(options)


def _generator(model: LanguageModel, arguments: Namespace) -> Generator:
    adapter = ADAPTER if arguments.adapter else None
    changes: dict[str, Any] = _changes(_flag_options(arguments))
    return model.generator(stop=arguments.stop, adapter=adapter, **_form(arguments), **changes)


def _form(arguments: Namespace) -> dict[str, Any]:
    """Return the constraint on the answer (schema, expression or grammar) that a flag sets, if any."""
    forms: dict[str, Any] = {} if arguments.regex is None else {"regex": arguments.regex}
    for form in ("json_schema", "lark", "grammar"):
        file = getattr(arguments, form)
        if file is not None:
            forms[form] = read_text(file)
    return forms


def _answer_lines(model: LanguageModel, arguments: Namespace) -> None:
    from mirlo_llm.commands.prompt_lines import PromptLines

    adapter = ADAPTER if arguments.adapter else None
    form = _form(arguments)
    lines = PromptLines(model, arguments.slots, arguments.stop, adapter, _flag_options(arguments), _changes, form)
    lines.run(arguments.prompts, arguments.stream)
    if lines.is_failed:
        raise SystemExit(1)


def _generate(model: LanguageModel, arguments: Namespace) -> None:
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    generator = _generator(model, arguments)
    if arguments.chat:
        prompt: Prompt = model.chat_tokens([_message(text, arguments.image)])
    else:
        prompt = model.image_tokens(text, arguments.image) if arguments.image else text
    _show(generator, prompt)
    for line in (*model.deviations, generator.timing):
        print(line, file=sys.stderr)


def _message(text: str, images: Sequence[str]) -> dict[str, object]:
    """Return a user message: images, then the text."""
    if not images:
        return {"role": "user", "content": text}
    parts: list[object] = [{"type": "image", "image": image} for image in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def _show(generator: Generator, prompt: Prompt) -> str:
    """Print the continuation of a prompt as it is generated, and return it."""
    texts = []
    for text in generator.stream(prompt):
        texts.append(text)
        sys.stdout.write(text)
        sys.stdout.flush()
    print()
    return "".join(texts)


def _chat(model: LanguageModel, arguments: Namespace) -> None:
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


GENERATE = PackageCommand("generate text with a language model", _add_generate, execute)
CHAT = PackageCommand("chat with a language model", _add_chat, execute, lasts=True)
