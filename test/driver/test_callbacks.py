"""What functions of users return is checked where they are called: errors name the function, its file, its target."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
import mirlo.extend
from mirlo import R
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import op
from mirlo.dialects.core.errors import DialectError
from mirlo.dialects.core.op import sharding_rule_of
from mirlo.dialects.relax import OPS
from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.extend import library
from mirlo.extend.codegen import CodeGenerator, Figures, Tunable, is_op, pattern_table, repeat, rewriter, wildcard
from mirlo.extend.command import FolderForm, PackageCommand
from mirlo.extend.frontend import (
    DeferredModule,
    FileForm,
    FrontendError,
    GraphBuilder,
    Interface,
    ParameterStore,
    Tensor,
    UnsupportedOperation,
    convert_by,
    import_program,
    parsing,
)
from mirlo.extend.gpu import emit_kernels, gpu_pipeline, kernel_texts
from mirlo.extend.nvidia import NvidiaLibrary
from mirlo.extend.ops import (
    DialectOp,
    TensorType,
    Trait,
    define_intrinsic,
    elementwise,
    operand,
    register_dialect,
    result,
)
from mirlo.extend.ops import converter as onnx_converter
from mirlo.extend.rules import Choice, intrinsic, legalize, schedule
from mirlo.extend.runtime import ExternalFunctions, LoadedCode
from mirlo.extend.schedules import TileInstruction, command_intrin, part_rule, tensor_intrin
from mirlo.extend.target import (
    CodeForm,
    CompileOptions,
    LibraryForm,
    Pass,
    Target,
    find_target,
    register_pass,
    register_target,
)
from mirlo.frontends import foreign
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.passes.byoc import codegen
from mirlo.passes.rules import SCHEDULE
from mirlo.passes.schedule.schedule import points_of
from mirlo.passes.targets import METHODS as TARGET_METHODS
from mirlo.runtime import external, loaders
from mirlo.runtime.callbacks import ANYTHING
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import packages
from mirlo.tools.opt import main as opt

WRONG: dict[str, Any] = {
    "None": None, "int": 3, "negative": -1, "float": 1.5, "nan": float("nan"), "complex": 1j, "text": "text",
    "empty text": "", "bytes": b"bytes", "True": True, "False": False, "list": [], "tuple": (), "dict": {}, "set": {1},
    "frozenset": frozenset(), "list of None": [None], "list of int": [3], "list of text": ["a"], "pair": ("a", 3),
    "nested": [[["a"]]], "range": range(3), "generator": (each for each in (1, 2)), "array": np.zeros(3),
    "scalar": np.int64(3), "object": object(), "class": int, "function": len, "module": types, "error": KeyError("x"),
    "Ellipsis": ..., "NotImplemented": NotImplemented,
}  # fmt: skip
ERRORS = (mirlo.MirloError, DialectError, op.OpError, UnsupportedOperation)
RAISED: dict[str, Exception] = {
    "KeyError": KeyError("x"), "TypeError": TypeError("t"), "AttributeError": AttributeError("a"),
    "AssertionError": AssertionError(), "RuntimeError": RuntimeError("r"), "StopIteration": StopIteration(),
}  # fmt: skip


@mirlo.script
def MODEL(x: R.Tensor[(4,), R.f32]):  # noqa: N802
    return R.tanh(R.relu(x))


class Generator(CodeGenerator):
    name = "callbacks"
    made: Callable[[], Any]

    def patterns(self) -> Any:
        return [("relu", is_op("relax.relu")(wildcard()))]

    def codegen(self, module: Any) -> Any:
        return type(self).made()


def of_table(made: Callable[[], Any]) -> None:
    @pattern_table("callbacks")
    def patterns() -> Any:
        return made()

    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_generator_patterns(made: Callable[[], Any]) -> None:
    class Own(Generator):
        def patterns(self) -> Any:
            return made()

    register_target(Target("callbacks", "of a test", codegen=Own))
    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_check(made: Callable[[], Any]) -> None:
    @pattern_table("callbacks")
    def patterns() -> Any:
        return [("relu", is_op("relax.relu")(wildcard()), lambda match: made())]

    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_codegen(made: Callable[[], Any]) -> None:
    class Own(Generator):
        def codegen(self, module: Any) -> Any:
            return made()

    register_target(Target("callbacks", "of a test", codegen=Own))
    mirlo.compile(MODEL, "callbacks,llvm", cache=False)


def of_legalize(made: Callable[[], Any]) -> None:
    @legalize("relax.relu", target="llvm", priority=9)
    def rule(op: Any, b: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def of_intrinsic(made: Callable[[], Any]) -> None:
    @intrinsic("tanh", target="llvm", priority=9)
    def rule(op: Any, b: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def of_schedule(made: Callable[[], Any]) -> None:
    @schedule(target="llvm", priority=1000)
    def rule(kernel: Any, context: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def of_infer(made: Callable[[], Any]) -> None:
    mirlo.onnx_operator("own", "Odd", packed="own.odd", infer=lambda x: made())
    mirlo.compile(node_of_own_domain(), cache=False)


def node_of_own_domain() -> Any:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Odd", ["x"], ["y"], domain="own")], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def of_pass(made: Callable[[], Any]) -> None:
    @register_pass
    @dataclasses.dataclass(frozen=True)
    class ReturnsSomething(Pass):
        """Return what a test says."""

        name = "returns-something"

        def run(self, op: Any, session: Any) -> Any:
            return made()

    mirlo.compile(MODEL, pipeline="returns-something", cache=False)


def of_converter(made: Callable[[], Any]) -> None:
    onnx_converter("Odd", domain="own")(lambda node: made())
    mirlo.compile(node_of_own_domain(), cache=False)


@functools.cache
def compiled_once() -> Any:
    return mirlo.compile(MODEL, cache=False)


def of_loader(made: Callable[[], Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(loaders._LOADERS, "callbacks", lambda artifact: made())
        loaders.load_code(dataclasses.replace(compiled_once().artifact, loader="callbacks"))


def of_external_loader(made: Callable[[], Any]) -> None:
    artifact = external.ExternalArtifact("callbacks", ("f",), data=b"", target="callbacks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(external._LOADERS, "callbacks", lambda artifact, context: made())
        external.load_external("callbacks", artifact, external.LoadContext({}, 1))


def of_infer_of_operators(made: Callable[[], Any]) -> None:
    with pytest.MonkeyPatch.context() as patch, make_context(), ir.Location.unknown():
        patch.setattr(OPS["relu"], "infer", staticmethod(lambda x: made()))
        try:
            ir.Module.parse("""
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}""")
        except ir.MLIRError as error:
            raise mirlo.MirloError(str(error)) from error


def of_tuning_space(made: Callable[[], Any]) -> None:
    @schedule(target="llvm", priority=1000, space=lambda kernel, context: made())
    def rule(kernel: Any, context: Any, size: Annotated[int, Choice((1, 2), "a size")] = 1) -> Any:
        raise AssertionError

    (registered,) = [each for each in SCHEDULE if each.function is rule]
    points_of(registered, None, None, ())  # type: ignore[arg-type] # the rule reads neither


def of_strategy(made: Callable[[], Any]) -> None:
    mirlo.compile(MODEL, strategies={"relax.tanh": lambda op: made()}, cache=False)


def of_where(made: Callable[[], Any]) -> None:
    pattern = is_op("relax.relu")(wildcard()).where(lambda op: made())
    register_target(Target("callbacks", "of a test", codegen=Generator))
    of_table(lambda: [("relu", pattern)])


def of_optional(made: Callable[[], Any]) -> None:
    wildcard().optional(lambda pattern: made())


def of_repeat(made: Callable[[], Any]) -> None:
    repeat(wildcard(), lambda pattern: made())


def of_rewriter(made: Callable[[], Any]) -> None:
    @rewriter(is_op("relax.relu")(wildcard()), name="callbacks")
    def replaced(match: Any, b: Any) -> Any:
        return made()

    mirlo.compile(MODEL, pipeline="rewrite{rules=callbacks}", cache=False)


def of_deferred_module(made: Callable[[], Any]) -> None:
    _ = DeferredModule(lambda: made(), lambda: "digest").module


def of_deferred_digest(made: Callable[[], Any]) -> None:
    _ = DeferredModule(lambda: None, lambda: made()).digest  # type: ignore[arg-type, return-value] # not made


def of_front_end(made: Callable[[], Any]) -> None:
    class Model:
        pass

    frontend = types.SimpleNamespace(convert=lambda model, example: made())
    entry = types.SimpleNamespace(name=Model.__module__.partition(".")[0], load=lambda: frontend)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign, "offered", lambda group: [entry] if group == foreign.GROUP else [])
        mirlo.compile(Model(), cache=False)


def of_parameter(made: Callable[[], Any]) -> None:
    store = ParameterStore()
    store.get(store.add_deferred("w", "f32", [4], lambda: made()))


def in_a_graph(fill: Callable[[GraphBuilder, Tensor], Any]) -> None:
    """Build a graph of two numbers."""
    with make_context(), ir.Location.unknown():
        x = TensorType.of((2,), "f32").to_mlir()
        with ir.InsertionPoint(ir.Module.create().body):
            function = func.FuncOp("main", ([x], []))
        builder = GraphBuilder("main", ParameterStore())
        with builder.inside(function.add_entry_block()):
            fill(builder, builder.tensor(function.entry_block.arguments[0]))


def of_choose(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.choose(b.constant(True, "bool"), [x.type], [lambda: made(), lambda: [x]]))


def of_join(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.branches(b.full(b.constant(True, "bool")), [lambda: [x]] * 2, lambda one, other: made()))


def of_yielded(made: Callable[[], Any]) -> None:
    in_a_graph(
        lambda b, x: b.branches(
            b.full(b.constant(True, "bool")), [lambda: [x]] * 2, lambda one, other: lambda results: made()
        )
    )


def of_condition(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.repeat([x], lambda values: made(), lambda values: values))


def of_body(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.repeat([x], lambda values: b.constant(False, "bool"), lambda values: made()))


def of_low_condition(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: b.loop_while([b.full(x)], lambda values: made(), lambda values: values))


def of_low_body(made: Callable[[], Any]) -> None:
    in_a_graph(
        lambda b, x: b.loop_while([b.full(x)], lambda values: b.full(b.constant(False, "bool")), lambda values: made())
    )


def of_program_import(made: Callable[[], Any]) -> None:
    with make_context(), ir.Location.unknown():
        import_program(ir.Module.create(), "callbacks", Interface(), lambda name, store, functions: made())


def of_explained_parsing(made: Callable[[], Any]) -> None:
    with make_context(), parsing("callbacks", FrontendError, lambda text: made()):
        ir.Module.parse("not a module")


def of_stablehlo_like_converter(made: Callable[[], Any]) -> None:
    convert_by(lambda op: made(), types.SimpleNamespace())  # type: ignore[arg-type] # the converter reads nothing


def of_scan(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: library.scan_rows(b, lambda at, carried: made(), [x], [], 300))


def of_unrolled_scan(made: Callable[[], Any]) -> None:
    in_a_graph(lambda b, x: library.scan_rows(b, lambda at, carried: made(), [x], [], 2))


def recurrent(step: Callable[..., Any], activation: Callable[..., Any], product: Callable[..., Any] | None) -> None:
    """Build a recurrent layer of one step."""

    def fill(b: GraphBuilder, x: Tensor) -> Any:
        weights = b.constant(np.ones((2, 2), np.float32))
        given = {} if product is None else {"product": product}
        direction = library.Direction(library.Cell(step, "n", (activation,)), weights, weights, **given)
        state = b.constant(np.ones((1, 1, 2), np.float32))
        return library.recurrent_layer(b, x.reshape((1, 1, 2)), [state], [direction])

    in_a_graph(fill)


def of_cell(made: Callable[[], Any]) -> None:
    recurrent(lambda direction, x, states: made(), lambda x: x, None)


def of_activation(made: Callable[[], Any]) -> None:
    recurrent(lambda direction, x, states: [direction.new(x, 0)], lambda x: made(), None)


def of_product(made: Callable[[], Any]) -> None:
    recurrent(lambda direction, x, states: [x], lambda x: x, lambda x, weights: made())


def experts(bind: Callable[..., Any] | None, compute: Callable[..., Any]) -> None:
    """Build a mixture of two experts."""

    def fill(b: GraphBuilder, x: Tensor) -> Any:
        rows, chosen = x.reshape((1, 2)), b.constant(np.zeros((1, 1), np.int64))
        numbers = b.constant(np.arange(2).reshape(1, 2))
        bound = bind or (lambda values, most: b.bind(values, "n", most))
        return library.mix_experts(rows, chosen, b.constant(np.ones((1, 1), np.float32)), numbers, bound, compute)

    in_a_graph(fill)


def of_bound_sizes(made: Callable[[], Any]) -> None:
    experts(lambda values, most: made(), lambda expert, rows: rows)


def of_expert(made: Callable[[], Any]) -> None:
    experts(lambda values, most: [0, 0, 1, 0], lambda expert, rows: made())


def with_operator(body: dict[str, Any], run: Callable[[str], None], traits: Any = frozenset()) -> None:
    """Define an operator of one operand with these methods, and do something with its name."""
    dialect = register_dialect("callbacks")
    x = operand()
    body = {"x": x, "infer": staticmethod(lambda x: x), "__module__": __name__, "TRAITS": traits, **body}
    y = result()
    body["y"] = y
    for name, declared in (("x", x), ("y", y)):
        declared.__set_name__(DialectOp, name)
    type("Odd", (DialectOp,), body, name="odd", dialect=dialect)
    run("callbacks.odd")


def compile_constant(operator: str) -> None:
    constant = '%0 = "relax.constant"() {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>'
    compile_text(parsed(operator, constant))


def compile_text(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.mlir").write_text(text)
        mirlo.compile(Path(folder) / "model.mlir", cache=False)


def parsed(operator: str, constant: str = "") -> str:
    """Return a module that applies an operator to its input, or to a constant."""
    return f"""
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  {constant}
  %1 = "{operator}"({"%0" if constant else "%x"}) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "relax.add"(%1, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}}"""


def of_meaning(made: Callable[[], Any]) -> None:
    with_operator({"meaning": staticmethod(lambda x: made())}, compile_constant)


def of_scalar(made: Callable[[], Any]) -> None:
    with_operator(
        {"scalar": staticmethod(lambda x: made())},
        lambda name: compile_text(parsed(name)),
        frozenset({Trait.ELEMENTWISE}),
    )


def of_elements(made: Callable[[], Any]) -> None:
    @legalize("relax.relu", target="llvm", priority=9)
    def rule(op: Any, b: Any) -> Any:
        return elementwise(op, b, list(op.operation.operands), lambda x: made())

    mirlo.compile(MODEL, cache=False)


def of_sharding(made: Callable[[], Any]) -> None:
    def run(name: str) -> None:
        with make_context():
            module = ir.Module.parse(parsed(name))
            block = next(iter(module.body.operations)).regions[0].blocks[0]
            sharding_rule_of(block.operations[0])

    with_operator({"sharding": staticmethod(lambda results, x: made())}, run)


def of_intrinsic_meaning(made: Callable[[], Any]) -> None:
    row = define_intrinsic(register_dialect("callbacks"), "odd", "f", meaning=lambda x: made())
    assert row.meaning is not None
    row.meaning(np.ones(4))


def of_tensor_intrin(made: Callable[[], Any]) -> None:
    tensor_intrin("callbacks", made(), made())


def of_command_intrin(made: Callable[[], Any]) -> None:
    command_intrin("callbacks", made())


def of_tile_instruction(made: Callable[[], Any]) -> None:
    emit = TileInstruction("callbacks", emit=lambda row, columns, total: made()).emit
    assert emit is not None
    emit(None, None, None)  # type: ignore[arg-type] # what is emitted reads nothing


def of_planner(made: Callable[[], Any]) -> None:
    @part_rule(priority=1000)
    def plan_callbacks(group: Any) -> Any:
        return made()

    mirlo.compile(MODEL, cache=False)


def run_command(command: PackageCommand) -> None:
    """Run the command of a package."""
    entry = types.SimpleNamespace(name="callbacks", load=lambda: command)
    parser = argparse.ArgumentParser()
    packages._add_command(entry, parser.add_subparsers(), lambda commands, name, text: commands.add_parser(name))
    arguments = parser.parse_args(["callbacks"])
    arguments.execute(arguments)


def of_arguments(made: Callable[[], Any]) -> None:
    run_command(PackageCommand("help", lambda parser: made(), lambda arguments: None))


def of_command(made: Callable[[], Any]) -> None:
    run_command(PackageCommand("help", lambda parser: None, lambda arguments: made()))


def gpu_target(emitted: Callable[[Any], Any]) -> None:
    """Register a target of GPUs whose kernels are compiled by a function."""

    class Own(Target):
        def pipeline(self, options: Any) -> str:
            return gpu_pipeline("callbacks", alignment=256)

        def emit(self, module: Any, options: Any) -> Any:
            return emit_kernels(module, "callbacks", "vulkan", emitted)

        def code(self, module: Any, options: Any) -> Any:
            return kernel_texts(module, emitted)

    forms = (CodeForm("own", ".own", "//"),)
    register_target(Own("callbacks", "of a test", parent="spirv", loader="vulkan", forms=forms))


def of_emitted_kernels(made: Callable[[], Any]) -> None:
    gpu_target(lambda module: made())
    mirlo.compile(MODEL, "callbacks", cache=False)


def of_texts_of_kernels(made: Callable[[], Any]) -> None:
    gpu_target(lambda module: made())
    kernel_listings(CompileRequest(MODEL, "callbacks", cache=False), "own")


KINDS: dict[Callable[..., None], set[str]] = {
    of_where: {"text", "True", "False"}, of_optional: set(), of_repeat: set(), of_rewriter: set(),
    of_deferred_module: set(), of_deferred_digest: {"text"}, of_front_end: set(), of_parameter: set(),
    of_choose: set(), of_join: {"class", "function"}, of_yielded: {"list", "tuple"}, of_condition: set(),
    of_body: set(), of_low_condition: set(), of_low_body: {"None"}, of_program_import: set(),
    of_explained_parsing: {"text", "empty text"},
    of_stablehlo_like_converter: {"list", "tuple"}, of_scan: set(), of_unrolled_scan: set(), of_cell: set(),
    of_activation: set(), of_product: set(), of_bound_sizes: set(), of_expert: set(), of_meaning: {"None"},
    of_scalar: {"int", "negative", "float", "nan", "True", "False", "scalar"},
    of_elements: {"int", "negative", "float", "nan", "True", "False", "scalar"}, of_sharding: {"None"},
    of_intrinsic_meaning: {"array"}, of_tensor_intrin: set(), of_command_intrin: set(), of_tile_instruction: set(),
    of_planner: set(), of_arguments: {"None"}, of_command: {"None"},
    of_emitted_kernels: {"list", "tuple"}, of_texts_of_kernels: {"list", "tuple"},
    of_table: {"list", "tuple", "dict", "frozenset"}, of_generator_patterns: {"list", "tuple", "dict", "frozenset"},
    of_check: {"text", "True", "False"}, of_codegen: set(), of_legalize: set(), of_intrinsic: set(),
    of_schedule: set(), of_infer: set(), of_pass: {"None"}, of_converter: {"NotImplemented", "list of None"},
    of_loader: set(), of_external_loader: set(),
    of_infer_of_operators: set(), of_tuning_space: {"list", "tuple"}, of_strategy: {"None"},
}  # fmt: skip
"""The drivers of callbacks, with what is not wrong, or is another error: no patterns, a reason."""
NOT_CALLED = {of_tensor_intrin, of_command_intrin, of_front_end}
"""Drivers of names that take functions in the language of scripts; a front end raises what its framework raises."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(CONVERTERS.users, "_table", {})
    with temporary_registrations(__name__):
        register_target(Target("callbacks", "of a test", codegen=Generator))
        yield


