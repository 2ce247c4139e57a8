"""The flags of `mirlo serve`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand, byte_size, natural, positive

NUMBERS = (
    ("port", natural, "8000", "the port; 0 takes a free one"),
    ("slots", positive, "8", "sequences of a language model that are computed together"),
    ("queue", natural, "64", "requests of a model that may wait; further ones get status 429"),
    ("max-tokens", positive, "4096", "most tokens of an answer"),
    ("max-prompt-tokens", positive, "32768", "most tokens of a prompt"),
    ("max-choices", positive, "8", "most answers to a request"),
    ("max-body", positive, "16777216", "bytes of the largest body of a request"),
    ("batch", positive, "16", "most rows of requests to a model with a dynamic first dim that share a call"),
    ("batch-delay", float, "0", "milliseconds that a request may wait for others to share its call"),
    ("workers", positive, "2", "calls at a time of a model that is no language model"),
    ("grace", float, "30", "seconds that running requests have after a signal to end"),
)
NUMBER_NAMES = tuple(name.replace("-", "_") for name, *_ in NUMBERS)
"""Fields of `ServeOptions` that have a flag with a number."""


def add_serve(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the command `serve`."""
    parser = add(commands, "serve", "answer requests over HTTP: OpenAI's API and the Open Inference Protocol")
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a folder or a GGUF file of a language model, or a model to compile or compiled (.onnx, .mirlo); "
        "NAME=MODEL gives it a name",
    )
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="the address (default: this machine)")
    limits = parser.add_argument_group("limits and batching")
    for name, kind, default, text in NUMBERS:
        limits.add_argument(f"--{name}", metavar="N", type=kind, help=f"{text} (default: {default})")
    limits.add_argument(
        "--memory",
        metavar="SIZE",
        type=byte_size,
        help="of all loaded models, such as 8G: those that were not used for longest make room (default: no limit)",
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument("--api-keys", metavar="FILE", help="a file with API keys, one a line; requests need one of them")
    keys.add_argument(
        "--without-keys", action="store_true", help="let other machines use the server without an API key"
    )
    add_options(parser, "target", "threads", "activations", "kv_cache_dtype", "cache", "jobs")
