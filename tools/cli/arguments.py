"""The command line of `mirlo`, with commands of packages by the entry point group `mirlo.commands`."""

from __future__ import annotations

import argparse
from argparse import _SubParsersAction
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mirlo.runtime.entry_points import EntryPoint, installed_version, offered
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.interpreter import UsualCollections
from mirlo.runtime.known_packages import COMMANDS, install_command
from mirlo.tools.cli.options import OptionsParser, add_options, add_package_options, given_options
from mirlo.tools.cli.values import (
    AddCommand,
    Shapes,
    add_board,
    add_input,
    add_model,
    add_remote,
    add_results,
    natural,
    positive,
)

GROUP = "mirlo.commands"


class PackageCommand(NamedTuple):
    """A command of a package: its line of help, the function that adds its arguments, and the one that executes it."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], None]
    lasts: bool = False
    """Whether it runs until it is ended, as a server does: then Python collects garbage as usual."""


def add_package_commands(
    parser: argparse.ArgumentParser,
    commands: _SubParsersAction[argparse.ArgumentParser],
    add: AddCommand,
    argv: Sequence[str],
) -> None:
    """Add the command of a package that a command line names; without one, the names of all, for `mirlo --help`.

    No package is imported but the one whose command is run. A known command whose package is missing is an error.
    """
    named = next((word for word in argv if not word.startswith("-")), None)
    if named in commands.choices:
        return
    entries = {entry.name: entry for entry in offered(GROUP)}
    if named in entries:
        _add_command(entries[named], commands, add)
    elif named in COMMANDS:
        parser.error(f"'{named}' is a command of a package that is not installed: {install_command(GROUP, named)}")
    elif named is None:
        for name in sorted({*entries, *COMMANDS}):
            purpose = COMMANDS.get(name) or f"a command of package '{entries[name].package}'"
            missing = "" if name in entries else f" ({install_command(GROUP, name)})"
            commands.add_parser(name, help=purpose + missing)


def add_all_package_commands(commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    """Add the commands of all installed packages, which imports them."""
    for entry in sorted(offered(GROUP), key=lambda entry: entry.name):
        _add_command(entry, commands, add)


def _add_command(entry: EntryPoint, commands: _SubParsersAction[argparse.ArgumentParser], add: AddCommand) -> None:
    from mirlo.runtime.callbacks import Expected, checked, is_none  # `mirlo --help` needs none of these

    command: PackageCommand = entry.load()
    owner, nothing = f"the command '{entry.name}'", Expected("nothing: a command that fails raises an error", is_none)
    added = add(commands, entry.name, command.help)
    checked(command.add_arguments, nothing, owner, MirloError)(added)
    execute = checked(command.execute, nothing, owner, MirloError)
    added.set_defaults(execute=UsualCollections()(execute) if command.lasts else execute)


__all__ = ["Arguments", "Shapes", "make_parser"]


class Arguments(argparse.Namespace):
    """The parsed arguments; each command has some of these."""

    command: str
    model: str
    sample: str | None
    model_dest: str
    """The argument that holds the model, where there may be a sample in its place."""
    needs_model: bool = True
    output: str | None
    target: str | None
    given: str | None
    threads: int | None
    shape: list[tuple[str, tuple[int | str, ...]]]
    timing: bool
    emit: str
    kernel: str | None
    kernel_names: list[str]
    name: str | None
    weights: str
    input: list[tuple[str, str]]
    output_dir: str | None
    repeat: int
    seed: int
    profile: bool
    timeline: str | None
    kernel_rows: int
    processor: str | None
    rounds: int
    casts: str
    graph: bool
    sizes: list[str]
    plugin: list[str]
    kind: str
    package: str
    into: str
    subject: str
    node: str | None
    after: str | None
    save_trace: str | None
    model_explorer: str | None
    netron: str | None
    no_times: bool
    open: bool
    json: bool = False
    quiet: bool = False
    operator: list[str]
    markdown: bool
    verbose: bool
    script: bool
    against: str
    database: str | None
    ray: str | None
    remote: str | None
    token_file: str | None
    count: int
    processes: int
    timeout: int
    rtol: float | None
    atol: float | None
    debug: bool = False
    action: str
    limit: int
    models: list[str]
    engines: tuple[str, ...]
    thread_counts: tuple[int, ...]
    seconds: float
    python: list[tuple[str, str]]
    dim: list[tuple[str, int]]
    kernels: int
    report: Any
    """The report file of `bench`; for `compile`, whether to print a report."""
    reports: list[str]
    expect: str | None
    attempts: bool
    folder: str
    shell: str

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.result: dict[str, Any] = {}

    def show(self, *lines: str) -> None:
        """Print lines, unless the command line requests JSON or nothing."""
        if not (self.json or self.quiet):
            print(*lines, sep="\n")

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of `mirlo.compile` that the command line sets."""
        return given_options(self)

    @property
    def shapes(self) -> Shapes:
        """Return the shapes by input, including those that follow from sizes of dims."""
        shapes = dict(self.shape)
        if not self.dim:
            return shapes
        from mirlo.driver.models import fix_dims

        dims = fix_dims(self.subject if "subject" in self else self.model, shapes, dict(self.dim)) or {}
        return {name: tuple(shape) for name, shape in dims.items() if shape is not None}


