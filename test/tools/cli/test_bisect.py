"""`mirlo bisect`: rules and passes that are wrong on purpose are found."""

from __future__ import annotations

import json
import re
import subprocess
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import mirlo
from onnx import TensorProto, helper, numpy_helper, save
from onnx_models import F32, make_model, node

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.ops import elementwise
from mirlo.frontends.foreign import ImportedModule
from mirlo.frontends.onnx.model import load
from mirlo.runtime.params import ParameterStore
from mirlo.tools.bisect import bisect as bisection
from mirlo.tools.bisect.amplify import _explains, _roundings
from mirlo.tools.bisect.bisect import BisectError, Departure, bisect
from mirlo.tools.bisect.compare import Tolerance
from mirlo.tools.bisect.stored import ValueFolder
from mirlo.tools.bisect.submodel import in_order
from mirlo.tools.bisect.trial import TrialOptions
from mirlo.tools.cli import main

WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)

WRONG_RULE = '''
from mirlo.dialects.tir.compute import exp
from mirlo.extend.rules import legalize

@legalize("relax.tanh", target="llvm", priority=10)
def wrong(op, b):
    """The exponential, which it is not."""
    return b.call_prim(lambda p, x: p.compute(x.shape, lambda *i: exp(x[i]), name="wrong"), op.x)
'''

CRASH = '''
import os
from mirlo.extend.rules import legalize

@legalize("relax.tanh", target="llvm", priority=10)
def crash(op, b):
    """Ends the process."""
    os.abort()
'''

WRONG_PASS = '''
from dataclasses import dataclass
from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import operations, replace_op
from mirlo.dialects.relax import DIALECT
from mirlo.extend.target import Pass, register_pass

@register_pass
@dataclass(frozen=True)
class SigmoidToTanh(Pass):
    """A rewrite that is not true."""
    name = "sigmoid-to-tanh"
    def run(self, op, session):
        for function in op.body.operations:
            for found in operations(function):
                if found.operation.name == "relax.sigmoid":
                    with ir.InsertionPoint(found), found.operation.location:
                        made = DIALECT.operations["relax.tanh"].make(found.operation.operands[0])
                    replace_op(found.operation, [made])
'''


