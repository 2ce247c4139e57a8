"""`mirlo-opt`: runs passes over IR in a file. It keeps the conventions of `mlir-opt`."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import zip_longest
from typing import Any, NoReturn

from mirlo.dialects.bindings import ir, load_irdl
from mirlo.dialects.context import available_dialects, make_context
from mirlo.dialects.core.walk import diagnostics_to
from mirlo.driver.bytecode import parse_bytes
from mirlo.driver.diagnostics import Diagnostics
from mirlo.driver.given import check_used, node_watch
from mirlo.driver.modules import load_params, read_module, script_text, write_script
from mirlo.driver.save_code import write_bytes
from mirlo.driver.source import Chunk, SourceFile, read_source
from mirlo.driver.type_sizes import TypeSizeError, require_type_sizes
from mirlo.passes.files import FileError, list_params, write_ir
from mirlo.passes.instrumentation import Instrument, LogActions, PassFailed, PrintIR, SaveIR
from mirlo.passes.node_keys import MODEL_NODES, NODE, nodes_of
from mirlo.passes.pipeline import Pipeline, PipelineError
from mirlo.passes.pipeline_parser import unknown_pass
from mirlo.passes.registry import ROOT_ANCHOR, RegistrationError, find_pass, load_plugin
from mirlo.passes.reproducer import (
    HEADER,
    RESOURCE,
    TRUST,
    Reproducer,
    arguments_of,
    trust_flag,
    uncontained,
    write_reproducer,
)
from mirlo.passes.session import Session
from mirlo.passes.timing import PassTiming
from mirlo.passes.upstream import STATISTICS, find_upstream
from mirlo.runtime.entry_points import installed_version
from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import replacing
from mirlo.runtime.interpreter import FewerCollections, with_frame_space
from mirlo.runtime.names import shell_word, terminal_streams
from mirlo.runtime.processes import leave, silence
from mirlo.runtime.records import dataclass
from mirlo.tools.expected import check_expected
from mirlo.tools.opt_flags import (
    VERBOSITIES,
    OptArguments,
    UsageError,
    nearest_flag,
    overall_help,
    parse_arguments,
    pass_help,
    pass_list,
)


@FewerCollections()
@with_frame_space
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    with terminal_streams():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = OptArguments()
    try:
        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
        return _run(arguments)
    except (UsageError, MirloError, PipelineError, RegistrationError) as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader of our output has seen enough; Python must not complain about it at exit either.
        silence(sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("mirlo-opt: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        return _fail(f"cannot use '{error.filename}': {error.strerror}" if error.filename else str(error))
    except MemoryError as error:
        return _fail(f"not enough memory for this module: {error}")
    except Exception as error:
        if arguments.debug:
            traceback.print_exc()
        return _fail(f"internal error: {type(error).__name__}: {error} (--debug shows where)")


def _fail(message: str) -> int:
    print(f"mirlo-opt: error: {message}", file=sys.stderr)
    return 1


def _run(arguments: OptArguments) -> int:
    for reason in arguments.ignored:
        print(f"mirlo-opt: warning: {reason}", file=sys.stderr)
    for name in arguments.plugins:
        _load_plugin(name)
    text = _information_text(arguments)
    if text is not None:
        sys.stdout.write(text)
        return 0
    source = read_source(arguments.input)
    if arguments.run_reproducer:
        arguments = _from_reproducer(arguments, source)
    chunks = source.chunks(arguments.split_input_file)
    context = make_context(arguments.allow_unregistered_dialect)
    with contextlib.ExitStack() as stack:
        stack.enter_context(context)
        stack.enter_context(ir.Location.unknown())
        if arguments.irdl_file is not None:
            load_irdl(read_module(arguments.irdl_file, Session()))
        run = OptRun(arguments, _pipeline(arguments), context, _action_log(arguments, stack))
        if arguments.show_pipeline:
            print(run.pipeline)
            return 0
        if arguments.dump_pass_pipeline:
            print(run.pipeline, file=sys.stderr)
        good = [run.process(chunk) for chunk in chunks]
        if all(good) or len(chunks) > 1:
            run.write_output()
        if arguments.timing:
            sys.stderr.write(run.timing.report(arguments.timing_display == "list"))
    return 0 if all(good) else 1


def _load_plugin(name: str) -> None:
    try:
        load_plugin(name)
    except RegistrationError:
        raise
    except Exception as error:
        raise UsageError(f"cannot import the passes of '{name}': {type(error).__name__}: {error}") from error


def _information_text(arguments: OptArguments) -> str | None:
    """Return the text for flags that only print information."""
    if arguments.list_passes:
        return pass_list()
    if arguments.help:
        return "\n".join(pass_help(name) for name, _ in arguments.passes) or overall_help()
    if arguments.show_dialects:
        return "".join(f"{name}\n" for name in available_dialects())
    if arguments.version:
        return f"mirlo-opt {installed_version('mirlo')}\n"
    return None


def _from_reproducer(arguments: OptArguments, source: SourceFile) -> OptArguments:
    recorded = None if source.is_bytecode else arguments_of(source.text)
    if recorded is None:
        raise FileError(
            f"{source.name} is not a reproducer: its first line does not start with '{HEADER}', and it has no external "
            f"resource '{RESOURCE}'"
        )
    if arguments.pass_pipeline or arguments.pipeline or arguments.passes:
        raise UsageError("--run-reproducer runs the pipeline of the file: name no passes beside it")
    written = parse_arguments(recorded)
    if not arguments.trust_file:
        why = uncontained((), written.plugins) or uncontained(Pipeline(written.pass_pipeline or ""))
        if why is not None:
            where = "first line" if source.text.startswith(HEADER) else f"resource '{RESOURCE}'"
            raise FileError(f"{source.name}: the file's {where} {why}: give {TRUST} if you trust the file")
    for name in written.plugins:
        _load_plugin(name)
    return replace(
        arguments,
        pass_pipeline=written.pass_pipeline,
        verify_each=written.verify_each,
        plugins=[*arguments.plugins, *written.plugins],
        allow_unregistered_dialect=written.allow_unregistered_dialect,
    )


def _pipeline(arguments: OptArguments) -> Pipeline:
    if arguments.pass_pipeline is not None:
        return Pipeline(arguments.pass_pipeline)
    if arguments.pipeline is not None:
        return Pipeline.named(arguments.pipeline)
    pipeline = Pipeline()
    for name, options in arguments.passes:
        flag = nearest_flag(name)
        if find_pass(name) is None and find_upstream(name) is None:
            raise UsageError(f"unknown flag '--{name}'; did you mean '{flag}'?" if flag else unknown_pass(name))
        pipeline.append(f"{name}{{{options}}}" if options else name)
    return pipeline


@dataclass
class OptRun:
    """One run of the command: the same pipeline over each chunk of the input."""

    arguments: OptArguments
    pipeline: Pipeline
    context: ir.Context
    actions: Instrument | None = None
    outputs: list[tuple[ir.Module, Session]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.timing = PassTiming(self.pipeline.steps)
        self.printing = _printing(self.arguments)
        self.reproduced = False
        if self.arguments.tree_dir is not None and self.splits:
            raise UsageError("--mlir-print-ir-tree-dir takes one module; it does not go with --split-input-file")

    @property
    def splits(self) -> bool:
        """Return whether the input is several modules."""
        return self.arguments.split_input_file is not None

    def process(self, chunk: Chunk) -> bool:
        """Parse a chunk, run the pipeline, and store the output; return whether there were no errors."""
        checked = self.arguments.verify_diagnostics
        diagnostics = Diagnostics(
            chunk.source, keep=checked is not None, has_notes=not self.arguments.disable_notes,
            has_operations=self.arguments.print_op_on_diagnostic, has_stacks=self.arguments.print_stack_on_diagnostic,
            severities=VERBOSITIES[self.arguments.verbosity],
        )  # fmt: skip
        with diagnostics_to(self.context, diagnostics.add_mlir):
            passed = self._compile(chunk, diagnostics)
        if checked is not None:
            return check_expected(chunk, diagnostics, checked == "only-expected")
        return passed and not diagnostics.errors

    def _compile(self, chunk: Chunk, diagnostics: Diagnostics) -> bool:
        session = Session(report=diagnostics.report)
        if self.arguments.statistics:
            session.options[STATISTICS] = self.arguments.statistics_display
        try:
            with self.timing.phase("Parse"):
                module = self._parse(chunk, session)
            if self.arguments.verify_roundtrip:
                verify_roundtrip(module)
            if self.arguments.written_reproducer is not None:
                write_reproducer(
                    module, self.arguments.written_reproducer, session, self.pipeline.steps, self._flags_of_reproducer()
                )
            if NODE in str(self.pipeline):
                session.options[MODEL_NODES] = dict.fromkeys(nodes_of(module), "")
            self.pipeline.run(module, session, self._instruments(session), self.arguments.verify_each)
            check_used(session)
        except ir.MLIRError as error:
            diagnostics.add_error(error)
            return False
        except RoundTripError as error:
            diagnostics.report("error", str(error))
            return False
        except TypeSizeError as error:
            diagnostics.report("error", error.problem, error.location)
            return False
        except PassFailed as failure:
            self._report_failure(failure, diagnostics)
            return False
        self.outputs.append((module, session))
        return True

    def _parse(self, chunk: Chunk, session: Session) -> ir.Module:
        path = self.arguments.input
        if self.arguments.no_implicit_module:
            _require_one_operation(chunk, self.pipeline)
        if not self.splits and path != "-":
            # Parsed by its name, a file gives locations with the name, and bytecode is mapped, not read.
            return read_module(path, session)
        module = require_type_sizes(parse_bytes(chunk.padded, chunk.source.name))
        load_params(module, os.path.dirname(os.path.abspath(path)), session)
        return module

    def _instruments(self, session: Session) -> list[Instrument]:
        instruments: list[Instrument] = [self.timing] if self.arguments.timing else []
        if self.arguments.reproducer is not None and not self.reproduced:
            instruments.append(Reproducer(self.arguments.reproducer, self._flags_of_reproducer(), session))
        if self.arguments.tree_dir is not None:
            instruments.append(SaveIR(self.arguments.tree_dir, session))
        if self.actions is not None:
            instruments.append(self.actions)
        return [*instruments, *node_watch(session), *self.printing]

    def _flags_of_reproducer(self) -> list[str]:
        flags = [] if self.arguments.verify_each else ["--no-verify-each"]
        flags += ["--allow-unregistered-dialect"] if self.arguments.allow_unregistered_dialect else []
        return flags + [f"--load-pass-plugin={name}" for name in self.arguments.plugins]

    def _report_failure(self, failure: PassFailed, diagnostics: Diagnostics) -> None:
        if self.arguments.debug:
            traceback.print_exception(failure)
        diagnostics.add_failure(failure)
        if self.arguments.reproducer is not None:
            # The file shows the first failure; later parts of a split input leave it alone.
            self.reproduced = True
            flag = trust_flag(self.pipeline, self.arguments.plugins)
            again = f"mirlo-opt --run-reproducer{flag} {shell_word(self.arguments.reproducer)}"
            diagnostics.hint(f"'{again}' runs this again")
        elif failure.internal:
            diagnostics.hint(
                "this is a bug of the pass; '--mlir-pass-pipeline-crash-reproducer=FILE' writes what reproduces it, "
                "'--debug' shows where it happened"
            )

    def write_output(self) -> None:
        """Write the output of the chunks without errors."""
        with self.timing.phase("Output"):
            if self.arguments.emit_bytecode:
                self._write_bytecode()
            elif self.arguments.emit_script:
                self._write_script()
            elif self.arguments.emit_code is not None:
                self._write_code(self.arguments.emit_code)
            else:
                self._write_text()

    def _write_script(self) -> None:
        if len(self.outputs) != 1 or self.splits:
            raise UsageError("--emit-script writes one module; it does not go with --split-input-file")
        module, session = self.outputs[0]
        if self.arguments.output != "-":
            write_script(module, self.arguments.output, session)
            return
        self._list_params()
        sys.stdout.write(script_text(module))
        sys.stdout.flush()

    def _write_code(self, wanted: str) -> None:
        from mirlo.driver.code import listings_of_module

        if len(self.outputs) != 1 or self.splits:
            raise UsageError("--emit-code writes the code of one module; it does not go with --split-input-file")
        module, _ = self.outputs[0]
        target, _, form = wanted.rpartition(":")
        content = b"\n".join(
            listing.content for listing in listings_of_module(module, target, form, self.arguments.kernel)
        )
        if self.arguments.output != "-":
            write_bytes(self.arguments.output, content)
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(content)

    def _write_text(self) -> None:
        printing: dict[str, Any] = {
            "enable_debug_info": self.arguments.print_debuginfo,
            "pretty_debug_info": self.arguments.pretty_debuginfo,
            "assume_verified": self.arguments.assume_verified,
            "skip_regions": self.arguments.skip_regions,
            "use_name_loc_as_prefix": self.arguments.nameloc_as_prefix,
            "large_resource_limit": self.arguments.elide_resources,
            "print_generic_op_form": self.arguments.print_op_generic,
            "use_local_scope": self.arguments.print_local_scope,
            "large_elements_limit": self.arguments.elide_elements,
        }
        if self.arguments.output == "-":
            self._list_params()
            texts = [module.operation.get_asm(**printing).rstrip() + "\n" for module, _ in self.outputs]
            sys.stdout.write(f"\n{self.arguments.output_split_marker}\n".join(texts))
            sys.stdout.flush()
            return
        for i, (module, session) in enumerate(self.outputs):
            separator = f"\n{self.arguments.output_split_marker}\n" if i else ""
            write_ir(module, self.arguments.output, session, header=separator, append=i > 0, **printing)

    def _list_params(self) -> None:
        """List the parameters in a form that is readable by the next command of a shell's pipe."""
        for module, session in self.outputs:
            list_params(module, os.getcwd(), session)
            lost = session.params.unsaved() if session.has_params else ()
            if lost:
                print(
                    f"mirlo-opt: warning: the values of {len(lost)} parameters that passes made ('{lost[0]}', ...) are "
                    "lost: there is no place for them on standard output, write to a file with -o",
                    file=sys.stderr,
                )

    def _write_bytecode(self) -> None:
        if len(self.outputs) != 1:
            raise UsageError("--emit-bytecode writes one module; it does not go with --split-input-file")
        module, session = self.outputs[0]
        if self.arguments.output != "-":
            version = self.arguments.bytecode_version
            write_ir(module, self.arguments.output, session, bytecode=True, bytecode_version=version)
            return
        if sys.stdout.isatty():
            raise UsageError("bytecode is not for a terminal; name a file with -o")
        self._list_params()
        module.operation.write_bytecode(sys.stdout.buffer, self.arguments.bytecode_version)
        sys.stdout.flush()