class CommandParser(OptionsParser):
    """A parser whose errors name the flag that was probably meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reject unknown flags here, where the flags of the command are known."""
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            flag = rest[0].partition("=")[0]
            command = install_command("mirlo.compile_options", flag.removeprefix("--").replace("-", "_"))
            if command is not None:
                self.error(f"'{flag}' is a flag of a package that is not installed: {command}")
            hint = nearest(flag, self._option_string_actions) if flag.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return parsed, rest


def make_parser(argv: Sequence[str] | None = None, with_packages: bool = False) -> argparse.ArgumentParser:
    """Return the parser of all commands of Mirlo, and of those of packages.

    Of the latter, that has the command which a command line names, or all with `with_packages`.
    """
    parser: argparse.ArgumentParser = CommandParser(
        prog="mirlo",
        description="Compile and run machine-learning models.",
        epilog="See 'mirlo COMMAND --help' for the options of a command. 'mirlo-opt' runs single passes.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_compile(commands)
    _add_run(commands)
    info = _add(commands, "info", "show the inputs, outputs, size and requirements of a model")
    add_model(info, "MODEL", "an ONNX model (.onnx) or a compiled one (.mirlo)")
    add_results(info)
    add_options(info, "shapes", "dims")
    check = _add(commands, "check", "list the nodes of an ONNX model that cannot be compiled, with the reason")
    add_model(check, "MODEL.onnx", "the model")
    add_options(check, "target")
    add_results(check)
    add_options(check, "shapes", "dims")
    _add_verify(commands)
    importing = _add(commands, "import", "convert an ONNX model, or a program of another system, to IR")
    add_model(
        importing,
        "MODEL",
        "the model: .onnx, or a file that a front end opens, such as StableHLO (.mlir, .mlirbc) and .tflite",
    )
    importing.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: standard output)")
    importing.add_argument("--script", action="store_true", help="write a script, in Python syntax, instead of MLIR")
    add_options(importing, "shapes", "dims")
    _add_quantize(commands)
    _add_link(commands)
    _add(commands, "targets", "list the targets")
    doctor = _add(commands, "doctor", "check the installation: list missing parts, with the command that installs each")
    add_results(doctor)
    doctor.add_argument(
        "--measure",
        action="store_true",
        help="measure the rates of this processor's caches, memory and instructions, and use them for all later "
        "compilations",
    )
    completion = _add(commands, "completion", "print the script for shell completion")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    _add_explain(commands)
    _add_explorer(commands)
    _add_check_target(commands)
    _add_new(commands)
    add_remote(commands, _add)
    named = next((word for word in argv or () if not word.startswith("-")), None)
    if named not in commands.choices:
        # Imported here: a command line that names one of the commands above needs the arguments of no other.
        from mirlo.tools.cli.measuring import add_bench, add_cache
        from mirlo.tools.cli.search_arguments import add_searches

        add_cache(commands, _add)
        add_bench(commands, _add)
        add_searches(commands, _add)
    if with_packages:
        add_all_package_commands(commands, _add)
    elif argv is not None:
        add_package_commands(parser, commands, _add, argv)
    return parser


class EmitChoices:
    """The values of `--emit`: also the forms of code of targets, which plug-ins may add after the line is read."""

    def __contains__(self, name: object) -> bool:
        return True  # the target decides

    def __iter__(self) -> Iterator[str]:
        from mirlo.passes.targets import TargetError, declared_target, target_names
        from mirlo.tools.library_forms import library_forms

        names = dict.fromkeys(("executable", *library_forms()))
        for name in target_names():
            try:
                names |= dict.fromkeys(form.name for form in declared_target(name).forms)
            except TargetError:
                continue  # a broken target is an error where it is used
        return iter(names)


