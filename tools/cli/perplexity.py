"""`mirlo perplexity`: how well a language model predicts a text."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.progress import Progress


def execute(arguments: Arguments) -> None:
    """Run the command."""
    from mirlo import generate

    text = sys.stdin.read() if arguments.text == "-" else read_text(arguments.text)
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        model = generate.load(arguments.folder, progress=progress, **arguments.options)
    with Progress(f"reading {os.path.basename(arguments.text)}", arguments.verbose):
        result = model.perplexity(text, arguments.window)
    print(f"perplexity {result.value:.4f} of {result.tokens} tokens")


def read_text(path: str) -> str:
    """Return the text of a file."""
    from mirlo.generate import GenerationError
    from mirlo.generate.json_file import MAX_BYTES, read_bytes

    try:
        return read_bytes(Path(path), MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise GenerationError(f"{path}: not a text in UTF-8: {error}") from None
