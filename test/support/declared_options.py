"""What options take: of every command and of every dataclass of options, the values that are at limits, or are none.

Each option has limits, a default, and words with which it refuses a value; a test of a command gives it one.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable, Iterable, Iterator

from mirlo.passes.byoc.target_list import Targets
from mirlo.runtime.options import OptionDeclaration, declared_options
from mirlo.testing.snapshots import checksum
from mirlo.tools.cli.arguments import make_parser
from mirlo.tools.cli.options import OptionsParser

TEXTS = (
    "", " ", "0", "1", "-1", "2", "1.5", "-0.5", "1e9", "nan", "inf", "x", "x=1", "x=2x3", "x=2,3", "x=n", "=1", "x=",
    "x=0.5:0.25", "4GiB", "500 mb", "auto", "llvm", "c,llvm", "0,50", "a,b", "1,2", "2x3", "1:2", "0-3", "f16", "i8",
    "onnxruntime", "onnxruntime=python3", "18446744073709551615", "18446744073709551616", "true", "none", "a=b=c",
)  # fmt: skip
"""Texts of all forms that flags have."""
VALUES: tuple[object, ...] = (
    None, True, 0, 1, -1, 2, 0.5, -0.5, float("nan"), float("inf"), "", "x", "auto", "llvm", b"x", (), [], ["x"],
    ("a", "b"), [1, 2], (0.5, 2), {}, {"x": 1}, {"x": (2, 3)}, {"x": "f16"}, {1: 2}, {"x": 0.5}, {"x": [1, "n"]},
    1 << 64,
)  # fmt: skip
"""Values of all types that options have."""
TARGETS = {
    "llvm": (
        "", "x=1", "avx2", "avx9", "fast", "cpu=", "cpu=x86-64-v3", "cpu=neoverse-n2", "cpu=x", "triple=x",
        "features=avx2", "features=+avx2", "threads=0", "threads=2", "threads=x", "thread_work=-1", "thread_work=1000",
        "memory=x", "memory=1GiB", "cpu=x86-64-v3 cpu=x86-64-v4", "triple=aarch64-unknown-linux-gnu",
        "triple=aarch64-apple-darwin cpu=apple-m1",
    ),
    "nvvm": ("x=1", "chip=sm_90a", "chip=sm_1", "chip=", "chip=sm_80 tf32=true", "chip=sm_80 tf32=x"),
    "spirv": ("", "x=1", "fast"),
    "c": ("", "x=1", "width=32", "source-only"),
}  # fmt: skip
"""Targets with options in braces after their names."""
CLASSES = (
    "driver.options.CompileArguments",
    "tools.bench.options.MeasurementOptions", "tools.quantize.options.Quantization",
    "tools.quantize.options.ImageScaling", "tools.remote.BoardOptions",
    "tools.quantize.options.StaticQuantization",
)  # fmt: skip


def options() -> Iterator[str]:
    """Yield a line for each flag of a command, and for each option of a class."""
    parser = make_parser()
    for command, own in sorted(_commands(parser, "mirlo")):
        assert isinstance(own, OptionsParser)
        own.add_pending()
        for action in own._actions:
            if not isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):
                yield f"{command} {_flag(action)}"
    for target, texts in TARGETS.items():
        outcomes = [_outcome(_parsed_target, f"{target}{{{text}}}") for text in texts]
        yield f"{target}{{}}: {' '.join(map(checksum, outcomes))}"
    for path in CLASSES:
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(f"mirlo.{module}"), name)
        for option, declared in declared_options(kind).items():
            yield f"{name}.{option}: {_option(declared)}"


def _parsed_target(text: str) -> list[str]:
    """Return the options of a target list's host as its pipeline has them."""
    targets = Targets.parse(text).or_host()
    return [str(targets), targets.pipeline()]


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, own in action.choices.items():
                yield f"{name} {command}", own
                yield from _commands(own, f"{name} {command}")


def _flag(action: argparse.Action) -> str:
    """Return the declaration of a flag, and checksums of its help and of parsed texts."""
    declared = [action.dest, action.default, action.nargs, action.const, action.required, action.metavar, action.help]
    names = "/".join(action.option_strings) or action.dest
    outcomes = [] if action.type is None else [_outcome(action.type, text) for text in _texts(str(action.help))]
    choices = "" if action.choices is None else f" of {', '.join(map(str, action.choices))}"
    return f"{names}{choices}: declared {checksum(_plain(declared))}, texts {checksum(outcomes)}"


def _option(declared: OptionDeclaration) -> str:
    """Return checksums of what an option says of values, and of what becomes of texts."""
    kind = declared.kind
    refused = [_outcome(kind.refuse, value) for value in VALUES]
    limits = sorted({limit for text in refused for limit in _limits(text)})
    refused += [_outcome(kind.refuse, limit) for limit in limits]
    parsed = [_outcome(kind.parse, text) for text in (*TEXTS, *map(str, limits))]
    return f"values {checksum(refused)}, texts {checksum(parsed)}, help {checksum([declared.help, declared.since])}"


def _texts(*named: str) -> Iterable[str]:
    return (*TEXTS, *(str(limit) for text in named for limit in _limits(text)))


def _limits(text: str) -> list[int]:
    """Return the integers in a text, and their neighbors."""
    return [int(digits) + near for digits in re.findall(r"\b\d{1,12}\b", text) for near in (-1, 0, 1)]


def _outcome(function: object, value: object) -> str:
    """Return what a function makes of a value, or its error."""
    assert callable(function)
    try:
        return _plain(function(value))
    except Exception as error:  # the checks of options are given what no user gives, too
        return f"{type(error).__name__}: {error}"


def _plain(value: object) -> str:
    """Return a value as text without addresses of objects."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {"tools/cli/options.txt": options}
"""The table, below `test`."""
