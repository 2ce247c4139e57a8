"""What functions of users return is checked where they are called: errors name the function, its file, its target."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import mirlo
from mirlo import R
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.relax import OPS
from mirlo.extend.codegen import CodeGenerator, is_op, pattern_table, wildcard
from mirlo.extend.frontend import FileForm
from mirlo.extend.ops import converter as onnx_converter
from mirlo.extend.rules import Choice, intrinsic, legalize, schedule
from mirlo.extend.target import Pass, Target, register_pass, register_target
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.passes.byoc.codegen import CHECKED_METHODS, Tunable
from mirlo.passes.rules import SCHEDULE
from mirlo.passes.schedule.schedule import points_of
from mirlo.runtime import external, loaders
from mirlo.testing import temporary_registrations
from mirlo.tools.opt import main as opt

WRONG: dict[str, Any] = {
    "None": None, "int": 3, "negative": -1, "float": 1.5, "nan": float("nan"), "complex": 1j, "text": "text",
    "empty text": "", "bytes": b"bytes", "True": True, "False": False, "list": [], "tuple": (), "dict": {}, "set": {1},
    "frozenset": frozenset(), "list of None": [None], "list of int": [3], "list of text": ["a"], "pair": ("a", 3),
    "nested": [[["a"]]], "range": range(3), "generator": (each for each in (1, 2)), "array": np.zeros(3),
    "scalar": np.int64(3), "object": object(), "class": int, "function": len, "module": types, "error": KeyError("x"),
    "Ellipsis": ..., "NotImplemented": NotImplemented,
}  # fmt: skip
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


KINDS = {
    of_table: {"list", "tuple", "dict", "frozenset"}, of_generator_patterns: {"list", "tuple", "dict", "frozenset"},
    of_check: {"text", "True", "False"}, of_codegen: set(), of_legalize: set(), of_intrinsic: set(),
    of_schedule: set(), of_infer: set(), of_pass: {"None"}, of_converter: {"NotImplemented", "list of None"},
    of_loader: set(), of_external_loader: set(),
    of_infer_of_operators: set(), of_tuning_space: {"list", "tuple"}, of_strategy: {"None"},
}  # fmt: skip
"""The drivers of callbacks, with what is not wrong, or is another error: no patterns, a reason."""


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
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", RAISED)
def test_what_is_raised(kind: Callable[..., None], name: str) -> None:
    def made() -> Any:
        raise RAISED[name]

    message = error_of(kind, made)
    assert name in message


FIELDS = [
    (cls, each.name, each.metadata["returns"])
    for cls in (Target, FileForm, Tunable)
    for each in dataclasses.fields(cls)
    if "returns" in each.metadata
]
METHODS = [(CodeGenerator, name, expected) for name, expected in CHECKED_METHODS.expected.items()]


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
        with pytest.raises(
            mirlo.MirloError, match=rf"callbacks'?.*function\(\) at .*{Path(__file__).name}:\d+ r"
        ) as error:
            callback()
        assert (what in str(error.value)) if what in RAISED else (expected.text in str(error.value))
    assert refused >= 25


def _declared(cls: type, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if cls is CodeGenerator:
        return getattr(
            type("Own", (CodeGenerator,), {"name": "callbacks", name: function, "__module__": __name__})(), name
        )
    required = {each.name: (lambda *_: None) for each in dataclasses.fields(cls) if "returns" in each.metadata}
    values = (
        {"name": "callbacks", "help": "h", "key": "k", "suffixes": (".x",), "choices": ()} | required | {name: function}
    )
    return getattr(
        cls(**{each.name: values[each.name] for each in dataclasses.fields(cls) if each.name in values}), name
    )


def test_what_is_no_function() -> None:
    with pytest.raises(mirlo.MirloError, match="target 'callbacks': 'emit' is 3, an int: expected a function that"):
        Target("callbacks", "of a test", emit=3)


def error_of(kind: Callable[..., None], made: Callable[[], Any]) -> str:
    """Return the message of the error, which names the place of the function or of the node, and the target."""
    with pytest.raises(mirlo.MirloError) as error:
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
