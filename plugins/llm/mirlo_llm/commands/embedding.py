"""`mirlo embed`: embeddings of texts, and the ranking of texts by a query."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from mirlo.extend.command import PackageCommand, Progress, add_options, given_options, positive
from mirlo.extend.runtime import replacing
from mirlo_llm.commands.perplexity import code_options

if TYPE_CHECKING:
    from mirlo_llm.generate import EmbeddingModel


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="a folder with an encoder or an embedding model (config.json with weights in safetensors or ONNX), or a "
        "GGUF file",
    )
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="the text to embed")
    parser.add_argument(
        "--texts", dest="file", metavar="FILE", help="a file with one text per line; '-' reads standard input"
    )
    parser.add_argument("--query", metavar="TEXT", help="rank the texts by how well they answer this query")
    parser.add_argument("--top", metavar="N", type=positive, help="with --query: print only the first N texts")
    parser.add_argument(
        "-o", "--output", metavar="FILE.npy", help="write the embeddings to a file (default: print lines of JSON)"
    )
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="a prefix of each text")
    prompt.add_argument(
        "--prompt-name", metavar="NAME", help="use this prompt of the folder as the prefix, such as 'query'"
    )
    parser.add_argument(
        "--dimensions", metavar="N", type=positive, help="truncate embeddings to their first N elements"
    )
    parser.add_argument(
        "--pooling", metavar="NAME", help="how to pool the rows of tokens (default: the folder's method)"
    )
    parser.add_argument("--truncate", action="store_true", help="truncate texts that are too long")
    parser.add_argument(
        "--batch", metavar="N", type=positive, default=32, help="number of texts per call (default: 32)"
    )
    add_options(parser, of=code_options)
    add_options(parser, "target", "threads", "activations", "invariant", "cache", "jobs")


def execute(arguments: Namespace) -> None:
    """Run the command."""
    from mirlo_llm import generate

    texts = _texts(arguments)
    name = os.path.basename(os.path.normpath(arguments.folder))
    with Progress(f"compiling {name}", arguments.verbose) as progress:
        model = generate.load_embedding(
            arguments.folder, pooling=arguments.pooling, progress=progress,
            **given_options(arguments, code_options()), **arguments.options,
        )  # fmt: skip
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


def _print_order(model: EmbeddingModel, texts: list[str], arguments: Namespace) -> None:
    scores = model.score(arguments.query, texts, batch=arguments.batch, truncate=arguments.truncate)
    for i in sorted(range(len(texts)), key=lambda i: -scores[i])[: arguments.top]:
        print(f"{scores[i]:.4f}  {texts[i]}")


def _texts(arguments: Namespace) -> list[str]:
    """Return the texts of the command line and of a file."""
    from mirlo_llm.generate import GenerationError

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


EMBED = PackageCommand("compute embeddings of texts, or rank texts by a query", _add_arguments, execute)
