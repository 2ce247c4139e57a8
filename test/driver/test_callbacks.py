"""What functions of users return is checked where they are called: errors name the function, its file, its target."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import callback_values
import codegen_callbacks
import frontend_callbacks
import graph_callbacks
import operator_callbacks
import pytest
import rule_callbacks
import target_callbacks
from callback_values import ERRORS, RAISED, WRONG, Generator
from codegen_callbacks import of_table
from frontend_callbacks import of_front_end
from operator_callbacks import of_meaning
from rule_callbacks import of_command_intrin, of_tensor_intrin

import mirlo
import mirlo.extend
from mirlo.extend.codegen import is_op, wildcard
from mirlo.extend.rules import legalize
from mirlo.extend.target import CompileOptions, Target, find_target, register_target
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.testing import temporary_registrations
from mirlo.tools.opt import main as opt

DOORS = (codegen_callbacks, rule_callbacks, frontend_callbacks, graph_callbacks, operator_callbacks, target_callbacks)
KINDS = {kind: valid for door in DOORS for kind, valid in door.KINDS.items()}

NOT_CALLED = {of_tensor_intrin, of_command_intrin, of_front_end}
"""Drivers of names that take functions in the language of scripts; a front end raises what its framework raises."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(CONVERTERS.users, "_table", {})
    with contextlib.ExitStack() as stack:
        for module in (__name__, *(door.__name__ for door in DOORS)):
            stack.enter_context(temporary_registrations(module))
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


@pytest.mark.parametrize(
    ("kind", "owner"),
    [(graph_callbacks.of_cell, "the step of a cell"), (graph_callbacks.of_activation, "an activation of a cell")],
)
def test_a_function_that_another_one_calls_is_named_itself(kind: Callable[..., None], owner: str) -> None:
    assert f"{owner}: " in error_of(kind, lambda: None)


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
    assert any(place in message for place in (__file__, callback_values.__file__, "callbacks")), message
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


def test_a_legalization_is_for_names() -> None:
    with pytest.raises(TypeError, match="a legalize rule is for operators by name, found a pattern: a pattern is for"):
        legalize(is_op("relax.relu")(wildcard()), target="llvm")  # type: ignore[arg-type]
