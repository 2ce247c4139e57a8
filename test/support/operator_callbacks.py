"""Calls of methods and functions of users in operators and intrinsics."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
import mirlo.extend
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.op import sharding_rule_of
from mirlo.dialects.relax import OPS
from mirlo.extend.ops import DialectOp, Trait, define_intrinsic, operand, register_dialect, result


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


def of_meaning(made: Callable[[], Any]) -> None:
    with_operator({"meaning": staticmethod(lambda x: made())}, compile_constant)


def of_scalar(made: Callable[[], Any]) -> None:
    with_operator(
        {"scalar": staticmethod(lambda x: made())},
        lambda name: compile_text(parsed(name)),
        frozenset({Trait.ELEMENTWISE}),
    )


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


KINDS: dict[Callable[..., None], set[str]] = {
    of_infer_of_operators: set(),
    of_meaning: {"None"},
    of_scalar: {"int", "negative", "float", "nan", "True", "False", "scalar"},
    of_sharding: {"None"},
    of_intrinsic_meaning: {"array"},
}
"""The functions that call a callback, each with the names of values that are valid results or other errors."""
