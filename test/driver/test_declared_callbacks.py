"""Fields, methods and names of `mirlo.extend` that take functions declare what these return."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import codegen_callbacks
import frontend_callbacks
import graph_callbacks
import operator_callbacks
import pytest
import rule_callbacks
import target_callbacks
from callback_values import ERRORS, RAISED, WRONG
from codegen_callbacks import (
    of_external_loader,
    of_loader,
    of_optional,
    of_repeat,
    of_rewriter,
    of_split,
    of_table,
    of_where,
)
from frontend_callbacks import (
    of_columns,
    of_converter,
    of_deferred_digest,
    of_deferred_module,
    of_explained_parsing,
    of_parameter,
    of_program_import,
    of_stablehlo_like_converter,
)
from graph_callbacks import (
    of_activation,
    of_body,
    of_bound_pages,
    of_bound_sizes,
    of_cell,
    of_choose,
    of_condition,
    of_counted_body,
    of_expert,
    of_indices,
    of_join,
    of_low_body,
    of_low_condition,
    of_product,
    of_scan,
    of_yielded,
)
from operator_callbacks import of_intrinsic_meaning
from rule_callbacks import (
    of_command_intrin,
    of_elements,
    of_intrinsic,
    of_legalize,
    of_pass,
    of_planner,
    of_schedule,
    of_tensor_intrin,
    of_tuning_space,
)
from target_callbacks import of_arguments, of_command, of_emitted_kernels, of_texts_of_kernels

import mirlo
import mirlo.extend
from mirlo.dialects.core import op
from mirlo.extend.codegen import CodeGenerator, Figures, Tunable
from mirlo.extend.command import FolderForm
from mirlo.extend.frontend import FileForm
from mirlo.extend.nvidia import NvidiaLibrary
from mirlo.extend.ops import DialectOp, register_dialect
from mirlo.extend.runtime import ExternalFunctions, LoadedCode
from mirlo.extend.schedules import TileInstruction
from mirlo.extend.target import LibraryForm, Target
from mirlo.passes.byoc import codegen
from mirlo.passes.targets import METHODS as TARGET_METHODS
from mirlo.runtime.callbacks import ANYTHING
from mirlo.testing import temporary_registrations

DOORS = (codegen_callbacks, rule_callbacks, frontend_callbacks, graph_callbacks, operator_callbacks, target_callbacks)

DECLARING: dict[type, dict[str, Any]] = {
    FileForm: {"name": "callbacks", "suffixes": (".x",)},
    Tunable: {"key": "callbacks", "name": "n", "choices": ()}, Figures: {"gflops": 1.0, "gbytes": 1.0},
    FolderForm: {}, LibraryForm: {"name": "callbacks", "help": "h"},
    LoadedCode: {"entry": print, "keep": None}, ExternalFunctions: {"functions": {}},
    TileInstruction: {"name": "callbacks"},
    NvidiaLibrary: dict.fromkeys(("title", "file", "install", "prefix", "explain"), "callbacks")
    | {"error": mirlo.MirloError},
}  # fmt: skip
"""Classes whose fields declare what the functions in them return, with values of their other fields."""

FIELDS = [
    (cls, each.name, each.metadata["returns"])
    for cls in DECLARING
    for each in dataclasses.fields(cls)
    if "returns" in each.metadata
]

METHODS_OF = {CodeGenerator: codegen.CHECKED_METHODS, DialectOp: op.CHECKED_METHODS, Target: TARGET_METHODS}

METHODS = [(cls, name, expected) for cls, checks in METHODS_OF.items() for name, expected in checks.expected.items()]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        yield


@pytest.mark.parametrize(
    ("cls", "name", "expected"), FIELDS + METHODS, ids=lambda each: getattr(each, "__name__", each)
)
def test_every_declared_callback(cls: type, name: str, expected: Any) -> None:
    """Fields and methods that declare what they return; a value that is not expected names the function and owner."""

    def function(*arguments: Any) -> Any:
        if isinstance(value, Exception) and value in RAISED.values():
            raise value
        return value

    callback = _declared(cls, name, function)
    refused = 0
    for what, value in (WRONG | RAISED).items():
        if what in WRONG and expected.holds(value):
            assert callback() is value
            continue
        refused += 1
        with pytest.raises(ERRORS, match=rf"function\(\) at .*{Path(__file__).name}:\d+ r") as error:
            callback()
        assert (what in str(error.value)) if what in RAISED else (expected.text in str(error.value))
    assert refused >= (len(RAISED) if expected == ANYTHING else 25)


def _declared(cls: type, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if cls is CodeGenerator:
        own: Any = type("Own", (CodeGenerator,), {"name": "callbacks", name: function, "__module__": __name__})()
    elif cls is Target:
        own = type("callbacks", (Target,), {name: function, "__module__": __name__})("t", "h")
    elif cls is DialectOp:
        body = {name: staticmethod(function), "__module__": __name__}
        own = type("Own", (DialectOp,), body, name="odd", dialect=register_dialect("callbacks"))
    else:
        required = [each.name for each in dataclasses.fields(cls) if "returns" in each.metadata and _is_required(each)]
        own = cls(**{**dict.fromkeys(required, lambda *_: None), **DECLARING[cls], name: function})
    result: Callable[..., Any] = getattr(own, name)
    return result


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


IGNORED = "its result is not read"

READ_AS_TRUTH = "its truth is read, which each value has"

OF_MIRLO = "Mirlo calls or makes it with functions of its own"

KINDS = {kind for door in DOORS for kind in door.KINDS}
ROWS: dict[str, Callable[..., None] | type | str] = {
    "CodeGenerator": CodeGenerator, "Target": Target, "LlvmTarget": Target,
    "FileForm": FileForm,
    "DialectOp": DialectOp, "Figures(expected)": Figures, "Tunable(microseconds)": Tunable,
    "PackageCommand(add_arguments)": of_arguments, "PackageCommand(execute)": of_command,
    "FolderForm(accepts)": FolderForm, "FolderForm(quantize)": FolderForm,
    "FolderForm(open)": FolderForm, "LibraryForm(write)": LibraryForm,
    "LoadedCode(on)": LoadedCode, "LoadedCode(timed)": LoadedCode, "LoadedCode(fill)": IGNORED,
    "LoadedCode(release)": IGNORED, "ExternalFunctions(explain)": ExternalFunctions,
    "ExternalFunctions(steps)": ExternalFunctions, "ExternalFunctions(functions)": IGNORED,
    "ExternalFunctions(release)": IGNORED, "Cell(step)": of_cell, "Cell(functions)": of_activation,
    "Direction(product)": of_product, "TileInstruction(emit)": TileInstruction, "NvidiaLibrary(detail)": NvidiaLibrary,
    "NvidiaLibrary.functions(call)": NvidiaLibrary,
    "Pattern.where(predicate)": of_where, "Pattern.optional(wrap)": of_optional, "Pattern.rule(replacement)":
    of_rewriter, "repeat(step)": of_repeat, "roll_commands(split)": of_split, "rewriter": of_rewriter,
    "pattern_table": of_table,
    "register_in": "it enters functions in a table of its caller's", "ExternalValue(_load)": OF_MIRLO,
    "FolderQuantization(progress)": IGNORED, "add_options(of)": "it returns a class of the package's own",
    "ConvertedModel(wrap)": "its result is that of mirlo.compile", "DeferredModule(make)": of_deferred_module,
    "DeferredModule(digest_of_files)": of_deferred_digest, "GraphBuilder.count_operators(build)": IGNORED,
    "GraphBuilder.choose(branches)": of_choose, "GraphBuilder.branches(fills)": of_join,
    "GraphBuilder.branches(join)": of_yielded, "GraphBuilder.repeat(condition)": of_condition,
    "GraphBuilder.repeat(body)": of_body, "GraphBuilder.repeat_times(body)": of_counted_body,
    "GraphBuilder.loop_while(condition)": of_low_condition,
    "GraphBuilder.loop_while(body)": of_low_body, "ParameterStore.add_deferred(make)": of_parameter,
    "ParameterStore.add_deferred(columns)": of_columns, "ParameterStore.add_deferred(fill)": IGNORED,
    "Tensor(compute)": OF_MIRLO,
    "convert_by(converter)": of_stablehlo_like_converter, "call_converter(converter)": of_stablehlo_like_converter,
    "unexpected_result(converter)": "it names the function, and does not call it",
    "import_program(start)": of_program_import, "parsing(explain)": of_explained_parsing,
    "Frames.run(execute)": OF_MIRLO, "WhenCalled(place)": "it returns an object of the loader's own",
    "emit_kernels(compile_kernels)": of_emitted_kernels, "kernel_texts(compile_kernels)": of_texts_of_kernels,
    "Rule(function)": of_legalize, "Rule(space)": of_tuning_space, "Rule(planner)": OF_MIRLO,
    "schedule(planner)": OF_MIRLO, "Session(report)": IGNORED,
    "mix_experts(bind)": of_bound_sizes, "mix_experts(compute)": of_expert, "scan_rows(step)": of_scan,
    "PackedSequences(bind)": of_bound_pages, "PackedSequences(indices)": of_indices,
    "DeviceState(close)": IGNORED, "LibraryCall.start(address)": OF_MIRLO, "converter": of_converter,
    "define_intrinsic(meaning)": of_intrinsic_meaning, "diagnostics_to(handle)": READ_AS_TRUTH,
    "elementwise(function)": of_elements, "walk(visit)": "the bindings check it",
    "OptionFlag(parse)": "the kind of the option checks it", "OptionFlag(convert)": "the kind of the option checks it",
    "is_list(accepts)": READ_AS_TRUTH, "values_that(accepts)": READ_AS_TRUTH,
    "values_that(parse)": "the kind of the option checks it", "intrinsic": of_intrinsic, "legalize": of_legalize,
    "schedule(space)": of_tuning_space, "schedule": of_schedule, "after_fork(in_child)": IGNORED,
    "after_fork(before)": IGNORED, "after_fork(in_parent)": IGNORED, "packed": IGNORED,
    "register_external_loader(loader)": of_external_loader, "register_loader(loader)": of_loader,
    "run_forked(work)": "the fork ends, and its exit code says so", "CommandTree.only(keeps)": READ_AS_TRUTH,
    "Schedule.replay(source)": IGNORED,
    "part_rule(space)": of_tuning_space, "part_rule": of_planner,
    "scheduled(arrange)": IGNORED, "CompileOptions(while_compiling)": OF_MIRLO,
    "CompileRequest(progress)": IGNORED, "CompileStrategy.compile(compile_request)": OF_MIRLO,
    "emit_deferred_constant(make)": of_parameter, "emit_deferred_constant(fill)": IGNORED,
    "erase_dead(is_pure)": READ_AS_TRUTH,
    "Pass": of_pass, "names_dialect": "it returns a function, and takes none",
    "ParameterStore.column_reader": "it returns a function, and takes none",
    "ParameterStore.reader": "it returns a function, and takes none",
    "ParameterStore.reader_in_turn": "it returns a function, and takes none",
    "ParameterStore.slices": "it returns a function, and takes none",
    "Pattern.rule": "it returns a rule, whose result is that of the replacement",
    "tensor_intrin(means)": of_tensor_intrin, "command_intrin(means)": of_command_intrin,
    "command_intrin(simulate)": IGNORED, "CommandProgram(execute)": IGNORED,
    "Scratchpad(store_tensor)": IGNORED, "Scratchpad.finish(kept)": READ_AS_TRUTH,
    "Scratchpad.plan(operator)": IGNORED,
}  # fmt: skip
"""The test of each name of `mirlo.extend` that takes a function, or why what the function returns cannot be wrong."""


def test_every_name_that_takes_a_function_has_a_row() -> None:
    taking = set(_names_that_take_functions())
    known = {row: {each for each in taking if each == row or each.startswith((f"{row}(", f"{row}."))} for row in ROWS}
    missing = taking - set().union(*known.values())
    assert not missing, "names of mirlo.extend without a test of what their function returns"
    unknown = {row for row, names in known.items() if not names}
    assert unknown <= {"Pass", "CodeGenerator", "DialectOp", "tensor_intrin(means)", "command_intrin(means)"}
    for name, row in ROWS.items():
        if isinstance(row, type):
            assert row in (*DECLARING, *METHODS_OF), name
        elif not isinstance(row, str):
            assert row in KINDS, name


def _names_that_take_functions() -> Iterator[str]:
    """Yield the functions, methods and fields of the doors that take, or decorate, a function."""
    for info in pkgutil.iter_modules(mirlo.extend.__path__):
        door = importlib.import_module(f"mirlo.extend.{info.name}")
        for name in door.__all__:
            value = getattr(door, name)
            module = sys.modules.get(getattr(value, "__module__", None) or "")
            if module is None or not module.__name__.startswith("mirlo."):
                continue
            if inspect.isclass(value):
                yield from (f"{name}({each})" for each in _taken(value, module))
                for method, function in vars(value).items():
                    function = getattr(function, "__func__", function)
                    if inspect.isfunction(function) and not method.startswith("_"):
                        yield from (f"{name}.{method}({each})" for each in _taken(function, module))
                        yield from [f"{name}.{method}"] * _is_function(function.__annotations__.get("return"), module)
            elif inspect.isfunction(value):
                yield from (f"{name}({each})" for each in _taken(value, module))
                yield from [name] * _is_function(value.__annotations__.get("return"), module)


def _taken(function: Any, module: types.ModuleType) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    return [each.name for each in parameters if _is_function(each.annotation, module)]


def _is_function(annotation: object, module: types.ModuleType) -> bool:
    """Return whether an annotation is a function, by itself or by a name of its module."""
    text = annotation if isinstance(annotation, str) else str(annotation)
    named = {name for name, value in vars(module).items() if typing.get_origin(value) is Callable}
    return "Callable" in text or not named.isdisjoint(re.findall(r"\w+", text))
