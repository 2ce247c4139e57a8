"""`mirlo perplexity`: how well a language model predicts a text."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from mirlo.extend.command import PackageCommand, Progress, add_options, given_options, positive


def code_options() -> type:
    """Return the class of the options that select the implementation of a model."""
    from mirlo_llm.generate.code_options import CodeOptions

    return CodeOptions


def add_folder(parser: ArgumentParser) -> None:
    """Add the argument that names a language model."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="a folder with a model, or its weights in safetensors, and genai_config.json or config.json; "
        "or a GGUF file",
    )


def _add_arguments(parser: ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument("text", metavar="TEXT.txt", help="a text in UTF-8; '-' reads it from standard input")
    parser.add_argument(
        "--window",
        metavar="N",
        type=positive,
        help="number of tokens per window (default: 512, or the largest that the model takes)",
    )
    add_options(parser, of=code_options)
    add_options(parser, "target", "threads", "activations", "invariant", "cache", "jobs")


def execute(arguments: Namespace) -> None:
    """Run the command."""
    from mirlo_llm import generate

    text = sys.stdin.read() if arguments.text == "-" else read_text(arguments.text)
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        model = generate.load(
            arguments.folder, progress=progress, **given_options(arguments, code_options()), **arguments.options
        )
    with Progress(f"reading {os.path.basename(arguments.text)}", arguments.verbose):
        result = model.perplexity(text, arguments.window)
    print(f"perplexity {result.value:.4f} of {result.tokens} tokens")


def read_text(path: str) -> str:
    """Return the text of a file."""
    from mirlo_llm.generate import GenerationError
    from mirlo_llm.generate.json_file import MAX_BYTES, read_bytes

    try:
        return read_bytes(Path(path), MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise GenerationError(f"{path}: not a text in UTF-8: {error}") from None


PERPLEXITY = PackageCommand("measure how well a language model predicts a text", _add_arguments, execute)
