"""What is registered again from the same place, as a cell of a notebook is, replaces; a clash of places is an error."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

import mirlo
from mirlo.dialects.context import graph_operations
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.extend import codegen, ops, schedules, target  # noqa: F401  (and the rules that they load)
from mirlo.extend.rules import LEGALIZE
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.passes.byoc.rewrite import REWRITES
from mirlo.passes.byoc.tables import _TABLES
from mirlo.passes.registry import load_all
from mirlo.passes.rules import RULE_BOOKS
from mirlo.passes.targets import target_names
from mirlo.testing import temporary_registrations
from mirlo.tools.conformance.check import names

CELL = """
import mirlo
from mirlo import R, T
from mirlo.extend.codegen import is_op, rewriter, wildcard
from mirlo.extend.ops import DialectOp, TensorType, define_intrinsic, elementwise, operand, register_dialect, result
from mirlo.extend.rules import intrinsic, legalize
from mirlo.extend.schedules import tensor_intrin
OWN = register_dialect("again")
define_intrinsic(OWN, "scaled", LETTERS)

class Scaled(DialectOp, name="twice", dialect=OWN):
    "A number, scaled."
    x, output = operand(), result()
    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return x

@legalize("relax.relu", target="llvm", priority=7)
def scaled(op, b):
    return elementwise(op, b, [op.x], lambda x: x * FACTOR)

@intrinsic("tanh", target="llvm", priority=7)
def tanh_scaled(op, b):
    return op.nums[0] * FACTOR

@rewriter(is_op("relax.add")(wildcard(), wildcard()), name="again_rewrite")
def again(match, b):
    return None
"""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with temporary_registrations("cell"), temporary_registrations("other"):
        yield


def test_a_test_undoes_its_registrations() -> None:
    """Operators with their cases, intrinsics, rules, rewrites, passes and targets, and nothing else."""

    def registered() -> list[set[object]]:
        rules = {(rule.kind, rule.subject, rule.name) for book in RULE_BOOKS for rule in book}
        subjects = names(), graph_operations(), OWN, rules, REWRITES, _TABLES, load_all(), target_names()
        return [set(each) for each in subjects]

    registered()  # imports
    before = registered()
    for factor in (2.0, 3.0):
        with temporary_registrations("cell"):
            run("cell", factor, code=CELL + MORE)
            within = registered()
            assert [len(new - old) for old, new in zip(before, within, strict=True)] == [1, 2, 1, 2, 1, 1, 1, 1]
            assert graph_operations()["again.twice"] is sys.modules["cell"].Scaled
        assert registered() == before


def run(module: str, factor: float, letters: str = "f", code: str = CELL) -> None:
    made = ModuleType(module)
    sys.modules[module] = made
    vars(made).update(FACTOR=factor, LETTERS=letters)
    exec(compile(code, f"<{module}>", "exec"), vars(made))


MORE = """
from dataclasses import dataclass
from mirlo.extend.codegen import pattern_table
from mirlo.extend.target import Pass, Target, register_pass, register_target

class Same(DialectOp, name="same", dialect=OWN):
    x, output = operand(), result()
    @staticmethod
    def infer(x: TensorType) -> TensorType:
        return x
    @staticmethod
    def meaning(x):
        return x

@register_pass
@dataclass(frozen=True)
class Nothing(Pass):
    "Change nothing."
    name = "again-nothing"
    def run(self, op, session):
        pass

register_target(Target("again", "of a cell", parent="llvm"))

@pattern_table("again-parts")
def patterns():
    return [("relu", is_op("relax.relu"))]
"""


OPERATOR = """
@T.prim_func
def scaled(x: T.Buffer[(4,), "f32"], y: T.Out[(4,), "f32"]):
    for i in T.grid(4):
        y[i] = x[i] * FACTOR

mirlo.onnx_operator("again", "Scaled", prim_func=scaled)
"""


@mirlo.script
def model(x: mirlo.R.Tensor[(4,), mirlo.R.f32]):
    return mirlo.R.relu(x) + mirlo.R.tanh(x)


def test_the_last_one_counts() -> None:
    x = np.arange(4, dtype=np.float32)
    for factor, letters in ((2.0, "f"), (3.0, "ff")):
        run("cell", factor, letters)
        np.testing.assert_array_equal(mirlo.compile(model, cache=False)(x), 2 * factor * x)
        assert OWN["again.scaled"].arity == len(letters)
    assert len([rule for rule in LEGALIZE if rule.function.__module__ == "cell"]) == 1
    assert REWRITES["again_rewrite"].replacement is sys.modules["cell"].again.replacement


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("@legalize('relax.relu', target='llvm', priority=7)\ndef scaled(op, b): ...", "is registered twice: at"),
        ("@intrinsic('tanh', target='llvm', priority=7)\ndef tanh_scaled(op, b): ...", "is registered twice: at"),
        ("@rewriter(is_op('relax.add'), name='again_rewrite')\ndef again(match, b): ...", "is registered twice"),
        ("register_dialect('again')", "registered already, by module 'cell'"),
        ("define_intrinsic(CELL.OWN, 'scaled', 'fff')", "already declared, by module 'cell'"),
    ],
)
def test_two_places_clash(line: str, message: str) -> None:
    run("cell", 2.0)
    modules = "".join(f"from mirlo.extend.{module} import *\n" for module in ("codegen", "ops", "rules"))
    imports = f"import sys\n{modules}CELL = sys.modules['cell']\n"
    with pytest.raises((mirlo.MirloError, ValueError, TypeError), match=message):
        run("other", 1.0, code=imports + line)


def test_operators_of_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last definition of a module counts; two modules, or two functions, clash."""
    monkeypatch.setattr(CONVERTERS.users, "_table", {})
    imports = "import mirlo\nfrom mirlo import T\n"
    nodes = [onnx.helper.make_node("Scaled", ["x"], ["y"], domain="again")]
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("x", "y")]
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("again", 1)]
    graph = onnx.helper.make_graph(nodes, "g", values[:1], values[1:])
    scaled = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    x = np.arange(4, dtype=np.float32)
    for factor in (2.0, 3.0):
        run_file("cell", imports + OPERATOR.replace("FACTOR", str(factor)))
        np.testing.assert_array_equal(mirlo.compile(scaled, cache=False)(x), factor * x)
    place = r"cell.scaled at .*cell.py:9 and {} at .*{}.py:9; keep one of them"
    for module, name in (("other", "scaled"), ("cell", "another")):
        message = place.format(f"{module}.{name}", module)
        with pytest.raises(ValueError, match=f"operator Scaled of domain 'again' has two converters .*: {message}"):
            run_file(module, imports + OPERATOR.replace("FACTOR", "4.0").replace("scaled", name))


def run_file(module: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{module}.py")
        path.write_text(text)
        names = {"__name__": module}
        exec(compile(text, str(path), "exec"), names)