@pytest.mark.sample(24)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_returned(kind: Callable[..., None], name: str) -> None:
    if name in KINDS[kind]:
        return
    message = error_of(kind, lambda: WRONG[name])
    assert "internal" not in message and "Traceback" not in message


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NOT_CALLED], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", RAISED)
def test_what_is_raised(kind: Callable[..., None], name: str) -> None:
    def made() -> Any:
        raise RAISED[name]

    if kind is of_meaning and name == "TypeError":
        return  # numpy has no such function for a type
    message = error_of(kind, made)
    assert name in message


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


def test_what_is_no_function() -> None:
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(mirlo.MirloError, match="target 'callbacks': 'emit' is 3, an int: expected a function that"),
    ):
        Target("callbacks", "of a test", emit=3)


def test_functions_of_a_target_are_methods_for_one_version() -> None:
    """A target whose functions are arguments is what a subclass with these methods is."""
    llvm = find_target("llvm")

    def stage(options: Any) -> Any:
        return 3

    with pytest.warns(DeprecationWarning, match="target 'own': pipeline, emit, pipelines, lanes, speed: functions"):
        own: Any = Target(
            "own", "h", "llvm", (), llvm.pipeline, llvm.emit, lanes=lambda machine, size: 7, pipelines={"one": stage},
            figures=lambda options: 5, takes_options=True, prepare=None,
        )  # fmt: skip
    assert own.lanes(None, 4) == 7 and own.takes_options and own.emits_as(llvm) and own.compiles_models
    assert own.pipeline(CompileOptions()) == llvm.pipeline(CompileOptions()) and not own.has("prepare")
    with pytest.raises(mirlo.MirloError, match="target 'own': stage.. at .* returned 3, an int"):
        own.pipelines()["one"](CompileOptions())
    with pytest.raises(mirlo.MirloError, match="target 'own': .* returned 5, an int: expected Figures"):
        own.speed("")
    with pytest.raises(mirlo.MirloError, match="target 'plain' compiles no whole models"):
        Target("plain", "h").pipeline(CompileOptions())
    with pytest.raises(TypeError, match="takes 6 positional arguments, found 7"):
        Target("a", "b", None, (), None, None, None)


