"""Flags that several commands have, and what their values must look like."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, _ArgumentGroup, _SubParsersAction
from collections.abc import Callable, Sequence

from mirlo.runtime.names import CACHE_DTYPES

Shapes = dict[str, tuple[int | str, ...]]

AddCommand = Callable[["_SubParsersAction[ArgumentParser]", str, str], ArgumentParser]
"""Adds a command: its name, its purpose."""


def add_input(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        metavar="NAME=FILE.npy",
        type=_assignment,
        action=AppendNamed,
        default=[],
        help="an array for an input; inputs without one get random numbers (integers: 0 and 1)",
    )


def add_model(parser: argparse.ArgumentParser, metavar: str, help_text: str) -> None:
    """Add the model, and the flag that takes a sample in its place."""
    parser.add_argument("model", metavar=metavar, nargs="?", help=help_text)
    parser.add_argument(
        "--sample", metavar="NAME", help="a model that ships with Mirlo in place of a file, such as mobilenetv2"
    )


def add_kv_cache_dtype(parser: _ArgumentGroup | ArgumentParser) -> None:
    """Add `--kv-cache-dtype`."""
    parser.add_argument(
        "--kv-cache-dtype",
        choices=CACHE_DTYPES,
        help="store the f32 caches of a language model in half of the memory, i8 in a quarter (default: as they are)",
    )


def add_target(parser: _ArgumentGroup | ArgumentParser, required: bool = False) -> None:
    """Parse `--target` as `mirlo.compile` takes it: a name, or a list, with options in braces."""
    parser.add_argument(
        "--target",
        "--targets",
        dest="target",
        metavar="NAME,...",
        required=required,
        help="what to make code for (default: llvm, this machine's CPU); with several, the first ones' code generators "
        "take what they can, the last one compiles the rest: 'onednn,llvm'. Options of one: 'c{compiler=clang},llvm'",
    )


def add_cost(parser: _ArgumentGroup | ArgumentParser) -> None:
    parser.add_argument(
        "--cost",
        choices=("priority", "estimated", "measured"),
        default="priority",
        help="how several targets share the model: by their order (default), by the figures that they declare, or by "
        "what is measured here, which is kept with the cache",
    )


class AppendNamed(argparse.Action):
    """Append a value with its name; it is an error to give a name twice, of which one would not count."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Append a pair."""
        assert isinstance(values, tuple)
        before = getattr(namespace, self.dest)
        if any(name == values[0] for name, _ in before):
            raise argparse.ArgumentError(self, f"'{values[0]}' is given twice")
        setattr(namespace, self.dest, [*before, values])


def add_shapes(parser: _ArgumentGroup | ArgumentParser) -> None:
    """Parse `--shape`, and `--dim` with it."""
    add_shape(parser)
    add_dims(parser, "the size of a dynamic dim in all inputs; may be given for several dims")


def add_shape(parser: _ArgumentGroup | ArgumentParser) -> None:
    parser.add_argument(
        "--shape",
        metavar="NAME=1x3x224x224",
        type=_shape,
        action=AppendNamed,
        default=[],
        help="the shape of an input that leaves dims open; a name stands for a dim that stays open",
    )


def add_dims(parser: _ArgumentGroup | ArgumentParser, purpose: str) -> None:
    parser.add_argument("--dim", metavar="NAME=N", type=_size_of_dim, action=AppendNamed, default=[], help=purpose)


def _size_of_dim(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=N, found '{text}'")
    return name, natural(size)


def _assignment(text: str) -> tuple[str, str]:
    # Names may hold '=' too, files of arrays rarely do.
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise argparse.ArgumentTypeError(f"expected NAME=FILE.npy, found '{text}'")
    return name, value


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    name, equals, dims = text.rpartition("=")
    # Commas separate dims with an 'x' in their name.
    words = [word.strip() for word in dims.split("," if "," in dims else "x")]
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=1x3x224x224, found '{text}'")
    return name, tuple(_dim(word, text) for word in words) if dims else ()


def _dim(word: str, text: str) -> int | str:
    if word.isdecimal():
        return int(word)
    if word.isidentifier():
        return word
    raise argparse.ArgumentTypeError(f"expected NAME=1x3x224x224, found the dim '{word}' in '{text}'")


def sizes(text: str) -> dict[str, int]:
    """Parse sizes of dims: batch=8,sequence=128."""
    result: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdecimal():
            raise argparse.ArgumentTypeError(f"expected DIM=N,..., found '{text}'")
        if name.strip() in result:
            raise argparse.ArgumentTypeError(f"'{name.strip()}' is given twice in '{text}'")
        result[name.strip()] = int(size)
    return result


def positive(text: str) -> int:
    return _number(text, 1)


def natural(text: str) -> int:
    return _number(text, 0)


def _number(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a number from {least}, found '{text}'")
    return int(text)