def _add_compile(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "compile", "compile a model to a .mirlo file")
    add_model(parser, "MODEL", "an ONNX model, IR of any stage (.mlir), or a script (.py)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write (default: MODEL.mirlo, here)")
    parser.add_argument(
        "--emit",
        metavar="FORM",
        choices=EmitChoices(),
        default="executable",
        help="the form of the output. library, object: a shared library or object files, with headers for C, C++ and "
        "Rust, in the folder of -o. A form of the target's code: one file per kernel, in a folder: llvm-dialect, "
        "llvm-ir, asm or obj (llvm); nvvm-dialect, llvm-ir or ptx (nvvm); spirv-dialect or spirv (spirv). source: "
        "the whole model as C with '--target c', or the output of code generators, C or ONNX, in a folder",
    )
    parser.add_argument(
        "--kernel", metavar="NAME", help="with a form of code: write this kernel only, to the file of -o"
    )
    _add_library(parser, "of a library (default: that of the file)")
    add_options(parser, group=parser.add_argument_group("compilation"))
    add_results(parser)
    parser.add_argument("--timing", action="store_true", help="print the time of each step")
    parser.add_argument(
        "--report", action="store_true", help="print memory use beside its lower bound, kernels, and steps"
    )


def _add_library(parser: argparse.ArgumentParser, which: str) -> None:
    parser.add_argument("--name", metavar="NAME", help=f"the name {which}")
    parser.add_argument(
        "--weights",
        choices=("auto", "embed", "beside"),
        default="auto",
        help="where a library has its weights: embed in it, or beside it in a file (default: embed up to 64 MiB, in "
        "source up to 1 MiB)",
    )


def _add_link(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "link", "link a compiled model to a shared library")
    parser.add_argument("model", metavar="MODEL", help="a compiled model (.mirlo)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the library (default: libMODEL.so, here)")
    add_results(parser)
    _add_library(parser, "of the model in the library (default: that of the file)")


def _add_quantize(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "quantize", "quantize the weights of products to 2, 4 or 8 bits, or a whole model to int8")
    add_model(
        parser,
        "MODEL",
        "an ONNX model whose weights are f32 or f16, or a folder with a model of a form that a package opens",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file or folder to write (default: MODEL.uBITS.onnx, MODEL.int8.onnx or FOLDER.uBITS, here)",
    )
    add_quantization(parser)


def _add_run(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "run", "run a model and print its outputs")
    add_model(parser, "MODEL", "a compiled model (.mirlo), or a model to compile first")
    add_input(parser)
    add_results(parser)
    parser.add_argument("--output-dir", metavar="DIR", help="write each output to DIR as a .npy file")
    parser.add_argument("--repeat", metavar="N", type=positive, default=10, help="number of timed runs (default: 10)")
    parser.add_argument("--seed", metavar="S", type=natural, default=0, help="seed of random inputs (default: 0)")
    parser.add_argument("--profile", action="store_true", help="print the time of each kernel")
    parser.add_argument(
        "--timeline", metavar="FILE", help="with --profile: draw when the units of a device worked, as SVG"
    )
    parser.add_argument(
        "--kernels", dest="kernel_rows", metavar="N", type=natural, default=15,
        help="with --profile: number of kernels to print, the slowest first (default: 15)",
    )  # fmt: skip
    add_board(parser)
    add_options(parser, group=parser.add_argument_group("compilation"))


