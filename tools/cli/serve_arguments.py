"""The flags of `mirlo serve`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand

LIMITS = (
    "port", "slots", "queue", "max_tokens", "max_prompt_tokens", "max_choices", "max_body", "bodies",
    "connections_each", "batch", "batch_delay", "workers", "grace", "memory",
)  # fmt: skip
"""The options that `--help` lists as limits."""


def serve_options() -> type:
    """Return the options of a server."""
    from mirlo.serve.options import ServeOptions

    return ServeOptions


def add_serve(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the command `serve`."""
    parser = add(commands, "serve", "answer requests over HTTP: OpenAI's API and the Open Inference Protocol")
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a folder or a GGUF file of a language model, or a model to compile or compiled (.onnx, .mirlo); "
        "NAME=MODEL gives it a name, MODEL.gguf,mmproj=FILE has an encoder of images",
    )
    add_options(parser, "host", of=serve_options)
    add_options(parser, *LIMITS, of=serve_options, group=parser.add_argument_group("limits and batching"))
    add_options(parser, "keys", "is_open", of=serve_options, group=parser.add_mutually_exclusive_group())
    add_options(parser, "target", "threads", "activations", "kv_cache_dtype", "cache", "jobs", "ranks", "rank_plan")
