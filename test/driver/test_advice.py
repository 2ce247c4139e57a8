"""Messages that once left users alone: each says what to write instead, and each advice works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo import R, T
from mirlo.dialects.bindings import ir
from mirlo.extend.codegen import Artifact, is_op, rewriter, wildcard
from mirlo.extend.runtime import ExternalArtifact
from mirlo.passes.byoc.rewrite import REWRITES
from mirlo.passes.pipeline import Pipeline
from mirlo.tools.opt import main as opt


@mirlo.script
def model(x: R.Tensor[(4, 8), R.f32]):
    return R.tanh(x)


def test_a_buffer_as_tvm_writes_it() -> None:
    @mirlo.prim_func
    def twice(x: T.Buffer((4, 8), "float32"), y: T.Out[(4, 8), T.f32]):  # type: ignore[valid-type]
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j] * 2.0

    x = np.ones((4, 8), np.float32)
    made = mirlo.compile(model, legalize={"relax.tanh": lambda op, b: b.call_prim_func(twice, op.x)}, cache=False)
    np.testing.assert_array_equal(made(x), 2 * x)


EPS = T.attrs("EPS")
N, C = T.dims("N", "C")


RULES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a comparison": (
        lambda op, b: b.select(b.compare("olt", op.nums[0], 0.0), 1.0, op.nums[0]),
        "compare 'olt' of floats: expected one of eq, gt, ge, lt, le, one, ugt, uge, ult, ule, ne, unordered; did you "
        "mean 'lt'?",
    ),
    "an intrinsic": (lambda op, b: b.call("tahn", op.nums[0]), "there is no intrinsic 'tir.tahn'; did you mean 'tan"),
    "an operation": (
        lambda op, b: b.emit("math.nope", "f32", op.nums[0]),
        "emitted 'math.nope', which does not exist",
    ),
    "operands": (
        lambda op, b: b.emit("arith.addf", "f32", op.nums[0]),
        "emitted invalid IR: 'arith.addf' op expected 2 operands, but found 1",
    ),
    "an intrinsic of LLVM": (
        lambda op, b: b.emit("llvm.call_intrinsic", "f32", op.nums[0], intrin="llvm.no.such.f32"),
        "emitted invalid IR: 'llvm.call_intrinsic' op",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_what_a_rule_emits(name: str) -> None:
    rule, message = RULES[name]
    with pytest.raises(mirlo.MirloError) as raised:
        mirlo.compile(model, intrinsics={"tanh": rule}, cache=False)
    assert message in str(raised.value)
    assert "test_advice.py" in str(raised.value) or "rule '" in str(raised.value)


def emitted(name: str, *operands: int) -> Callable[[Any, Any], Any]:
    """Return a rule that emits an operation of this name without the builder."""

    def rule(op: Any, b: Any) -> Any:
        values = [op.operation.operands[i] for i in operands]
        return ir.Operation.create(name, results=[op.operation.results[0].type], operands=values).result

    return rule


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (emitted("relax.nope", 0), r"rule 'rule for relax.tanh.*' at .* emitted 'relax.nope', which does not exist"),
        (emitted("linalg.nope", 0), r"rule 'rule for relax.tanh.*' at .* emitted 'linalg.nope', which does not exist"),
        (emitted("relax.add", 0), r"rule 'rule for relax.tanh.*' at .* emitted invalid IR: .*relax.add"),
        (emitted("arith.negf", 0), "'arith.negf' is left in '@main': no pass lowers it in graphs"),
    ],
    ids=["relax", "linalg", "operands", "arith"],
)
def test_what_a_legalization_emits(rule: Callable[[Any, Any], Any], message: str) -> None:
    """The rule is blamed, and no pass that ran before it."""
    with pytest.raises(mirlo.MirloError, match=message):
        mirlo.compile(model, legalize={"relax.tanh": rule}, cache=False)


def test_the_names_of_an_unknown_domain() -> None:
    unknown = make_model([node("Peak", "x", "y", domain="com.nobody")], {"x": (F32, (4,))}, ["y"])
    unknown.opset_import.append(onnx.helper.make_opsetid("com.nobody", 1))
    with pytest.raises(mirlo.MirloError, match=r"mirlo\.onnx_operator\('com\.nobody', 'Peak', \.\.\.\).*--plugin FILE"):
        mirlo.compile(unknown)


def test_a_missing_attribute() -> None:
    @mirlo.prim_func
    def peak(x: T.Buffer[(4, 8), T.f32], y: T.Out[(4, 8), T.f32]):
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j] * EPS

    with pytest.raises(mirlo.MirloError, match=r"'peak' needs its attribute 'EPS'.*attributes=\{'EPS': \.\.\.\}"):
        mirlo.compile(model, legalize={"relax.tanh": lambda op, b: b.call_prim_func(peak, op.x)}, cache=False)


def test_pipelines_add_up() -> None:
    assert (Pipeline("cse") + "canonicalize" + Pipeline("cse")).names() == ["cse", "canonicalize", "cse"]
    assert ("cse" + Pipeline("canonicalize")).names() == ["cse", "canonicalize"]


@pytest.mark.parametrize("pipeline", ["any(cse)", "builtin.module(any(cse))", "any(any(cse),canonicalize)"])
def test_any_in_pipelines(pipeline: str, tmp_path: Path) -> None:
    out = tmp_path / "out.mlir"
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %1 = "relax.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %2 = "relax.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      return %2 : tensor<4xf32>
    }"""
    (tmp_path / "in.mlir").write_text(text)
    assert opt([str(tmp_path / "in.mlir"), f"--pass-pipeline={pipeline}", "-o", str(out)]) == 0
    assert out.read_text().count("relax.exp") == 1


def test_a_rewriter_calls_a_prim_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.passes.byoc.rewrite.REWRITES", dict(REWRITES))

    @mirlo.prim_func
    def half(x: T.Buffer[(N, C), T.f32], y: T.Out[(N, C), T.f32]):
        for i, j in T.grid(N, C):
            y[i, j] = x[i, j] * 0.5

    @rewriter(is_op("relax.tanh")(wildcard().named("x")), name="halves")
    def halves(match: Any, b: Any) -> Any:
        return b.call_prim_func(half, match["x"])

    x = np.ones((4, 8), np.float32)
    nodes = [node("Tanh", "x", "t"), node("Tanh", "t", "y")]
    twice = make_model(nodes, {"x": (F32, (4, 8))}, ["y"], output_types={"y": (F32, (4, 8))})
    made = mirlo.compile(twice, pipeline="rewrite{rules=halves}" + Pipeline.named("llvm"), cache=False)
    np.testing.assert_array_equal(made(x), 0.25 * x)


def test_one_class_is_called_artifact() -> None:
    """`extend.Artifact` is what code generators return, and the name of a class that is not that of whole models."""
    assert Artifact is ExternalArtifact and Artifact.__name__ == "ExternalArtifact"
