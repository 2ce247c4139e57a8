"""`mirlo serve`: a server for models."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from mirlo.extend.command import PackageCommand, add_options, add_package_options, given_options

LIMITS = (
    "port", "slots", "pages", "queue", "chunk_size", "max_tokens", "max_prompt_tokens", "max_choices", "max_body",
    "bodies", "connections_each", "health_port", "batch", "batch_delay", "workers", "grace", "memory",
)  # fmt: skip
"""The options that `--help` lists in the group of limits."""


def serve_options() -> type:
    """Return the class of the server's options."""
    from mirlo_llm.serve.options import ServeOptions

    return ServeOptions


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a folder or a GGUF file of a language model, or a model to compile or compiled (.onnx, .mirlo); "
        "NAME=MODEL gives it a name, MODEL.gguf,mmproj=FILE has an encoder of images",
    )
    parser.add_argument(
        "--adapter",
        metavar="NAME=PATH",
        action="append",
        default=[],
        help="a LoRA adapter, a file or a folder of PEFT: requests choose it by its name in place of the model's; "
        "MODEL:NAME=PATH if there are several models",
    )
    parser.add_argument(
        "--draft",
        metavar="PATH",
        action="append",
        default=[],
        help="a smaller language model with the same tokens, which guesses what follows; correct guesses save steps; "
        "MODEL=PATH if there are several models",
    )
    add_options(parser, "lookup", "draft_tokens", of=serve_options)
    add_options(parser, "host", "is_strict", "has_ollama", of=serve_options)
    add_options(parser, *LIMITS, of=serve_options, group=parser.add_argument_group("limits and batching"))
    add_options(parser, "keys", "is_open", of=serve_options, group=parser.add_mutually_exclusive_group())
    add_options(parser, "model_impl", "trust_remote_code", of=serve_options)
    add_options(parser, "target", "threads", "activations", "invariant", "kv_cache_dtype", "cache", "jobs")
    add_package_options(parser)


def execute(arguments: Namespace) -> None:
    """Run the command until a signal ends it."""
    from mirlo_llm.serve.options import ServeOptions, parse_adapters, parse_drafts, parse_models
    from mirlo_llm.serve.run import run_server

    options = ServeOptions(**given_options(arguments, ServeOptions))
    sources = parse_drafts(arguments.draft, parse_adapters(arguments.adapter, parse_models(arguments.models)))
    names = ", ".join(source.name for source in sources)
    print(f"mirlo: loading {names}", file=sys.stderr, flush=True)

    def announce(address: str) -> None:
        print(f"mirlo: serving {names} at {address}", file=sys.stderr, flush=True)

    run_server(sources, options, arguments.options, announce)


SERVE = PackageCommand(
    "answer requests over HTTP: OpenAI's API and the Open Inference Protocol", _add_arguments, execute, lasts=True
)