def _action_log(arguments: OptArguments, stack: contextlib.ExitStack) -> Instrument | None:
    """Return the log of pass actions, if requested."""
    if arguments.log_actions is None:
        return None
    if arguments.log_actions == "-":
        return LogActions(sys.stdout)
    try:
        binary = stack.enter_context(replacing(arguments.log_actions))
    except OSError as error:
        raise FileError(f"cannot write '{arguments.log_actions}': {error.strerror or error}") from None
    return LogActions(stack.enter_context(io.TextIOWrapper(binary, encoding="utf-8")))


class RoundTripError(Exception):
    """A module that changed when it was printed and parsed."""


def verify_roundtrip(module: ir.Module) -> None:
    """Check that a module does not change when it is printed and parsed, in each form."""
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    form = {"enable_debug_info": True, "use_local_scope": True}
    custom, generic = (
        module.operation.get_asm(print_generic_op_form=is_generic, **form) for is_generic in (False, True)
    )
    for name, text in (("text", custom), ("generic text", generic), ("bytecode", written.getvalue())):
        try:
            again = ir.Module.parse(text).operation.get_asm(print_generic_op_form=True, **form)
        except ir.MLIRError as error:
            raise RoundTripError(f"--verify-roundtrip: the module's {name} cannot be parsed: {error}") from None
        if again != generic:
            lines = zip_longest(generic.split("\n"), again.split("\n"), fillvalue="")
            before, after = next((old, new) for old, new in lines if old != new)
            raise RoundTripError(
                f"--verify-roundtrip: the module is another one after its {name} was parsed: '{before.strip()}' became "
                f"'{after.strip()}'"
            )


