"""What `mirlo-opt --help` and `--list-passes` print."""

from __future__ import annotations

import inspect
import textwrap

from mirlo.passes.options import options_of, scan_options
from mirlo.passes.pipeline_parser import unknown_pass
from mirlo.passes.registry import Pass, find_pass, load_all, summary
from mirlo.passes.upstream import default_options, find_upstream
from mirlo.passes.upstream_names import UPSTREAM_NAMES
from mirlo.tools.opt_arguments import FLAGS, FlagKind, UsageError

USAGE = """\
usage: mirlo-opt [FILE] [--PASS[=OPTIONS] ...] [--pass-pipeline=TEXT] [flags]

Reads MLIR from FILE or standard input, runs passes over it in the order given, and prints the result.
"""


def overall_help() -> str:
    lines = [USAGE]
    for title, flags in FLAGS.items():
        lines.append(f"{title}:")
        for flag in flags:
            value = f"={flag.value.label}" if isinstance(flag.value, FlagKind) else ""
            lines.append(f"  {flag.name + value:<44} {flag.help}")
        lines.append("")
    lines.append("Each pass is a flag too, with its options as value: --fold-constant=limit=4, --canonicalize.")
    lines.append("'--list-passes' lists them, '--help PASS' shows the options of one.\n")
    return "\n".join(lines)


def pass_list() -> str:
    """Format names and one-line helps of the passes in Python, names of those of MLIR."""
    lines = ["Passes:"]
    for name, cls in load_all().items():
        lines.append(f"  {name:<30} {summary(cls)}")
    names = textwrap.fill("  ".join(UPSTREAM_NAMES), 118, break_on_hyphens=False, break_long_words=False)
    return "\n".join([*lines, "", "Passes of MLIR:", textwrap.indent(names, "  "), ""])


def pass_help(name: str) -> str:
    """Format the help of one pass."""
    cls = find_pass(name)
    if cls is not None:
        return _python_help(cls)
    upstream = find_upstream(name)
    if upstream is None:
        raise UsageError(unknown_pass(name))
    lines = [f"{name}: a pass of MLIR (https://mlir.llvm.org/docs/Passes)"]
    if upstream.anchor:
        lines.append(f"Runs on each {upstream.anchor}.")
    options = scan_options(default_options(name, upstream.anchor))
    lines += ["", "Options and their defaults:", *(f"  {key}={value}" for key, value, *_ in options)] if options else []
    return "\n".join(lines) + "\n"


def _python_help(cls: type[Pass]) -> str:
    doc = inspect.cleandoc(cls.__doc__ or "").split("\n", 1)
    lines = [f"{cls.name}: {doc[0]}", *doc[1:], f"Runs on {'each ' if cls.anchor == 'func.func' else ''}{cls.anchor}."]
    declared = options_of(cls).values()
    if declared:
        lines += ["", "Options:"]
    for option in declared:
        default = "not given" if option.default is None else option.kind.print(option.default)
        lines.append(f"  {option.name}={option.kind.label}")
        lines += textwrap.wrap(
            f"{option.help} (default: {default})", 100, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines) + "\n"
