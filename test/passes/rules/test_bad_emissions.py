"""What a rule emits and does not exist, or is invalid, is an error that names the rule; nothing ends the process."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mirlo
from mirlo.dialects.bindings import ir

MODEL = """
func.func @main(%x: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %1 = "relax.exp"(%x) : (tensor<16x8xf32>) -> tensor<16x8xf32>
  return %1 : tensor<16x8xf32>
}
"""


def raw(name: str) -> Callable[[Any, Any], Any]:
    """Return a rule that emits an operation."""

    def rule(op: Any, b: Any) -> Any:
        x = op.args[0]
        return ir.Operation.create(name, results=[x.type], operands=[x]).results[0]

    return rule


def called(name: str) -> Callable[[Any, Any], Any]:
    """Return a rule that calls an intrinsic of LLVM."""

    def rule(op: Any, b: Any) -> Any:
        x = op.args[0]
        segments = ir.DenseI32ArrayAttr.get
        attributes = {
            "intrin": ir.StringAttr.get(name), "operandSegmentSizes": segments([1, 0]), "op_bundle_sizes": segments([]),
        }  # fmt: skip
        created = ir.Operation.create("llvm.call_intrinsic", results=[x.type], operands=[x], attributes=attributes)
        return created.results[0]

    return rule


def invalid(op: Any, b: Any) -> Any:
    x = op.args[0]
    return ir.Operation.create("arith.addi", results=[x.type], operands=[x, x]).results[0]


BAD = {
    "no operation of math": (raw("math.nosuch"), "'math.nosuch'"),
    "no operation of tir": (raw("tir.nosuch"), "'tir.nosuch'"),
    "no dialect": (raw("nosuch.add"), "nosuch.add"),
    "no operation of llvm": (raw("llvm.intr.nosuch"), "'llvm.intr.nosuch'"),
    "no intrinsic": (called("llvm.nosuch.f32"), 'could not find LLVM intrinsic: "llvm.nosuch.f32"'),
    "no intrinsic of x86": (called("llvm.x86.sse2.nosuch"), "could not find LLVM intrinsic"),
    "wrong types": (invalid, "'arith.addi' op operand #0 must be signless"),
    "no predicate": (lambda op, b: b.compare("olt", op.nums[0], 0.0), "compare 'olt' of floats: expected one of eq, "),
    "no such call": (lambda op, b: b.call("expp", op.nums[0]), "no intrinsic 'tir.expp'; did you mean 'exp'?"),
    "operands": (lambda op, b: b.call("pow", op.nums[0]), "'tir.pow' takes 2 operands, found 1"),
    "no kind": (
        lambda op, b: b.emit("math.sqrt", op.nums[0]),
        "expected the element type of the result, such as 'f32'",
    ),
}


@pytest.mark.parametrize(("rule", "message"), BAD.values(), ids=BAD)
def test_the_error_names_the_rule(rule: Callable[..., Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(MODEL)
    with pytest.raises(mirlo.MirloError) as error:
        mirlo.compile(tmp_path / "model.mlir", intrinsics={"exp": rule}, cache=False)
    text = str(error.value)
    assert message in text
    assert re.search(rf"rule '{rule.__name__} for exp on custom' at {re.escape(__file__)}:\d+", text) or (
        f"was emitted by rule '{rule.__name__} for exp on custom at {__file__}" in text
    )


def test_an_instruction_of_another_processor(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(MODEL)
    other = "aarch64.neon.frecpx" if platform.machine() == "x86_64" else "x86.sse.rcp.ps"
    with pytest.raises(mirlo.MirloError, match="rule 'rule for exp on custom at .*' emitted it$"):
        mirlo.compile(tmp_path / "model.mlir", intrinsics={"exp": called(f"llvm.{other}")}, cache=False)


def test_an_intrinsic_that_exists(tmp_path: Path) -> None:
    import numpy as np

    (tmp_path / "model.mlir").write_text(MODEL)
    rule = called("llvm.sqrt")
    exe = mirlo.compile(tmp_path / "model.mlir", intrinsics={"exp": lambda op, b: rule(op, b)}, cache=False)
    x = np.random.default_rng(0).random((16, 8), np.float32)
    np.testing.assert_allclose(exe(x), np.sqrt(x), rtol=1e-6)


def test_a_file_with_an_intrinsic_that_does_not_exist(tmp_path: Path) -> None:
    """IR of users reaches the back end without a rule."""
    folder = tmp_path / "stages"
    (tmp_path / "model.mlir").write_text(MODEL)
    mirlo.compile(tmp_path / "model.mlir", save_ir=folder, cache=False)
    stage = sorted(folder.glob("*lower-intrinsics*.mlir"))[0]
    text = stage.read_text()
    hostile, count = re.subn(r"(%\S+) = math\.fma (%\S+), (%\S+), (%\S+) (.*: )(\S+)",
        r'\1 = llvm.call_intrinsic "llvm.nosuch.f32"(\2) : (\6) -> \6', text, count=1)  # fmt: skip
    assert count == 1
    stage.write_text(hostile)
    with pytest.raises(mirlo.MirloError, match="could not find LLVM intrinsic") as error:
        mirlo.compile(stage, cache=False)
    assert "'llvm.nosuch.f32' is in the IR" in str(error.value)


def test_on_nvvm(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(MODEL)
    with pytest.raises(mirlo.MirloError, match="no code for 'llvm.nosuch.f32', which rule 'rule for exp on custom at "):
        rules = {"exp": called("llvm.nosuch.f32")}
        mirlo.compile(tmp_path / "model.mlir", "nvvm{chip=sm_80}", intrinsics=rules, cache=False)
