"""`mirlo embed`: embeddings of texts, and the ranking of texts by a query."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from mirlo.runtime.files import replacing
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.progress import Progress

if TYPE_CHECKING:
    from mirlo.generate import EmbeddingModel


def execute(arguments: Arguments) -> None:
    """Run the command."""
    from mirlo import generate

    texts = _texts(arguments)
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        model = generate.load_embedding(
            arguments.folder, pooling=arguments.pooling, progress=progress, **arguments.options
        )
    if arguments.query is not None:
        _print_order(model, texts, arguments)
        return
    rows = model.embed(
        texts, prompt=arguments.prompt, prompt_name=arguments.prompt_name, dimensions=arguments.dimensions,
        batch=arguments.batch, truncate=arguments.truncate,
    )  # fmt: skip
    if arguments.output is not None:
        import numpy as np

        with replacing(arguments.output) as file:
            np.save(file, rows)
        return
    for text, row in zip(texts, rows, strict=True):
        print(json.dumps({"text": text, "embedding": row.tolist()}, ensure_ascii=False))


def _print_order(model: EmbeddingModel, texts: list[str], arguments: Arguments) -> None:
    scores = model.score(arguments.query, texts, batch=arguments.batch, truncate=arguments.truncate)
    for i in sorted(range(len(texts)), key=lambda i: -scores[i])[: arguments.top]:
        print(f"{scores[i]:.4f}  {texts[i]}")


def _texts(arguments: Arguments) -> list[str]:
    """Return the texts of the command line and of a file."""
    from mirlo.generate import GenerationError

    for flag, value in (("--output", arguments.output), ("--dimensions", arguments.dimensions)):
        if arguments.query is not None and value is not None:
            raise GenerationError(f"{flag}: with --query, scores are printed, and no rows")
    if arguments.top is not None and arguments.query is None:
        raise GenerationError("--top: it needs --query, by which texts are ordered")
    lines: list[str] = []
    if arguments.file == "-":
        lines = sys.stdin.read().splitlines()
    elif arguments.file is not None:
        with open(arguments.file, encoding="utf-8") as file:
            lines = file.read().splitlines()
    texts = [*arguments.texts, *(line for line in lines if line.strip())]
    if not texts:
        raise GenerationError("there are no texts: give some, or --texts with a file of them")
    return texts