def _add_explain(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(
        commands, "explain", "explain how each node of a model was compiled, or list the rules of an operator"
    )
    help_text = "an operator, an intrinsic (tir.exp), 'schedule', 'loop-passes', or the file of a model"
    add_model(parser, "NAME|MODEL", help_text, "subject")
    add_options(parser, "target")
    parser.add_argument("--node", metavar="NAME", help="explain this node only")
    parser.add_argument("--kernel", metavar="NAME", help="print this kernel at every stage, from its nodes to assembly")
    parser.add_argument(
        "--after", metavar="PASS", help="with --kernel: print its loops after this pass; 'loop-passes' lists them"
    )
    parser.add_argument("--save-trace", metavar="FILE", help="with --kernel: write its schedule as a trace, in JSON")
    parser.add_argument("--save-words", dest="save_trace", metavar="FILE", help=argparse.SUPPRESS)
    add_results(parser)
    add_options(parser, "threads", "precision", "shapes", "dims", "strategies", "schedules", "tune")
    add_package_options(parser)


def _add_verify(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "verify", "compare each kernel of a model with its definition, exactly")
    add_model(parser, "MODEL", "an ONNX model, or IR")
    add_options(parser, "target")
    parser.add_argument(
        "--processor", metavar="CPU", help="schedule kernels for this processor (default: this machine's)"
    )
    parser.add_argument(
        "--graph", action="store_true", help="compare the model after each pass, and each rule, instead of kernels"
    )
    parser.add_argument("--kernel", metavar="NAME", help="compare this kernel only")
    parser.add_argument(
        "--rounds", metavar="N", type=positive, default=2, help="number of runs of each kernel (default: 2)"
    )
    parser.add_argument(
        "--sizes", metavar="DIM=1..64", action="append", default=[],
        help="sizes of a dynamic dim, a range or a list; may be repeated (default: as many as cover all cases of "
        "loops and branches)",
    )  # fmt: skip
    parser.add_argument("--casts", choices=("identity", "exact"), default="identity", help="require the same rounding")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_options(parser, "threads", "precision", "shapes", "dims", "strategies", "schedules", "tune", "cache")


def _add_explorer(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "explorer", "write a page that shows a model at every stage of its compilation")
    add_model(parser, "MODEL", "an ONNX model, or IR")
    parser.add_argument("-o", "--output", metavar="FILE", help="the page (default: MODEL-explorer.html, here)")
    parser.add_argument("--model-explorer", metavar="FILE.json", help="write the graph of kernels for Model Explorer")
    parser.add_argument("--netron", metavar="FILE.json", help="write the graph of kernels for Netron")
    parser.add_argument("--no-times", action="store_true", help="do not run the model to time its kernels")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    add_options(parser, "target", "threads", "precision", "shapes", "dims", "strategies", "schedules", "tune")
    add_options(parser, "cache", "jobs")


def _add_new(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "new", "create a package with tests: a target, a code generator, a pass or an operator")
    parser.add_argument("kind", choices=("target", "codegen", "pass", "operator"), help="the kind of the package")
    parser.add_argument("package", metavar="NAME", help="the name of the package and of its folder, such as mydsp")
    parser.add_argument("--into", metavar="DIR", default=".", help="the parent folder (default: here)")


def _add_check_target(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "check-target", "compare the results of a target with numpy, operator by operator")
    parser.add_argument("given", metavar="TARGET", nargs="?", help="the target to check, in the syntax of --target")
    add_options(parser, "target")
    parser.add_argument(
        "--operator",
        metavar="NAME",
        action="append",
        default=[],
        help="check this operator (relax.conv), intrinsic (tir.exp), pattern or instruction (npu.gemm) only",
    )
    add_board(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print the page of the target")


def _add(commands: _SubParsersAction[argparse.ArgumentParser], name: str, purpose: str) -> argparse.ArgumentParser:
    description = f"{purpose[0].upper()}{purpose[1:]}."
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=description)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print each step, also where standard error is no terminal"
    )
    parser.add_argument(
        "--plugin",
        metavar="FILE.py",
        action="append",
        default=[],
        help="load a Python file, or a module by name, that adds operators, rules or passes; may be repeated",
    )
    parser.add_argument("--debug", action="store_true", help="show the Python traceback of an error")
    return parser


class _Version(argparse.Action):
    """An action that looks the version up lazily, because that reads files."""

    def __call__(self, parser: argparse.ArgumentParser, *unused: object) -> None:
        print(f"mirlo {installed_version('mirlo')}")
        parser.exit()


def weight_options() -> type:
    """Return the options of weights of a few bits."""
    from mirlo.tools.quantize.options import Quantization

    return Quantization


def static_options() -> type:
    """Return the options of int8 models whose ranges data calibrate."""
    from mirlo.tools.quantize.options import StaticQuantization

    return StaticQuantization


def image_options() -> type:
    """Return the options that turn images into inputs."""
    from mirlo.tools.quantize.options import ImageScaling

    return ImageScaling


def add_quantization(parser: argparse.ArgumentParser) -> None:
    """Add the flags of both kinds of quantization."""
    add_options(parser, of=weight_options)
    add_options(parser, "threads", purpose="number of threads of calibration (default: 1)")
    group = parser.add_argument_group("int8 models")
    group.add_argument(
        "--int8",
        action="store_true",
        help="quantize weights and activations to int8, with ranges from calibration data",
    )
    group.add_argument(
        "--calibrate",
        metavar="DATA",
        help="calibration data: an .npz file, a folder of images or of .npy files, or FILE.py:function; for a model "
        "in a folder, a text, on which the error is printed as well",
    )
    add_options(parser, of=static_options, group=group)
    add_options(parser, of=image_options, group=group)
    group.add_argument("--report", metavar="FILE", help="write the errors of nodes to FILE: .html, .json or .txt")
