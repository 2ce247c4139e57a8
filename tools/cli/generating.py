"""`mirlo generate` and `mirlo chat`: text of a language model, as it comes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.generate_arguments import SEARCH_NAMES
from mirlo.tools.cli.progress import Progress

if TYPE_CHECKING:
    from mirlo.generate import Generator, LanguageModel


def execute(arguments: Arguments) -> None:
    """Run the command."""
    model = _load(arguments)
    if arguments.command == "chat":
        _chat(model, arguments)
    else:
        _generate(model, arguments)


def _load(arguments: Arguments) -> LanguageModel:
    from mirlo import generate

    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        return generate.load(
            arguments.folder, target=arguments.target or "llvm", threads=arguments.threads or 1,
            activations=arguments.activations, cache=arguments.cache, jobs=arguments.jobs, progress=progress,
        )  # fmt: skip


def _generator(model: LanguageModel, arguments: Arguments) -> Generator:
    given: dict[str, Any] = {name: getattr(arguments, name) for name in SEARCH_NAMES}
    changes = {name: value for name, value in given.items() if value is not None}
    if changes.get("temperature"):
        changes["do_sample"] = True
    return model.generator(stop=arguments.stop, **changes)


def _generate(model: LanguageModel, arguments: Arguments) -> None:
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    generator = _generator(model, arguments)
    prompt = model.chat_tokens([{"role": "user", "content": text}]) if arguments.chat else text
    _show(generator, prompt)
    print(generator.timing, file=sys.stderr)


def _show(generator: Generator, prompt: Any) -> str:
    """Print what follows a prompt as it comes; return it."""
    made = []
    for text in generator.stream(prompt):
        made.append(text)
        sys.stdout.write(text)
        sys.stdout.flush()
    print()
    return "".join(made)


def _chat(model: LanguageModel, arguments: Arguments) -> None:
    """Read messages line by line until the end of the input, and answer each.

    The caches keep the conversation: only what a message adds to it is computed.
    """
    messages = [{"role": "system", "content": arguments.system}] if arguments.system else []
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
        messages.append({"role": "user", "content": line.rstrip("\n")})
        tokens = model.chat_tokens(messages)
        known = generator.tokens
        kept = next(
            (i for i, (a, b) in enumerate(zip(tokens, known, strict=False)) if a != b), min(len(tokens), len(known))
        )
        generator.rewind(kept)
        messages.append({"role": "assistant", "content": _show(generator, tokens[kept:])})
        if arguments.verbose:
            print(generator.timing, file=sys.stderr)
