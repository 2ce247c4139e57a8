"""The command line of `mirlo-opt`. Order matters in it: each pass may be a flag, and they run in the order given."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from mirlo.runtime.records import dataclass


class UsageError(Exception):
    """A command line that makes no sense."""


@dataclass
class OptArguments:
    """What `mirlo-opt` is to do; one field for each flag."""

    input: str = "-"
    output: str = "-"
    pass_pipeline: str | None = None
    pipeline: str | None = None
    passes: list[tuple[str, str]] = field(default_factory=list)
    """Flags that name a pass, with their options."""
    plugins: list[str] = field(default_factory=list)
    list_passes: bool = False
    show_pipeline: bool = False
    help: bool = False
    version: bool = False
    split_input_file: bool = False
    verify_diagnostics: bool = False
    allow_unregistered_dialect: bool = False
    verify_each: bool = True
    emit_bytecode: bool = False
    emit_script: bool = False
    emit_code: str | None = None
    kernel: str | None = None
    print_debuginfo: bool = False
    print_op_generic: bool = False
    print_local_scope: bool = False
    elide_elements: int | None = None
    print_before: list[str] = field(default_factory=list)
    print_after: list[str] = field(default_factory=list)
    print_before_all: bool = False
    print_after_all: bool = False
    print_after_change: bool = False
    print_after_failure: bool = False
    print_module_scope: bool = False
    tree_dir: str | None = None
    timing: bool = False
    reproducer: str | None = None
    run_reproducer: bool = False
    trust_file: bool = False
    debug: bool = False


class Flag(NamedTuple):
    """One flag: the field it sets, and to what; a `Kind` stands for what the command line says."""

    name: str
    field: str
    value: bool | FlagKind
    help: str


class FlagKind(NamedTuple):
    """What follows a flag."""

    label: str
    is_list: bool = False


FILE, TEXT, TARGET, NUMBER = FlagKind("FILE"), FlagKind("TEXT"), FlagKind("TARGET"), FlagKind("N")
FORM, NAME = FlagKind("TARGET:FORM"), FlagKind("NAME")
FOLDER, PASSES, FILES = FlagKind("DIR"), FlagKind("PASS,...", is_list=True), FlagKind("FILE,...", is_list=True)

FLAGS: dict[str, list[Flag]] = {
    "Input and output": [
        Flag("-o", "output", FILE, "write the IR to this file instead of standard output"),
        Flag("--split-input-file", "split_input_file", True, "treat the parts between lines '// -----' separately"),
        Flag("--allow-unregistered-dialect", "allow_unregistered_dialect", True, "accept operations nobody defines"),
        Flag("--emit-bytecode", "emit_bytecode", True, "write MLIR bytecode instead of text"),
        Flag("--emit-script", "emit_script", True, "write the module as script, in Python syntax (.py)"),
        Flag("--emit-code", "emit_code", FORM, "write the code of the kernels of a planned module: llvm:asm, nvvm:ptx"),
        Flag("--kernel", "kernel", NAME, "with --emit-code: of this kernel only"),
        Flag("--mlir-print-debuginfo", "print_debuginfo", True, "print locations"),
        Flag("--mlir-print-op-generic", "print_op_generic", True, "print operations in the generic form"),
        Flag("--mlir-print-local-scope", "print_local_scope", True, "print attributes and types in place, no aliases"),
        Flag("--mlir-elide-elementsattrs-if-larger", "elide_elements", NUMBER, "elide constants of more elements"),
    ],
    "What to run": [
        Flag("--pass-pipeline", "pass_pipeline", TEXT, "run this pipeline, such as 'fold-constant,func.func(cse)'"),
        Flag("--pipeline", "pipeline", TARGET, "run the pipeline of this target, or one it names: TARGET:NAME"),
        Flag("--verify-each", "verify_each", True, "verify the IR after each pass (the default)"),
        Flag("--no-verify-each", "verify_each", False, "do not"),
        Flag("--load-pass-plugin", "plugins", FILES, "import passes from these Python files or modules"),
        Flag("--run-reproducer", "run_reproducer", True, "run the pipeline that the input's first line names"),
        Flag("--trust-file", "trust_file", True, "that line may load plug-ins and run passes that reach outside"),
    ],
    "What to tell": [
        Flag("--list-passes", "list_passes", True, "list all passes"),
        Flag("--show-pipeline", "show_pipeline", True, "print the pipeline and stop"),
        Flag("--help", "help", True, "print this; after the name or the flag of a pass, its options"),
        Flag("--version", "version", True, "print the version"),
        Flag("--verify-diagnostics", "verify_diagnostics", True, "check that 'expected-error' comments come true"),
        Flag("--mlir-print-ir-before", "print_before", PASSES, "print the IR before these passes"),
        Flag("--mlir-print-ir-after", "print_after", PASSES, "print the IR after these passes"),
        Flag("--mlir-print-ir-before-all", "print_before_all", True, "print the IR before each pass"),
        Flag("--mlir-print-ir-after-all", "print_after_all", True, "print the IR after each pass"),
        Flag("--mlir-print-ir-after-change", "print_after_change", True, "only where the pass changed it"),
        Flag("--mlir-print-ir-after-failure", "print_after_failure", True, "print the IR that a failing pass left"),
        Flag("--mlir-print-ir-module-scope", "print_module_scope", True, "always print the whole module"),
        Flag("--mlir-print-ir-tree-dir", "tree_dir", FOLDER, "write the module after each step to a file in here"),
        Flag("--mlir-timing", "timing", True, "print how long each pass took"),
        Flag(
            "--mlir-pass-pipeline-crash-reproducer",
            "reproducer",
            FILE,
            "when a pass fails, leave this file, for --run-reproducer",
        ),
        Flag("--debug", "debug", True, "show the Python traceback of an unexpected exception"),
    ],
}
_BY_NAME = {flag.name: flag for group in FLAGS.values() for flag in group}
_ALIASES = {"-h": "--help"}


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
        flag = _find_flag(name)
        if flag is None:
            arguments.passes.append((name.lstrip("-"), value))
        elif isinstance(flag.value, FlagKind):
            if not has_value:
                if not rest:
                    raise UsageError(f"flag '{flag.name}' needs a value: {flag.name}={flag.value.label}")
                value = rest.pop(0)
            _set(arguments, flag, value)
        else:
            if has_value:
                raise UsageError(f"flag '{flag.name}' takes no value, got '{value}'")
            setattr(arguments, flag.field, flag.value)
    _resolve_inputs(arguments, inputs)
    return arguments


def _find_flag(name: str) -> Flag | None:
    name = _ALIASES.get(name, name)
    return _BY_NAME.get(name) or _BY_NAME.get(f"-{name}") or (_BY_NAME.get(name[1:]) if name == "--o" else None)


def _set(arguments: OptArguments, flag: Flag, value: str) -> None:
    if isinstance(flag.value, FlagKind) and flag.value.is_list:
        getattr(arguments, flag.field).extend(name for name in value.split(",") if name)
    elif flag.value == NUMBER:
        if not value.isdigit():
            raise UsageError(f"flag '{flag.name}' needs a number, got '{value}'")
        setattr(arguments, flag.field, int(value))
    else:
        setattr(arguments, flag.field, value)


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
    """Return the flag that a misspelt one probably means."""
    near = difflib.get_close_matches(f"--{name}", _BY_NAME, n=1, cutoff=0.75)
    return near[0] if near else None
