"""The flags of `mirlo-opt`, one declaration for each: parsing, help and the table of docs/mirlo-opt.md derive from it.

Order matters on the command line: each pass may be a flag, and they run in the order given. `python -m
mirlo.tools.opt_flags` prints the table.
"""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import field, fields
from typing import Any

from mirlo.driver.diagnostics import SEVERITIES
from mirlo.driver.source import SPLIT_MARKER
from mirlo.passes.options import options_of, scan_options
from mirlo.passes.pipeline_parser import unknown_pass
from mirlo.passes.registry import UPSTREAM_NAMES, Pass, find_pass, load_all, summary
from mirlo.passes.upstream import default_options, find_upstream
from mirlo.runtime.records import dataclass


class UsageError(Exception):
    """An invalid command line."""


@dataclass(frozen=True)
class Flag:
    """A flag: the value that it takes, and its purpose."""

    name: str
    kind: FlagKind
    help: str
    group: str
    negated: str = ""
    """A flag that sets a bool to false, as `NAME=false` does."""
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class FlagKind:
    """The kind of value after a flag."""

    label: str = ""
    """Its name in the help; a flag without is a bool, and may have `=true` or `=false`."""
    is_list: bool = False
    is_number: bool = False
    choices: tuple[str, ...] = ()
    implied: str | None = None
    """What the flag alone stands for; None if a value must follow."""


SWITCH = FlagKind()
FILE, TEXT, TARGET, NAME, FOLDER = (FlagKind(label) for label in ("FILE", "TEXT", "TARGET", "NAME", "DIR"))
FORM, NUMBER = FlagKind("TARGET:FORM"), FlagKind("N", is_number=True)
PASSES, FILES = FlagKind("PASS,...", is_list=True), FlagKind("FILE,...", is_list=True)
IO, PRINTING, RUN, SHOW, CHECKS, TRACES = (
    "Input and output", "Printing of IR", "Passes to run", "Information", "Diagnostics", "Reports and reproducers",
)  # fmt: skip
IGNORED_FLAGS = "Accepted, without effect"
VERBOSITIES = {"errors": SEVERITIES[:1], "warnings": SEVERITIES[:2], "remarks": SEVERITIES}
"""The severities that are printed, by the name of the level."""