def _require_one_operation(chunk: Chunk, pipeline: Pipeline) -> None:
    """Check that a file without an implicit module contains one operation."""
    text = chunk.padded
    if isinstance(text, bytes):
        return  # bytecode is one operation
    operation = ir.Operation.parse(text, source_name=chunk.source.name).operation
    if operation.name != ROOT_ANCHOR:
        passes = f", and runs passes on one: '{pipeline.names()[0]}'" if pipeline.names() else ""
        raise UsageError(
            f"--no-implicit-module: {chunk.source.name} is a '{operation.name}'; mirlo-opt writes modules{passes}. "
            f"Leave the flag out, or write '{ROOT_ANCHOR}' around it"
        )


def _printing(arguments: OptArguments) -> list[Instrument]:
    for name in (*arguments.print_before, *arguments.print_after):
        if find_pass(name) is None and find_upstream(name) is None:
            raise UsageError(unknown_pass(name))
    every = arguments.print_after_all or arguments.print_after_change
    before = None if arguments.print_before_all else arguments.print_before
    after = None if every and not arguments.print_after else arguments.print_after
    if not (before is None or after is None or before or after or arguments.print_after_failure):
        return []
    return [
        PrintIR(
            before,
            after,
            only_changes=arguments.print_after_change,
            failures=arguments.print_after_failure,
            module_scope=arguments.print_module_scope,
            debug_info=arguments.print_debuginfo,
        )
    ]


def command() -> NoReturn:
    """Run `mirlo-opt` in a process of its own."""
    leave(main())


if __name__ == "__main__":
    command()
