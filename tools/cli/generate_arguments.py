"""The flags of `mirlo generate` and `mirlo chat`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand, positive


def search_options() -> type:
    """Return the options of a search."""
    from mirlo.generate.search import SearchOptions

    return SearchOptions


def add_generate(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the commands `generate`, `chat` and `perplexity`."""
    generate = add(commands, "generate", "let a language model continue a text")
    _add_folder(generate)
    generate.add_argument(
        "prompt", metavar="PROMPT", nargs="?", help="the text to continue; '-' reads it from standard input"
    )
    generate.add_argument(
        "--prompts",
        metavar="FILE",
        help="continue many prompts together: a JSON text a line, or an object with 'prompt', 'messages' or 'tokens' "
        "and options; '-' reads lines as they come. Answers are lines of JSON, in the order in which they end",
    )
    generate.add_argument(
        "--slots", metavar="N", type=positive, default=8, help="run so many of the prompts at a time (default: 8)"
    )
    generate.add_argument("--stream", action="store_true", help="with --prompts: also write text as it comes")
    generate.add_argument("--chat", action="store_true", help="the prompt is a message: format it as the model expects")
    _add_generation(generate)
    add_options(generate, "ranks", "rank_plan")
    chat = add(commands, "chat", "talk with a language model, line by line")
    _add_folder(chat)
    chat.add_argument("--system", metavar="TEXT", help="what the model is told first")
    _add_generation(chat)
    perplexity = add(commands, "perplexity", "measure how well a language model predicts a text")
    _add_folder(perplexity)
    perplexity.add_argument("text", metavar="TEXT.txt", help="a text in UTF-8; '-' reads it from standard input")
    perplexity.add_argument(
        "--window", metavar="N", type=positive, help="tokens that are read at a time (default: 512, or what it takes)"
    )
    add_options(perplexity, "target", "threads", "activations", "cache", "jobs")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="a folder with a model, or its weights in safetensors, and genai_config.json or config.json; "
        "or a GGUF file",
    )


def _add_generation(parser: argparse.ArgumentParser) -> None:
    search = parser.add_argument_group("choice of tokens")
    # The folder of the model says what is done without a flag.
    add_options(parser, of=search_options, group=search, shows_defaults=False)
    search.add_argument("--adapter", metavar="FILE", help="use a LoRA adapter: a file .onnx_adapter or .safetensors")
    search.add_argument("--stop", metavar="TEXT", action="append", default=[], help="end where this text would begin")
    form = parser.add_argument_group("form of answers").add_mutually_exclusive_group()
    form.add_argument("--json-schema", metavar="FILE", help="JSON of the schema in this file")
    form.add_argument("--regex", metavar="PATTERN", help="text that matches this regular expression as a whole")
    form.add_argument("--lark", metavar="FILE", help="a sentence of the grammar in this file, in Lark's syntax")
    add_options(parser, "target", "threads", "activations", "kv_cache_dtype", "cache", "jobs")
    parser.add_argument(
        "--image",
        metavar="FILE",
        action="append",
        default=[],
        help="an image for a model that takes such: where the prompt has a place for it, or else before it; of a chat, "
        "in the first message. May be repeated",
    )
    parser.add_argument(
        "--mmproj",
        metavar="FILE",
        help="the encoder of images of a GGUF file, in a file that llama.cpp calls mmproj",
    )
    parser.add_argument(
        "--pages", metavar="N", type=positive, help="keep caches of PagedAttention in at most so many pages"
    )