@pytest.fixture
def model(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Tanh", ["m"], ["t"], name="left"),
        helper.make_node("Sigmoid", ["m"], ["s"], name="right"),
        helper.make_node("Add", ["t", "s"], ["y"], name="sum"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(WEIGHT, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def _bisect(model: Path, plugin: str = "", *flags: str) -> subprocess.CompletedProcess[str]:
    if plugin:
        (model.parent / "plugin.py").write_text(plugin)
        flags = ("--plugin", "plugin.py", *flags)
    return mirlo("bisect", "m.onnx", "--shape", "x=3x8", *flags, cwd=model.parent)


@pytest.mark.sample(0)
def test_a_model_that_is_right(model: Path) -> None:
    done = _bisect(model, "", "--against", "onnxruntime")
    assert (done.returncode, done.stdout) == (0, "m.onnx: every output is as onnxruntime computes it\n")


@pytest.mark.sample(0)
def test_a_wrong_rule_and_the_replay(model: Path) -> None:
    done = _bisect(model, WRONG_RULE, "--rtol", "0.001", "--atol", "1e-05")
    assert done.returncode == 1
    assert "first node that departs: 'left' (Tanh), node 2 of 4" in done.stdout
    assert (
        "first pass that departs: legalize{target=llvm}\n  by the rule relax.tanh: wrong (plugin.py:5)" in done.stdout
    )
    bundle = model.parent / "m-bisect"
    report = json.loads((bundle / "report.json").read_text())
    assert (report["node"], report["part"], report["pass"]) == ("left", ["left"], "legalize{target=llvm}")
    assert "relax.tanh" in (bundle / "before.mlir").read_text()
    assert "relax.call_tir" in (bundle / "after.mlir").read_text()
    assert " --rtol 0.001 --atol 1e-05 " in report["replay"]
    _, command, *arguments = report["replay"].replace("'", "").split()
    again = mirlo(command, *arguments, cwd=bundle)
    assert again.returncode == 1 and "first node that departs: 'left' (Tanh), node 1 of 1" in again.stdout


@pytest.mark.sample(0)
@pytest.mark.parametrize(("atol", "code"), [("1e-3", 1), ("1.0", 0)])
def test_the_tolerance_is_obeyed(model: Path, atol: str, code: int) -> None:
    """Half of the largest value is no departure where as much as the largest is allowed."""
    assert (
        _bisect(model, WRONG_RULE.replace("exp(x[i])", "x[i] * 0.0"), "--rtol", "0", "--atol", atol).returncode == code
    )


@pytest.mark.parametrize("name", ["m.mlir", "m.pt2"])
def test_other_models_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name.endswith(".pt2"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("version", "1")
    else:
        (tmp_path / name).write_text("func.func @main() { return }")
    assert main(["bisect", str(tmp_path / name)]) == 1
    assert f"{name} is no ONNX model, whose nodes the oracles compute: bisect an export" in capsys.readouterr().err


def test_a_module_is_refused(tmp_path: Path) -> None:
    with make_context():
        module = ir.Module.parse("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    for model in (module, ImportedModule(module, ParameterStore())):
        with pytest.raises(BisectError, match="the module is no ONNX model.*bisect an export"):
            bisect(model, {}, against="reference", settings=TrialOptions(), bundle=tmp_path, progress=print)  # type: ignore[arg-type]


@pytest.mark.sample(0)
def test_a_wrong_pass_has_its_ir_before_and_after(model: Path) -> None:
    passes = "remove-dead,sigmoid-to-tanh,legalize,schedule,lower-intrinsics,plan-memory"
    done = _bisect(model, WRONG_PASS, "--pipeline", f"builtin.module({passes})")
    assert "first node that departs: 'right' (Sigmoid), node 3 of 4" in done.stdout, done.stderr
    assert "first pass that departs: sigmoid-to-tanh" in done.stdout
    bundle = model.parent / "m-bisect"
    assert "relax.sigmoid" in (bundle / "before.mlir").read_text()
    assert "relax.tanh" in (bundle / "after.mlir").read_text()


WRONG_LOOPS = '''
from dataclasses import dataclass
from mirlo.dialects.bindings import arith, ir
from mirlo.dialects.core.surgery import blocks
from mirlo.extend.target import Pass, register_pass

@register_pass
@dataclass(frozen=True)
class DropTanh(Pass):
    """Removes what the pass behind it would lower."""
    name = "drop-tanh"
    def run(self, op, session):
        for function in op.body.operations:
            for each in [op.operation for block in blocks(function) for op in block.operations]:
                if each.name == "tir.tanh":
                    with ir.InsertionPoint(each), each.location:
                        each.results[0].replace_all_uses_with(arith.NegFOp(each.operands[0]).result)
'''


@pytest.mark.sample(0)
def test_a_wrong_pass_that_a_minimal_pipeline_needs(model: Path) -> None:
    """Without it, `lower-intrinsics` has work to do, and cannot be left out."""
    passes = "remove-dead,legalize,schedule,drop-tanh,lower-intrinsics,plan-memory"
    done = _bisect(model, WRONG_LOOPS, "--pipeline", f"builtin.module({passes})")
    assert "first node that departs: 'left' (Tanh)" in done.stdout, done.stderr
    assert "first pass that departs: drop-tanh" in done.stdout


def test_a_crash_is_found_like_a_wrong_result(model: Path) -> None:
    done = _bisect(model, CRASH)
    assert done.returncode == 1
    assert "first node that departs: 'left' (Tanh)" in done.stdout
    assert "killed by SIGABRT" in done.stdout
    assert "it fails in pass legalize{target=llvm}" in done.stdout
    bundle = model.parent / "m-bisect"
    report = json.loads((bundle / "report.json").read_text())
    assert (report["pass"], report["fails"]) == ("legalize{target=llvm}", True)
    assert report["rules"] == ["relax.tanh: crash (plugin.py:5), in which it ended"]
    # The IR before the pass that fails, which mirlo-opt runs again.
    text = (bundle / "before.mlir").read_text()
    assert "relax.tanh" in text and "legalize{target=llvm}" in text.split("\n")[0]


WRONG_INTRINSIC = """
from mirlo.extend.rules import intrinsic

@intrinsic("tanh", target="llvm", priority=10)
def wrong(op, b):
    return op.nums[0] * 2.0
"""

RAISING_SCHEDULE = """
from mirlo.extend.rules import schedule

@schedule(target="llvm", priority=10_000)
def raising(kernel, context):
    raise ValueError("no luck")
"""

WRONG_REWRITE = """
from mirlo.dialects.relax import DIALECT
from mirlo.extend.codegen import is_op, rewriter, wildcard

@rewriter(is_op("relax.sigmoid")(wildcard().named("x")), name="wrong-sigmoid")
def wrong_sigmoid(match, b):
    return b.emit(DIALECT.operations["relax.tanh"], match["x"].mlir)
"""

WRONG_UNIT = """
from dataclasses import dataclass
from mirlo import extend
from mirlo.extend.codegen import CodeGenerator, is_op, wildcard
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import legalize
from mirlo.extend.target import Target

@dataclass(frozen=True)
class Unit(CodeGenerator):
    name = "unit"
    pipeline = "legalize{target=unit}"
    def patterns(self):
        return [("tanh", is_op("relax.tanh")(wildcard()))]

extend.register_target(Target("unit", "a unit", codegen=Unit))

@legalize("relax.tanh", target="unit")
def wrong(op, b):
    return elementwise(op, b, [op.x], lambda x: x * 0.5)
"""


TWICE_WRONG = """
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import legalize

@legalize("relax.tanh", target="llvm", priority=11)
def wrong(op, b):
    return elementwise(op, b, [op.x], lambda x: x * 0.5)

@legalize("relax.tanh", target="llvm", priority=10)
def as_wrong(op, b):
    return elementwise(op, b, [op.x], lambda x: x * 0.25)
"""


def line_of_rule(plugin: str) -> int:
    """Return the line of the first rule of a plug-in."""
    return next(
        at for at, line in enumerate(plugin.split("\n"), 1) if re.match("@(legalize|intrinsic|schedule|rewriter)", line)
    )


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("plugin", "flags", "node", "step", "rule"),
    [
        (WRONG_INTRINSIC, [], "left", "lower-intrinsics{target=llvm}", "tir.tanh: wrong (plugin.py:LINE)"),
        (
            RAISING_SCHEDULE, [], "product", "schedule{target=llvm}",
            "@matmul: raising (plugin.py:LINE), in which it ended",
        ),
        (
            WRONG_REWRITE,
            ["--pipeline", "rewrite{rules=wrong-sigmoid},legalize,schedule,lower-intrinsics,plan-memory"],
            "right", "rewrite{rules={wrong-sigmoid}}", "rewrite relax.sigmoid: wrong-sigmoid (plugin.py:LINE)",
        ),
        (
            WRONG_UNIT, ["--target", "unit,llvm"], "left",
            'run-on-external{target=unit pipeline="legalize{target=unit}"}', "relax.tanh: wrong (plugin.py:LINE)",
        ),
        (TWICE_WRONG, [], "left", "undetermined", "relax.tanh: wrong (plugin.py:LINE)"),
    ],
    ids=["intrinsic", "schedule", "rewrite", "several targets", "two rules"],
)  # fmt: skip
def test_rules_of_every_kind_are_told(
    model: Path, plugin: str, flags: list[str], node: str, step: str | None, rule: str
) -> None:
    done = _bisect(model, plugin, *flags)
    assert f"first node that departs: '{node}'" in done.stdout, done.stdout + done.stderr
    report = json.loads((model.parent / "m-bisect" / "report.json").read_text())
    rule = rule.replace("LINE", str(line_of_rule(plugin)))
    assert report["pass"] == step and rule in report["rules"]
    assert report.get("rule", rule) == rule
    assert ("departs without each rule that can be left out" in report.get("why", "")) == (step == "undetermined")


def test_programs_of_several_parts(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", "x", "q", axis=0, name="split"),
        node("ConcatFromSequence", "q", "c", axis=0, name="join"),
        node("Tanh", "c", "y", name="left"),
    ]  # fmt: skip
    save(make_model(nodes, {"x": (F32, (2, 3))}, ["y"], output_types={"y": (F32, (2, 3))}), tmp_path / "m.onnx")
    (tmp_path / "plugin.py").write_text(CRASH)
    done = mirlo("bisect", "m.onnx", "--plugin", "plugin.py", cwd=tmp_path)
    assert "first node that departs: 'left'" in done.stdout, done.stderr
    assert "it fails in pass legalize{target=llvm}" in done.stdout


@pytest.mark.sample(0)
def test_a_machine_without_the_device_is_told_so(model: Path) -> None:
    """Each node would depart, for nothing runs."""
    done = _bisect(model, "", "--target", "llvm{triple=riscv64-linux-gnu cpu=generic}")
    assert done.returncode == 1
    assert "this machine cannot run what target 'llvm{triple=riscv64-linux-gnu cpu=generic}' makes" in done.stderr


def test_a_folder_of_others_is_left_alone(model: Path) -> None:
    (model.parent / "mine").mkdir()
    (model.parent / "mine" / "file").touch()
    done = _bisect(model, CRASH, "-o", "mine")
    assert done.returncode == 1 and "'mine' exists and is not of an earlier search" in done.stderr


def test_open_dims_must_be_given(model: Path) -> None:
    done = mirlo("bisect", model)
    assert done.returncode == 1 and "--shape x=" in done.stderr


def _amplifying(folder: Path, names: list[str], x: np.ndarray) -> None:
    """Write sums, whose rounding is not the oracle's, then operators that amplify it."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["v0"], name="total", keepdims=0),
        *(helper.make_node(name, [f"v{i}"], [f"v{i + 1}"], name=f"step{i}") for i, name in enumerate(names)),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))]
    outputs = [helper.make_value_info(f"v{len(names)}", onnx.TypeProto())]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.array([1]), "axes")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    np.save(folder / "x.npy", x.astype(np.float32))


# Sums that are whole numbers but for their rounding; sums of the same numbers in other orders; large angles.
WHOLE = np.tile(np.arange(1, 65)[:, None] / 300, (1, 300))
ORDERS = np.stack([np.random.default_rng(i).permutation(np.random.default_rng(0).random(300)) for i in range(64)])


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("names", "x"),
    [(["Floor", "Neg"], WHOLE), (["ArgMax"], ORDERS), (["Sin"], ORDERS * 1e6)],
    ids=["Floor", "ArgMax", "Sin"],
)
def test_rounding_that_is_amplified_blames_no_node(tmp_path: Path, names: list[str], x: np.ndarray) -> None:
    _amplifying(tmp_path, names, x)
    done = mirlo("bisect", "m.onnx", "--input", "x=x.npy", cwd=tmp_path)
    assert "no node departs on the inputs that reference computes for it" in done.stdout, done.stdout
    assert f"'step0' ({names[0]}) amplifies the rounding of what goes before\n  it begins at 'total':" in done.stdout
    assert "departs from reference by rounding that is amplified" in done.stderr
    assert not (tmp_path / "m-bisect").exists()


@pytest.mark.sample(0)
def test_a_wrong_node_behind_rounding_is_found(tmp_path: Path) -> None:
    _amplifying(tmp_path, ["Sin", "Tanh"], ORDERS * 1e6)
    (tmp_path / "plugin.py").write_text(CRASH)
    done = mirlo("bisect", "m.onnx", "--input", "x=x.npy", "--plugin", "plugin.py", cwd=tmp_path)
    assert "first node that departs: 'step1' (Tanh), node 3 of 3" in done.stdout, done.stdout + done.stderr


def test_values_of_large_models_are_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle computes some nodes at a time, and memory has their values only."""
    monkeypatch.setattr(bisection, "NODES_AT_ONCE", 4)
    nodes = [node("Neg", f"v{i}", f"v{i + 1}", name=f"n{i}") for i in range(24)]
    model = in_order(load(make_model(nodes, {"v0": (F32, (1024, 1024))}, ["v24"], {})))
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    tracemalloc.start()
    values = bisection._values(model, {"v0": x}, "reference", lambda text: None, ValueFolder(tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * x.nbytes < len(nodes) * x.nbytes
    assert all(np.array_equal(values[f"v{i}"], x if i % 2 == 0 else -x) for i in range(25))


def test_a_wrong_node_of_many(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisection, "NODES_AT_ONCE", 1)

    def halved(op: Any, b: Any) -> Any:
        return elementwise(op, b, [op.x], lambda x: x * 0.5)

    settings = TrialOptions(legalize={"relax.tanh": halved})
    feeds = {"x": np.ones((3, 8), np.float32)}
    departure = bisect(
        model, feeds, against="reference", settings=settings, bundle=model.parent / "bundle", progress=lambda text: None
    )
    assert isinstance(departure, Departure) and departure.node == "left"


def test_a_loop_without_a_condition_is_right(tmp_path: Path) -> None:
    """ONNX runs such a loop as often as its limit says; the reference evaluator of onnx 1.23 not once."""
    value, i64, boolean = helper.make_tensor_value_info, TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["again"]), helper.make_node("Exp", ["v"], ["u"])],
        "body",
        [value("i", i64, []), value("c", boolean, []), value("v", F32, [4])],
        [value("again", boolean, []), value("u", F32, [4])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    limit = numpy_helper.from_array(np.array(2, np.int64), "n")
    graph = helper.make_graph([loop], "g", [value("x", F32, [4])], [value("y", F32, [4])], [limit])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    done = mirlo("bisect", "m.onnx", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "m.onnx: every output is as reference computes it\n"), done.stdout


def test_an_opset_that_the_reference_evaluator_lacks(tmp_path: Path) -> None:
    """The one of onnx 1.23 evaluates `DequantizeLinear` from opset 19 on."""
    scale, zero = (
        numpy_helper.from_array(np.array(0.1, np.float32), "s"),
        numpy_helper.from_array(np.array(7, np.uint8), "z"),
    )
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], name="dequantize"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", F32, [4, 5])], [value("y", F32, [4, 5])], [scale, zero])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    done = mirlo("bisect", "m.onnx", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "m.onnx: every output is as reference computes it\n"), done.stderr


def test_roundings_are_what_was_computed_and_as_far_to_both_sides() -> None:
    """Numbers that are not finite, or need no rounding, stay as computed."""
    expected = {"x": np.array([1, 2, np.inf], np.float32), "i": np.array([1, 2])}
    computed = {"x": np.array([1.5, 2, np.inf], np.float32), "i": np.array([1, 3])}
    first, up, down, *others = _roundings(expected, computed)
    assert first == computed and len(others) > 1
    epsilon = np.finfo(np.float32).eps
    np.testing.assert_array_equal(up["x"], np.array([1.5, 2 + 2 * epsilon, np.inf], np.float32))
    np.testing.assert_array_equal(down["x"], np.array([0.5, 2 - 2 * epsilon, np.inf], np.float32))
    assert all((each["i"] == computed["i"]).all() for each in (up, down, *others))
    assert {float(each["x"][0]) for each in others} == {0.5, 1.5}  # at random


@pytest.mark.parametrize(
    ("actual", "near", "explains"),
    [
        ([1, 7], [[1, 5], [1, 9]], True),  # between the results of rounded inputs
        ([1, 12], [[1, 5], [1, 9]], True),  # rounded inputs depart there, too
        ([7, 7], [[1, 5], [1, 9]], False),
        ([1, 7], [[1, 1], [1, 1]], False),
        ([1, 1], [[1, 1], [1, 1]], True),
        ([1, 7], [[1, 5, 5], [1, 9]], True),  # the shape depends on rounding
        ([1, 7, 7], [[1, 5], [1, 9]], False),
    ],
)
def test_departures_that_rounding_explains(actual: list[int], near: list[list[int]], explains: bool) -> None:
    arrays = [np.array(each, np.float32) for each in near]
    expected = np.array([1, 1], np.float32)
    assert _explains(arrays, np.array(actual, np.float32), expected, Tolerance(1e-3, 0.0)) is explains


def test_definitions_need_no_oracle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong rule is named by comparing the model with itself; a right model passes."""
    (tmp_path / "wrong.py").write_text(WRONG_RULE)
    text = "func.func @main(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {\n"
    text += '%y = "relax.tanh"(%x) : (tensor<4x5xf32>) -> tensor<4x5xf32> loc("bend")\n'
    path = tmp_path / "model.mlir"
    path.write_text(f"{text}return %y : tensor<4x5xf32>\n}}\n")
    assert main(["bisect", str(path), "--against", "definitions"]) == 0
    assert "rules, passes and kernels keep what the model computes" in capsys.readouterr().out
    found = mirlo("bisect", str(path), "--against", "definitions", "--plugin", str(tmp_path / "wrong.py"))
    assert found.returncode == 1 and "rule 'wrong' at" in found.stdout and "(bend) changes the value" in found.stdout


@pytest.mark.parametrize("has_array", [False, True])
def test_inputs_that_are_no_tensors_are_refused(has_array: bool, tmp_path: Path, capsys) -> None:
    """An array for such an input is no error of the import: no such model can be bisected."""
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(F32, [3]))
    inputs = [helper.make_tensor_value_info("w", F32, [3]), helper.make_value_info("x", optional)]
    nodes = [node("OptionalGetElement", "x", "a"), node("Mul", "a w", "y")]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", F32, [3])])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    arguments = [f"--input=x={tmp_path / 'x.npy'}"] if has_array else []
    assert main(["bisect", str(tmp_path / "model.onnx"), *arguments]) != 0
    found = capsys.readouterr().err
    assert "input 'x' is optional(f32[3]): only models on tensors of numbers can be bisected" in found
