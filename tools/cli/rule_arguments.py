"""Arguments that choose the rules of operators and the schedules of kernels."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, _ArgumentGroup

from mirlo.tools.cli.values import AppendNamed


def add_rules(parser: _ArgumentGroup | ArgumentParser) -> None:
    """Add `--strategy` and `--schedule`."""
    parser.add_argument(
        "--strategy",
        metavar="OP=NAME",
        type=_strategy,
        action=AppendNamed,
        default=[],
        help="the rule that is wanted for an operator, such as relax.conv=im2col; 'measure' takes the fastest of all",
    )

    parser.add_argument(
        "--schedule",
        metavar="KERNEL=FILE",
        type=_schedule,
        action=AppendNamed,
        default=[],
        help="the words that schedule a kernel, as 'explain --save-words' writes them",
    )


MEASURE = ("measure", "")
"""The strategy that measures all of an operator."""


def _schedule(text: str) -> tuple[str, str]:
    """Return the kernel and the file."""
    return _pair(text, "KERNEL=FILE")


def _strategy(text: str) -> tuple[str, str]:
    """Return the operator and the rule's name, or `MEASURE`."""
    return MEASURE if text == MEASURE[0] else _pair(text, "OP=NAME or 'measure'")


def _pair(text: str, expected: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"expected {expected}, found '{text}'")
    return name, value