def flag(name: str, kind: FlagKind, default: Any, group: str, help: str, **more: Any) -> Any:
    """Declare a field of `OptArguments` that a flag sets."""
    metadata = {"flag": Flag(name, kind, help, group, **more)}
    if isinstance(default, list):
        return field(default_factory=list, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class OptArguments:
    """The arguments of `mirlo-opt`."""

    input: str = "-"
    passes: list[tuple[str, str]] = field(default_factory=list)
    """Flags that name a pass, with their options."""
    ignored: list[str] = field(default_factory=list)
    """Flags of `mlir-opt` that have no effect here."""

    output: str = flag("-o", FILE, "-", IO, "write the IR to this file instead of standard output", aliases=("--o",))
    split_input_file: str | None = flag(
        "--split-input-file", FlagKind("MARK", implied=SPLIT_MARKER), None, IO,
        f"treat the parts between lines '{SPLIT_MARKER}', or MARK, separately",
    )  # fmt: skip
    output_split_marker: str = flag(
        "--output-split-marker", TEXT, SPLIT_MARKER, IO, "write this line between the parts of the output"
    )
    allow_unregistered_dialect: bool = flag(
        "--allow-unregistered-dialect", SWITCH, False, IO, "accept operations of dialects that are not registered"
    )
    no_implicit_module: bool = flag(
        "--no-implicit-module", SWITCH, False, IO, "the input is one operation: add no module around it"
    )
    irdl_file: str | None = flag("--irdl-file", FILE, None, IO, "register the dialects of this IRDL file")
    emit_bytecode: bool = flag("--emit-bytecode", SWITCH, False, IO, "write MLIR bytecode instead of text")
    bytecode_version: int | None = flag(
        "--emit-bytecode-version", NUMBER, None, IO, "write this version of MLIR bytecode"
    )
    emit_script: bool = flag(
        "--emit-script",
        SWITCH,
        False,
        IO,
        "write the module as a script, in Python syntax",
        aliases=("--print-script",),
    )
    emit_code: str | None = flag(
        "--emit-code", FORM, None, IO, "write the code of the kernels of a planned module: llvm:asm, nvvm:ptx"
    )
    kernel: str | None = flag("--kernel", NAME, None, IO, "with --emit-code: write the code of this kernel only")
    verify_roundtrip: bool = flag(
        "--verify-roundtrip",
        SWITCH,
        False,
        IO,
        "check that the input is the same after printing and parsing, as text and bytecode",
    )

    print_debuginfo: bool = flag("--mlir-print-debuginfo", SWITCH, False, PRINTING, "print locations")
    pretty_debuginfo: bool = flag(
        "--mlir-pretty-debuginfo", SWITCH, False, PRINTING, "with --mlir-print-debuginfo: print them in a short form"
    )
    print_op_generic: bool = flag(
        "--mlir-print-op-generic", SWITCH, False, PRINTING, "print operations in the generic form"
    )
    print_local_scope: bool = flag(
        "--mlir-print-local-scope", SWITCH, False, PRINTING, "print attributes and types inline, without aliases"
    )
    assume_verified: bool = flag(
        "--mlir-print-assume-verified", SWITCH, False, PRINTING, "print without verifying first"
    )
    skip_regions: bool = flag(
        "--mlir-print-skip-regions", SWITCH, False, PRINTING, "do not print regions of operations"
    )
    nameloc_as_prefix: bool = flag(
        "--mlir-use-nameloc-as-prefix", SWITCH, False, PRINTING, "name values after their locations"
    )
    elide_elements: int | None = flag(
        "--mlir-elide-elementsattrs-if-larger", NUMBER, None, PRINTING, "elide constants with more than N elements"
    )
    elide_resources: int | None = flag(
        "--mlir-elide-resource-strings-if-larger", NUMBER, None, PRINTING, "elide resources with more than N characters"
    )

    pass_pipeline: str | None = flag(
        "--pass-pipeline",
        TEXT,
        None,
        RUN,
        "run this pipeline, such as 'fold-constant,func.func(cse)'",
        aliases=("-p", "--p"),
    )
    pipeline: str | None = flag(
        "--pipeline", TARGET, None, RUN, "run the pipeline of this target, or one of its named pipelines: TARGET:NAME"
    )
    verify_each: bool = flag(
        "--verify-each", SWITCH, True, RUN, "verify the IR after each pass (the default)", negated="--no-verify-each"
    )
    plugins: list[str] = flag("--load-pass-plugin", FILES, [], RUN, "import passes from these Python files or modules")
    run_reproducer: bool = flag(
        "--run-reproducer",
        SWITCH,
        False,
        RUN,
        "run the pipeline in the input: in its first line, or in the resource of upstream reproducers",
    )
    trust_file: bool = flag(
        "--trust-file",
        SWITCH,
        False,
        RUN,
        "allow that pipeline to load plug-ins and to run passes that access files or processes",
    )

    list_passes: bool = flag("--list-passes", SWITCH, False, SHOW, "list all passes")
    show_dialects: bool = flag("--show-dialects", SWITCH, False, SHOW, "list the registered dialects")
    show_pipeline: bool = flag("--show-pipeline", SWITCH, False, SHOW, "print the pipeline and stop")
    dump_pass_pipeline: bool = flag(
        "--dump-pass-pipeline", SWITCH, False, SHOW, "print the pipeline to standard error, and run it"
    )
    help: bool = flag(
        "--help", SWITCH, False, SHOW, "print this help, or the options of a pass after its name or flag",
        aliases=("-h", "--help-hidden", "--help-list", "--help-list-hidden"),
    )  # fmt: skip
    version: bool = flag("--version", SWITCH, False, SHOW, "print the version")
    print_before: list[str] = flag("--mlir-print-ir-before", PASSES, [], SHOW, "print the IR before these passes")
    print_after: list[str] = flag("--mlir-print-ir-after", PASSES, [], SHOW, "print the IR after these passes")
    print_before_all: bool = flag("--mlir-print-ir-before-all", SWITCH, False, SHOW, "print the IR before each pass")
    print_after_all: bool = flag("--mlir-print-ir-after-all", SWITCH, False, SHOW, "print the IR after each pass")
    print_after_change: bool = flag(
        "--mlir-print-ir-after-change", SWITCH, False, SHOW, "print the IR after passes that change it"
    )
    print_after_failure: bool = flag(
        "--mlir-print-ir-after-failure", SWITCH, False, SHOW, "print the IR after a pass that fails"
    )
    print_module_scope: bool = flag(
        "--mlir-print-ir-module-scope", SWITCH, False, SHOW, "always print the whole module"
    )
    tree_dir: str | None = flag(
        "--mlir-print-ir-tree-dir", FOLDER, None, SHOW, "write the module after each pass to a file in this folder"
    )

    verify_diagnostics: str | None = flag(
        "--verify-diagnostics", FlagKind("all|only-expected", choices=("all", "only-expected"), implied="all"), None,
        CHECKS, "check diagnostics against 'expected-error' comments; only-expected ignores other diagnostics",
    )  # fmt: skip
    print_op_on_diagnostic: bool = flag(
        "--mlir-print-op-on-diagnostic", SWITCH, True, CHECKS, "print the operation with its errors (the default)"
    )
    print_stack_on_diagnostic: bool = flag(
        "--mlir-print-stacktrace-on-diagnostic",
        SWITCH,
        False,
        CHECKS,
        "print the Python stack trace of each diagnostic",
    )
    disable_notes: bool = flag(
        "--mlir-disable-diagnostic-notes", SWITCH, False, CHECKS, "do not print notes of diagnostics"
    )
    verbosity: str = flag(
        "--mlir-diagnostic-verbosity-level", FlagKind("|".join(VERBOSITIES), choices=tuple(VERBOSITIES)), "remarks",
        CHECKS, "print diagnostics of this severity and graver ones",
    )  # fmt: skip
    debug: bool = flag("--debug", SWITCH, False, CHECKS, "show the Python traceback of an unexpected exception")

    timing: bool = flag("--mlir-timing", SWITCH, False, TRACES, "print the time of each pass")
    timing_display: str = flag(
        "--mlir-timing-display", FlagKind("list|tree", choices=("list", "tree")), "tree", TRACES,
        "list: sorted by time; tree: in the order of the pipeline",
    )  # fmt: skip
    statistics: bool = flag(
        "--mlir-pass-statistics",
        SWITCH,
        False,
        TRACES,
        "print the statistics of MLIR's passes, in builds that have them",
    )
    statistics_display: str = flag(
        "--mlir-pass-statistics-display", FlagKind("list|pipeline", choices=("list", "pipeline")), "pipeline", TRACES,
        "list: sorted by name; pipeline: by pass",
    )  # fmt: skip
    log_actions: str | None = flag("--log-actions-to", FILE, None, TRACES, "log the start and the end of each pass")
    reproducer: str | None = flag(
        "--mlir-pass-pipeline-crash-reproducer", FILE, None, TRACES,
        "write a reproducer to this file if a pass fails, for --run-reproducer",
    )  # fmt: skip
    written_reproducer: str | None = flag(
        "--mlir-generate-reproducer",
        FILE,
        None,
        TRACES,
        "write a reproducer of the input and the pipeline to this file",
    )


def _ignored(name: str, why: str, kind: FlagKind = SWITCH) -> Flag:
    return Flag(name, kind, why, IGNORED_FLAGS)


IGNORED = tuple(
    _ignored(*row)
    for row in (
        ("--mlir-disable-threading", "passes run in one thread anyway"),
        ("--mlir-print-value-users", "MLIR's bindings for Python print no users"),
        ("--mlir-print-unique-ssa-ids", "MLIR's bindings for Python number values in each function"),
        ("--mlir-print-elementsattrs-with-hex-if-larger", "MLIR's bindings have its default, 100 elements", NUMBER),
        ("--mlir-pass-pipeline-local-reproducer", "reproducers begin with the pass that fails anyway"),
        ("--mlir-very-unsafe-disable-verifier-on-parsing", "MLIR's bindings verify what they parse"),
        ("--mlir-enable-debugger-hook", "passes are Python: set breakpoints there"),
        ("--mlir-debug-counter", "passes have no counters", TEXT),
        ("--mlir-print-debug-counter", "passes have no counters"),
        ("--mlir-output-format", "times are printed as text", TEXT),
        ("--log-mlir-actions-filter", "--log-actions-to writes all", TEXT),
        ("--profile-actions-to", "--mlir-timing and --log-actions-to print times and order", FILE),
        ("--emit-bytecode-producer", "MLIR's bindings name the producer", TEXT),
        ("--elide-resource-data-from-bytecode", "MLIR's bindings write all data"),
        ("--load-dialect-plugin", "dialects are registered by packages: docs/targets.md, mirlo.dialects", FILE),
        ("--remarks-filter", "remarks of passes are printed as diagnostics", TEXT),
        ("--remarks-filter-passed", "remarks of passes are printed as diagnostics", TEXT),
        ("--remarks-filter-missed", "remarks of passes are printed as diagnostics", TEXT),
        ("--remarks-filter-failed", "remarks of passes are printed as diagnostics", TEXT),
        ("--remarks-filter-analyse", "remarks of passes are printed as diagnostics", TEXT),
        ("--remark-format", "remarks of passes are printed as diagnostics", TEXT),
        ("--remark-policy", "remarks of passes are printed as diagnostics", TEXT),
        ("--remarks-output-file", "remarks of passes are printed as diagnostics", FILE),
        ("--debug-only", "passes are Python: --debug shows tracebacks", TEXT),
        ("--print-options", "--help lists all flags"),
        ("--print-all-options", "--help lists all flags"),
        ("--color", "output has no colors"),
    )
)
"""Flags of `mlir-opt` that mean nothing here, and why."""

_FIELDS: dict[str, str] = {}
FLAGS: list[Flag] = []
for _field in fields(OptArguments):
    if "flag" in _field.metadata:
        FLAGS.append(_field.metadata["flag"])
        _FIELDS[_field.metadata["flag"].name] = _field.name
_BY_NAME = {name: flag for flag in (*FLAGS, *IGNORED) for name in (flag.name, flag.negated, *flag.aliases) if name}


def parse_arguments(argv: Sequence[str]) -> OptArguments:
    """Parse flags with one dash or two, with values after '=' or as the next argument; anything unknown is a pass."""
    arguments = OptArguments()
    inputs: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            inputs.append(word)
            continue
        name, has_value, value = word.partition("=")
        declared = _BY_NAME.get(name) or _BY_NAME.get(f"-{name}")
        if declared is None:
            arguments.passes.append((name.lstrip("-"), value))
            continue
        if not has_value and declared.kind.label and declared.kind.implied is None:
            if not rest:
                raise UsageError(f"flag '{declared.name}' needs a value: {declared.name}={declared.kind.label}")
            value = rest.pop(0)
        parsed = _value(
            declared, value if has_value or value else None, name.lstrip("-") == declared.negated.lstrip("-")
        )
        if declared.group == IGNORED_FLAGS:
            arguments.ignored.append(f"{declared.name} has no effect: {declared.help}")
        elif declared.kind.is_list:
            getattr(arguments, _FIELDS[declared.name]).extend(parsed)
        else:
            setattr(arguments, _FIELDS[declared.name], parsed)
    _resolve_inputs(arguments, inputs)
    return arguments


def _value(declared: Flag, value: str | None, is_negated: bool) -> Any:
    """Return the value that a flag with this text after it sets; None for a flag alone."""
    kind = declared.kind
    if not kind.label:
        if value is None or (value.lower() in ("true", "1", "false", "0") and not is_negated):
            return (value or "true").lower() in ("true", "1") and not is_negated
        takes = "takes no value" if is_negated else "is true or false"
        raise UsageError(f"flag '{declared.negated if is_negated else declared.name}' {takes}, got '{value}'")
    text = kind.implied if value is None else value
    assert text is not None
    if kind.is_list:
        return [name for name in text.split(",") if name]
    if kind.choices and text not in kind.choices:
        raise UsageError(f"flag '{declared.name}' is {' or '.join(kind.choices)}, got '{text}'")
    if kind.is_number:
        try:
            return int(text, 0)
        except ValueError:
            raise UsageError(f"flag '{declared.name}' needs a number, got '{text}'") from None
    return text


def _resolve_inputs(arguments: OptArguments, inputs: list[str]) -> None:
    if arguments.help:
        # `--help PASS` and `--PASS --help` ask for the same.
        arguments.passes += [(name, "") for name in inputs]
        return
    if len(inputs) > 1:
        raise UsageError(f"one input file at a time, got {len(inputs)}: {', '.join(inputs)}")
    arguments.input = inputs[0] if inputs else "-"
    pipelines = [
        name
        for name, value in (
            ("--pass-pipeline", arguments.pass_pipeline),
            ("--pipeline", arguments.pipeline),
            ("passes as flags", arguments.passes),
        )
        if value
    ]
    if len(pipelines) > 1:
        raise UsageError(f"give either {' or '.join(pipelines)}, not both")


def nearest_flag(name: str) -> str | None:
    """Return the flag that was probably meant by a misspelt one."""
    near = difflib.get_close_matches(f"--{name}", _BY_NAME, n=1, cutoff=0.75)
    return near[0] if near else None


USAGE = """\
usage: mirlo-opt [FILE] [--PASS[=OPTIONS] ...] [--pass-pipeline=TEXT] [flags]

Reads MLIR from FILE or standard input, runs passes in the order of the flags, and prints the result.
"""


def overall_help() -> str:
    """Format the help of all flags."""
    lines = [USAGE]
    for group, flags in _groups():
        lines.append(f"{group}:")
        lines += [f"  {_written(each):<48} {each.help}" for each in flags]
        lines.append("")
    lines.append("Each pass is a flag too, with its options as value: --fold-constant=limit=4, --canonicalize.")
    lines.append("See '--list-passes' for all passes, '--help PASS' for the options of one.\n")
    return "\n".join(lines)


def flags_table() -> Iterator[str]:
    """Yield the table of docs/mirlo-opt.md."""
    for group, flags in _groups():
        yield f"| {group} | |"
        yield "| --- | --- |"
        for each in flags:
            names = ", ".join(f"`{name}`" for name in (_written(each), each.negated, *each.aliases) if name)
            yield f"| {names.replace('|', chr(92) + '|')} | {each.help} |"
        yield ""


def _groups() -> Iterator[tuple[str, list[Flag]]]:
    for group in dict.fromkeys(each.group for each in (*FLAGS, *IGNORED)):
        yield group, [each for each in (*FLAGS, *IGNORED) if each.group == group]


def _written(each: Flag) -> str:
    if not each.kind.label:
        return each.name
    return f"{each.name}[={each.kind.label}]" if each.kind.implied is not None else f"{each.name}={each.kind.label}"


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


if __name__ == "__main__":
    print("\n".join(flags_table()))
