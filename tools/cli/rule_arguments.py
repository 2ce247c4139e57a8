"""Arguments that choose the rules of operators and the schedules of kernels."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, _ArgumentGroup


def add_rules(parser: _ArgumentGroup | ArgumentParser) -> None:
    """Add `--strategy` and `--schedule`."""
    parser.add_argument(
        "--strategy",
        metavar="OP=NAME",
        type=_strategy,
        action="append",
        default=[],
        help="the rule that is wanted for an operator, such as relax.conv=im2col; 'measure' takes the fastest of all",
    )

    parser.add_argument(
        "--schedule",
        metavar="KERNEL=FILE",
        type=_schedule,
        action="append",
        default=[],
        help="the words that schedule a kernel, as 'explain --save-words' writes them",
    )


def _schedule(text: str) -> str:
    kernel, equals, file = text.partition("=")
    if not (kernel and equals and file):
        raise argparse.ArgumentTypeError(f"expected KERNEL=FILE, found '{text}'")
    return text


def _strategy(text: str) -> str:
    operator, equals, name = text.partition("=")
    if text != "measure" and not (operator and equals and name):
        raise argparse.ArgumentTypeError(f"expected OP=NAME or 'measure', found '{text}'")
    return text
