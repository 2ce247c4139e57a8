"""`mirlo verify`, `verify=True` and `assert_verified`: found faults, and their reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute import exp
from mirlo.passes.exact import blame, compare, verify_schedule
from mirlo.passes.exact.compare_graphs import first_wrong
from mirlo.passes.exact.operations import operations_in
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.legalize.builder import LegalizeBuilder
from mirlo.passes.rules import legalize
from mirlo.testing import assert_verified, temporary_registrations
from mirlo.tools.cli import main
from mirlo.tools.fuzz.verdict import FAILED, verdict_of_error
from mirlo.tools.verify.graph import graph_lines, verify_graph
from mirlo.tools.verify.model import verify_model

MODEL = """
func.func @main(%x: tensor<4x32xf32>, %w: tensor<32x20xf32>) -> tensor<4x20xf32> {
  %y = "relax.matmul"(%x, %w) {out_dtype = f32}
    : (tensor<4x32xf32>, tensor<32x20xf32>) -> tensor<4x20xf32> loc("product")
  %z = "relax.softmax"(%y) {axis = 1 : i64} : (tensor<4x20xf32>) -> tensor<4x20xf32> loc("weights")
  return %z : tensor<4x20xf32>
}
"""


@pytest.fixture(name="model")
def _model(tmp_path: Path) -> str:
    path = tmp_path / "model.mlir"
    path.write_text(MODEL)
    return str(path)


def _is_sum(op: ir.Operation) -> bool:
    return op.name in ("arith.addf", "vector.fma", "math.fma")


class Fault:
    """The first sum of a scheduled product that satisfies a predicate, which loses a term."""

    holds_for = staticmethod(_is_sum)


@pytest.fixture(name="faulty")
def _faulty(monkeypatch: pytest.MonkeyPatch) -> type[Fault]:
    """Leave a term out of each scheduled product."""

    class FaultyPair(compare.KernelPair):
        def __init__(self, definition, scheduled, *rest, **named) -> None:  # type: ignore[no-untyped-def]
            super().__init__(definition, scheduled, *rest, **named)
            if definition.name == "matmul":
                for op in filter(Fault.holds_for, operations_in(scheduled)):
                    op.results[0].replace_all_uses_with(op.operands[len(op.operands) - 1])
                    break

    monkeypatch.setattr(verify_schedule, "KernelPair", FaultyPair)
    monkeypatch.setattr(blame, "KernelPair", FaultyPair)
    return Fault


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_kernels_are_equal(model: str, target: str) -> None:
    verification = verify_model(model, target)
    assert [(v.function, v.status, v.nodes) for v in verification.verdicts] == [
        ("matmul", EQUAL, ("product",)),
        ("softmax", EQUAL, ("weights",)),
    ]
    assert_verified(MODEL, target)


@pytest.mark.parametrize("processor", ["x86-64-v2", "neoverse-v1"])
def test_kernels_for_other_processors_are_compared_here(model: str, processor: str) -> None:
    verification = verify_model(model, processor=processor)
    assert verification.count(EQUAL) == 2 and f"cpu={processor}" in verification.target


def test_the_table(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["kernel", "schedule", "found", "nodes"]
    assert lines[1].split()[:3] == ["matmul", "equal", "contraction"] and lines[1].endswith("product")
    assert "2 equal, 0 different, 0 outside" in lines[-1]
    assert main(["verify", model, "--json", "--kernel", "softmax"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [kernel["kernel"] for kernel in shown["kernels"]] == ["softmax"]


def test_a_kernel_that_differs_is_described(
    model: str, faulty: type[Fault], capsys: pytest.CaptureFixture[str]
) -> None:
    (verdict,) = [v for v in verify_model(model).verdicts if v.status == DIFFERENT]
    assert verdict.wrong is not None and verdict.wrong.first == (0, 0) and verdict.wrong.total == 80
    assert verdict.rule == "contraction" and verdict.choices and verdict.nodes == ("product",)
    assert verdict.primitive.startswith("no primitive: the loops differ")
    assert main(["verify", model]) == 1
    printed = capsys.readouterr()
    assert "kernel '@matmul' differs from its definition:" in printed.out
    assert "of 80 elements, first at [0, 0], in round 0" in printed.out
    assert "1 kernel differs from the definition" in printed.err


def test_a_kernel_that_differs_ends_the_compilation(model: str, faulty: type[Fault]) -> None:
    with pytest.raises(PassFailed, match=r"kernel '@matmul' \(product\), scheduled by 'contraction' with .* differs"):
        mirlo.compile(model, verify=True, cache=False)
    with pytest.raises(AssertionError, match="kernel '@matmul'"):
        assert_verified(MODEL)


def test_compiled_models_are_compared_on_request(model: str) -> None:
    assert mirlo.compile(model, verify=True) is not None


def test_verdicts_are_kept(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = verify_model(model, cache=tmp_path / "cache").verdicts
    monkeypatch.setattr(compare.KernelPair, "verify", None)
    assert verify_model(model, cache=tmp_path / "cache").verdicts == first
    with pytest.raises(PassFailed):
        verify_model(model, cache=tmp_path / "cache", rounds=3)


OTHER_MODEL = """
func.func @main(%tokens: tensor<4x32xf32>, %v: tensor<20x7xf32>, %u: tensor<32x20xf32>) -> tensor<4x7xf32> {
  %a = "relax.matmul"(%tokens, %u) {out_dtype = f32}
    : (tensor<4x32xf32>, tensor<32x20xf32>) -> tensor<4x20xf32> loc("first")
  %b = "relax.softmax"(%a) {axis = 1 : i64} : (tensor<4x20xf32>) -> tensor<4x20xf32> loc("second")
  %c = "relax.matmul"(%b, %v) {out_dtype = f32}
    : (tensor<4x20xf32>, tensor<20x7xf32>) -> tensor<4x7xf32> loc("third")
  return %c : tensor<4x7xf32>
}
"""
"""A model with the kernels of `MODEL`, under other names, and one of its own."""


def test_verdicts_are_those_of_equal_kernels(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change elsewhere in a model, and another model, leave verdicts valid; a change of either form does not."""
    compared = []
    verify = compare.KernelPair.verify

    def noting(pair: compare.KernelPair, *settings: object, **named: object) -> object:
        compared.append(pair.definition.name)
        return verify(pair, *settings, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(compare.KernelPair, "verify", noting)

    def kernels(text: str, processor: str = "x86-64-v4") -> list[str]:
        """Return the kernels of a model that are compared."""
        compared.clear()
        path = tmp_path / "model.mlir"
        path.write_text(text)
        verdicts = verify_model(str(path), processor=processor, cache=tmp_path / "cache").verdicts
        assert len(verdicts) >= 2 and all(verdict.status == EQUAL for verdict in verdicts)
        return list(compared)

    assert len(kernels(MODEL)) == 2
    assert kernels(MODEL) == []
    assert kernels(OTHER_MODEL) == ["matmul_0"]
    assert kernels(OTHER_MODEL.replace("20x7xf32", "20x9xf32").replace("4x7xf32", "4x9xf32")) == ["matmul_0"]
    assert kernels(MODEL.replace("axis = 1", "axis = 0")) == ["softmax"]
    assert len(kernels(MODEL.replace("32x20xf32", "32x24xf32").replace("4x20xf32", "4x24xf32"))) == 2
    assert kernels(MODEL) == []
    assert len(kernels(MODEL, "neoverse-v1")) == 2  # the same definitions, scheduled otherwise


IN_PARTS = """<ir_version: 9, opset_import: ["": 20]>
    agraph (string[2] x, float[2, 3] a, float[3, 2] b) => (string[2] z, float[2, 2] c) {
        m = MatMul (a, b)
        t = Cast <to = 8> (m)
        z = StringConcat (x, x)
        n = Cast <to = 1> (t)
        c = Softmax (n)
    }"""


def test_kernels_of_models_in_parts() -> None:
    model = onnx.parser.parse_model(IN_PARTS)
    verdicts = verify_model(model, cache=False).verdicts
    assert {verdict.function for verdict in verdicts} == {"matmul", "softmax"}
    assert all(verdict.status == EQUAL for verdict in verdicts)
    with pytest.raises(mirlo.MirloError, match="there is no kernel 'sofmax'.*'softmax'"):
        verify_model(model, kernel="sofmax", cache=False)


@pytest.fixture(name="wrong_rule")
def _wrong_rule() -> Iterator[None]:
    with temporary_registrations(__name__):

        @legalize("relax.softmax", target="llvm", priority=10)
        def exponential(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
            """Compute the exponential, which softmax is not."""
            return b.call_prim(lambda p, x: p.compute(x.shape, lambda *i: exp(x[i]), name="exponential"), op.x)

        yield


def test_graphs_of_models_in_parts() -> None:
    verification = verify_graph(onnx.parser.parse_model(IN_PARTS))
    assert {each.part for each in verification.verdicts.passes} == {1, 2}
    assert first_wrong(verification.verdicts) is None and verification.verdicts.count(EQUAL) > 0
    assert any(line.startswith("part 2: ") for line in graph_lines(verification))


def test_a_part_that_changes_results_is_named(wrong_rule: None) -> None:
    verdicts = verify_graph(onnx.parser.parse_model(IN_PARTS)).verdicts
    (wrong,) = [each for each in verdicts.passes if each.status == DIFFERENT]
    assert wrong.part == 2 and "of part 2 changes the results" in str(wrong)
    assert "exponential" in str(first_wrong(verdicts))


def test_the_graph_of_a_whole_model_has_no_parts() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> agraph (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    passes = verify_graph(model).verdicts.passes
    assert passes and {each.part for each in passes} == {0}


def test_the_graph_of_a_model_without_tensors_has_no_passes() -> None:
    text = '<ir_version: 9, opset_import: ["": 20]> agraph (string[2] x) => (string[2] y) { y = StringConcat (x, x) }'
    verdicts = verify_graph(onnx.parser.parse_model(text)).verdicts
    assert verdicts.all == [] and verdicts.first_seconds == 0


@pytest.mark.parametrize("target", ["nvvm", "spirv"])
def test_kernels_of_gpus_are_equal_without_a_gpu(model: str, target: str) -> None:
    verdicts = verify_model(model, target, cache=False).verdicts
    assert verdicts and all(verdict.status == EQUAL for verdict in verdicts)


def test_kernels_of_gpus_run_at_many_sizes(tmp_path: Path) -> None:
    """Threads of rows past the last one read nothing that threads of that row write."""
    nodes = [node("MatMul", "x w", "y"), node("Softmax", "y", "z", axis=1)]
    made = make_model(nodes, {"x": (F32, ("n", 32)), "w": (F32, (32, "m"))}, ["z"])
    path = tmp_path / "dynamic.onnx"
    path.write_bytes(made.SerializeToString())
    verdicts = verify_model(str(path), "spirv", cache=False).verdicts
    assert verdicts and all(verdict.status == EQUAL for verdict in verdicts)
    assert all(len({sizes["n"] for sizes in verdict.sizes}) > 3 for verdict in verdicts)


def test_a_kernel_of_a_gpu_differs_at_some_size(tmp_path: Path, faulty: type[Fault]) -> None:
    made = make_model([node("MatMul", "x w", "y")], {"x": (F32, ("n", 32)), "w": (F32, (32, 24))}, ["y"])
    path = tmp_path / "dynamic.onnx"
    path.write_bytes(made.SerializeToString())
    (verdict,) = verify_model(str(path), "spirv", cache=False).verdicts
    assert verdict.status == DIFFERENT and "where n = " in verdict.why


def test_kernels_of_gpus_are_compared_as_they_are_compiled(model: str) -> None:
    mirlo.compile(model, target="spirv", verify=True, load=False, cache=False)


def test_a_fuzzed_kernel_that_differs_is_a_bug() -> None:
    error = PassFailed("verify-schedule", "kernel '@f' differs from its definition: ...")
    assert verdict_of_error(error).state == FAILED


def test_a_saved_stage_is_compared_once(model: str, tmp_path: Path) -> None:
    """The passes that are left of a compilation with `verify` have the comparison among them."""
    mirlo.compile(model, verify=True, save_ir=tmp_path / "ir", cache=False)
    (stage,) = (tmp_path / "ir").glob("*-keep-definitions.mlir")
    assert "tir.definitions" in stage.read_text()
    assert mirlo.compile(stage, verify=True, cache=False) is not None


def test_unknown_kernels_are_named(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", model, "--kernel", "matmull"]) == 1
    assert "there is no kernel 'matmull'" in capsys.readouterr().err


def test_pipelines_of_the_caller_name_the_pass(model: str) -> None:
    with pytest.raises(mirlo.MirloError, match="says so itself, with the pass verify-schedule"):
        mirlo.compile(model, verify=True, pipeline="legalize{target=llvm}", cache=False)


def test_the_first_wrong_primitive_is_named(model: str, faulty: type[Fault], monkeypatch: pytest.MonkeyPatch) -> None:
    """A primitive that changes results, in a schedule by hand, is found by replaying the schedule with fewer."""

    def schedule(s: mirlo.Schedule) -> None:
        loops = s.loops("matmul")
        s.split(loops[0], [2, None])
        s.reorder(loops[2], loops[1])
        s.vectorize(loops[1])

    monkeypatch.setattr(faulty, "holds_for", _is_sum_of_vectors)
    (verdict,) = [v for v in verify_model(model, schedules={"matmul": schedule}).verdicts if v.status == DIFFERENT]
    assert verdict.primitive.startswith("primitive 3 of 3, s.vectorize("), verdict
    assert "it first differs after primitive 3 of 3" in str(verdict)


def _is_sum_of_vectors(op: ir.Operation) -> bool:
    return op.name in ("arith.addf", "vector.fma") and isinstance(op.results[0].type, ir.VectorType)


def test_graphs_are_compared_pass_by_pass(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--graph` shows the passes that changed the model, and the rules that they applied."""
    assert main(["verify", model, "--graph", "--target", "llvm", "--processor", "x86-64-v3"]) == 0
    shown = capsys.readouterr().out
    assert "legalize{target=llvm}" in shown and "0 different, 0 outside" in shown
    assert main(["verify", model, "--graph", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"][DIFFERENT] == 0
