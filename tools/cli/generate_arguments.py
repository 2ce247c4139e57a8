"""The flags of `mirlo generate` and `mirlo chat`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction
from collections.abc import Callable

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand, natural, positive

_SEARCH: tuple[tuple[str, Callable[[str], float], str], ...] = (
    ("max-new-tokens", positive, "end an answer after so many tokens (default: the search options of the folder)"),
    ("temperature", float, "draw tokens at random; more than 1 is more random, 0 takes the most probable ones"),
    ("top-k", natural, "draw from so many most probable tokens"),
    ("top-p", float, "draw from the fewest tokens whose probabilities add up to this"),
    ("min-p", float, "draw from tokens with this share of the largest probability"),
    ("repetition-penalty", float, "make tokens that occurred less probable; 1 is no penalty"),
    ("frequency-penalty", float, "subtracted from the logit of a token for each time that it was generated"),
    ("presence-penalty", float, "subtracted from the logits of tokens that were generated"),
    ("no-repeat-ngram-size", natural, "let no so many tokens occur twice in a row"),
    ("num-beams", positive, "search for the most probable answer among so many, and print it at its end"),
    ("seed", natural, "of the random tokens"),
    ("lookup", natural, "guess so many tokens a step from what came before; right guesses cost no step of their own"),
)
SEARCH_NAMES = tuple(name.replace("-", "_") for name, _, _ in _SEARCH)
"""Fields of `SearchOptions` that have a flag."""


def add_generate(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the commands `generate` and `chat`."""
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
    chat = add(commands, "chat", "talk with a language model, line by line")
    _add_folder(chat)
    chat.add_argument("--system", metavar="TEXT", help="what the model is told first")
    _add_generation(chat)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="a folder with a model, or its weights in safetensors, and genai_config.json or config.json; "
        "or a GGUF file",
    )


def _add_generation(parser: argparse.ArgumentParser) -> None:
    search = parser.add_argument_group("choice of tokens")
    for name, kind, text in _SEARCH:
        search.add_argument(f"--{name}", metavar="N", type=kind, help=text)
    search.add_argument("--adapter", metavar="FILE", help="use a LoRA adapter: a file .onnx_adapter or .safetensors")
    search.add_argument("--stop", metavar="TEXT", action="append", default=[], help="end where this text would begin")
    add_options(parser, "target", "threads", "activations", "kv_cache_dtype", "cache", "jobs")
    parser.add_argument(
        "--pages", metavar="N", type=positive, help="keep caches of PagedAttention in at most so many pages"
    )
