"""The flags of `mirlo embed`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction

from mirlo.tools.cli.options import add_options
from mirlo.tools.cli.values import AddCommand, positive


def add_embed(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the command `embed`."""
    parser = add(commands, "embed", "turn texts into rows of numbers, or order them by how well they answer a query")
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="a folder with an encoder or an embedding model (config.json with weights in safetensors or ONNX)",
    )
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="a text")
    parser.add_argument("--texts", dest="file", metavar="FILE", help="a file with a text a line; '-' reads from input")
    parser.add_argument("--query", metavar="TEXT", help="print the texts in the order in which they answer this one")
    parser.add_argument("--top", metavar="N", type=positive, help="with --query: only the first texts")
    parser.add_argument(
        "-o", "--output", metavar="FILE.npy", help="write the rows to a file (default: lines of JSON to the output)"
    )
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="what each text begins with")
    prompt.add_argument("--prompt-name", metavar="NAME", help="a prompt of the folder, such as 'query'")
    parser.add_argument("--dimensions", metavar="N", type=positive, help="keep the first elements of rows")
    parser.add_argument("--pooling", metavar="NAME", help="how rows of tokens become one, in place of the folder's way")
    parser.add_argument("--truncate", action="store_true", help="leave out the end of texts that are too long")
    parser.add_argument("--batch", metavar="N", type=positive, default=32, help="texts of a call (default: 32)")
    add_options(parser, "target", "threads", "activations", "cache", "jobs")