def error_of(kind: Callable[..., None], made: Callable[[], Any]) -> str:
    """Return the message of the error, which names the place of the function or of the node, and the target."""
    with pytest.raises(ERRORS) as error:
        kind(made)
    message = str(error.value)
    assert __file__ in message or "callbacks" in message, message
    return message


def test_patterns_that_could_never_match() -> None:
    wrong = {
        "a pattern gives 'relax.relu' 2 operands, which takes 1: it would": is_op("relax.relu")(wildcard(), wildcard()),
        "a pattern gives 'relax.add' 1 operands, which takes 2: it would": is_op("relax.add")(wildcard()),
    }
    for message, pattern in wrong.items():
        with pytest.raises(mirlo.MirloError, match=message):
            of_table(lambda pattern=pattern: [("sum", pattern)])
    with pytest.raises(mirlo.MirloError, match="has_dtype: 'float32' is no element type|'f33' is no element type"):
        wildcard().has_dtype("f33")


def test_two_patterns_of_one_name() -> None:
    relu = is_op("relax.relu")
    with pytest.raises(mirlo.MirloError, match="patterns.* at .*py:.* has 2 patterns of the name 'a': join them by |"):
        of_table(lambda: [("a", relu(wildcard())), ("a", relu(wildcard()))])


def test_functions_of_code_generators(tmp_path: Path) -> None:
    text = """
func.func private @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {relax.external = "nobody"} {
  %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
    (tmp_path / "model.mlir").write_text(text)
    with pytest.raises(mirlo.MirloError, match="model.mlir:2:1: function '@f' is for the code generator 'nobody'"):
        mirlo.compile(tmp_path / "model.mlir", cache=False)


@pytest.mark.parametrize(
    "dims",
    ['"a"', "[1.5]", "[-3]", '["n+"]', '["a", "b"]', "[]", '["1a"]', "[[1]]", '["n**"]', "[true]", "[4]", "unit"],
)
def test_malformed_dims(dims: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error at the function; the other chunks of a file are read."""
    kind = f"tensor<?xf32, #relax.dims<{dims}>>"
    wrong = f"func.func @main(%x: {kind}) -> {kind} {{\n  return %x : {kind}\n}}\n"
    right = "func.func @right(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %x : tensor<4xf32>\n}\n"
    path = tmp_path / "model.mlir"
    path.write_text(f"{wrong}// -----\n{right}")
    assert opt(["--split-input-file", "--verify-calls", str(path)]) == 1
    printed = capsys.readouterr()
    assert "@right" in printed.out and "model.mlir:1:1: error: " in printed.err and "internal" not in printed.err
    path.write_text(wrong)
    with pytest.raises(mirlo.MirloError, match="model.mlir:1:1: "):
        mirlo.compile(path, cache=False)


IGNORED = "its result is not read"
READ_AS_TRUTH = "its truth is read, which each value has"
OF_MIRLO = "Mirlo calls or makes it with functions of its own"
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
    of_rewriter, "repeat(step)": of_repeat, "rewriter": of_rewriter, "pattern_table": of_table,
    "register_in": "it enters functions in a table of its caller's", "ExternalValue(_load)": OF_MIRLO,
    "FolderQuantization(progress)": IGNORED, "add_options(of)": "it returns a class of the package's own",
    "ConvertedModel(wrap)": "its result is that of mirlo.compile", "DeferredModule(make)": of_deferred_module,
    "DeferredModule(digest_of_files)": of_deferred_digest, "GraphBuilder.count_operators(build)": IGNORED,
    "GraphBuilder.choose(branches)": of_choose, "GraphBuilder.branches(fills)": of_join,
    "GraphBuilder.branches(join)": of_yielded, "GraphBuilder.repeat(condition)": of_condition,
    "GraphBuilder.repeat(body)": of_body, "GraphBuilder.loop_while(condition)": of_low_condition,
    "GraphBuilder.loop_while(body)": of_low_body, "ParameterStore.add_deferred(make)": of_parameter,
    "ParameterStore.add_deferred(fill)": IGNORED, "Tensor(compute)": OF_MIRLO,
    "convert_by(converter)": of_stablehlo_like_converter, "call_converter(converter)": of_stablehlo_like_converter,
    "unexpected_result(converter)": "it names the function, and does not call it",
    "import_program(start)": of_program_import, "parsing(explain)": of_explained_parsing,
    "Frames.run(execute)": OF_MIRLO, "WhenCalled(place)": "it returns an object of the loader's own",
    "emit_kernels(compile_kernels)": of_emitted_kernels, "kernel_texts(compile_kernels)": of_texts_of_kernels,
    "Rule(function)": of_legalize, "Rule(space)": of_tuning_space, "Session(report)": IGNORED,
    "mix_experts(bind)": of_bound_sizes, "mix_experts(compute)": of_expert, "scan_rows(step)": of_scan,
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
    "Schedule.replay(source)": IGNORED, "part_rule(space)": of_tuning_space, "part_rule": of_planner,
    "scheduled(arrange)": IGNORED, "CompileOptions(while_compiling)": OF_MIRLO,
    "CompileRequest(progress)": IGNORED, "CompileStrategy.compile(compile_request)": OF_MIRLO,
    "emit_deferred_constant(make)": of_parameter, "emit_deferred_constant(fill)": IGNORED,
    "erase_dead(is_pure)": READ_AS_TRUTH,
    "Pass": of_pass, "names_dialect": "it returns a function, and takes none",
    "ParameterStore.reader": "it returns a function, and takes none",
    "ParameterStore.reader_in_turn": "it returns a function, and takes none",
    "Pattern.rule": "it returns a rule, whose result is that of the replacement",
    "tensor_intrin(means)": of_tensor_intrin, "command_intrin(means)": of_command_intrin,
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


def test_a_legalization_is_for_names() -> None:
    with pytest.raises(TypeError, match="a legalize rule is for operators by name, found a pattern: a pattern is for"):
        legalize(is_op("relax.relu")(wildcard()), target="llvm")  # type: ignore[arg-type]
