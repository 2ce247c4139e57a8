"""Code generators that take loops: prim functions after legalization, and their C code."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_compiler import needs_c_compiler
from commands import output_of, run_script

import mirlo
from mirlo import R, T
from mirlo.dialects.bindings import ir
from mirlo.extend.codegen import Artifact, CodeGenerator, c_function, elementwise_prim, is_op, wildcard
from mirlo.extend.runtime import ExternalFunctions, register_external_loader
from mirlo.extend.target import Target, register_target
from mirlo.testing import stages_round_trip, temporary_registrations
from mirlo.tools.cli import main

ROOT = Path(__file__).parents[3]


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("loops_to_c", ROOT / "examples" / "loops_to_c.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = _example()
W = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
V = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)


def network(rows: int | str) -> Any:
    @mirlo.script
    def model(x: R.Tensor[(rows, 8), R.f32]):
        y = R.sin(R.matmul(x, R.const(W)))
        return R.softmax(R.relu(R.matmul(y, R.const(V))), axis=-1)

    return model


def expected(x: np.ndarray) -> np.ndarray:
    y = np.maximum(np.sin(x @ W) @ V, 0)
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@needs_c_compiler
@pytest.mark.parametrize("rows", [3, "n"])
def test_loop_patterns_in_a_target_list(rows: int | str, tmp_path: Path) -> None:
    executable = mirlo.compile(network(rows), "looper,llvm")
    (external,) = executable.artifact.externals
    assert (external.target, external.functions) == ("looper", ("looper_0",))
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(executable(x), expected(x), rtol=1e-5)
    executable.save(tmp_path / "m.mirlo")
    np.testing.assert_array_equal(mirlo.load(tmp_path / "m.mirlo")(x), executable(x))


@needs_c_compiler
def test_stages() -> None:
    steps = stages_round_trip(network(3), target="looper,llvm")
    at = next(i for i, step in enumerate(steps) if "partition{targets={looper}}" in step)
    assert "legalize" in steps[at - 1] and "outline-external" in steps[at + 1]


VIEWS: list[Any] = []


@dataclass(frozen=True)
class Legalizing(CodeGenerator):
    """Operators, which its own pipeline turns into loops; it is shown what came out, and computes by numpy."""

    name = "legalizing"
    pipeline = "legalize"
    guarded = False

    def patterns(self) -> Any:
        return [("activation", is_op("relax.sin", "relax.relu")(wildcard()))]

    def codegen(self, module: Any) -> Artifact:
        VIEWS.extend(_description(node) for node in module.functions[0].nodes)
        kernels = {f.name: ["sin" if "tir.sin" in _operations(f) else "relu", len(f.nodes)] for f in module.functions}
        return Artifact("legalizing", module.names, json.dumps(kernels).encode())


def _description(node: Any) -> dict[str, Any]:
    """Return the description in the view: the operations after the region follow code generation."""
    (block,) = node.prim.blocks
    return {
        "node": (node.op, node.prim.name, node.prim.is_scheduled),
        "block": str(block),
        "axes": [str(axis) for axis in block.axes],
        "loops": str(node.prim.schedule()),
        "script": mirlo.script_of(node.prim.operation),
        "c": c_function(node.prim).text,
    }


def _operations(function: Any) -> list[str]:
    return [op for node in function.nodes for block in node.prim.blocks for op in block.operations]


def _load(artifact: Any, context: Any) -> ExternalFunctions:
    functions = {"sin": np.sin, "relu": lambda x: np.maximum(x, 0)}

    def function(name: str) -> Any:
        def call(x: np.ndarray, y: np.ndarray) -> None:
            y[...] = functions[json.loads(artifact.data)[name][0]](x)

        return call

    return ExternalFunctions({name: function(name) for name in artifact.functions})


register_external_loader("legalizing", _load)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_target(Target("legalizing", "legalizes its regions", codegen=Legalizing))
        yield


def test_own_legalization() -> None:
    VIEWS.clear()
    executable = mirlo.compile(network(3), "legalizing,llvm")
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(executable(x), expected(x), rtol=1e-5)
    (view,) = VIEWS
    assert view["node"] == ("relax.call_tir", "sin", False)
    assert view["block"] == "sin: y0[v0, v1] = x0[v0, v1]"
    assert view["axes"] == ["v0 in 3", "v1 in 4"]
    assert "for " in view["loops"]
    assert "T.sin" in view["script"]
    assert view["c"].splitlines() == [
        "void sin(const float *x0, float *y0) {",
        "  for (int64_t i0 = 0; i0 < 3; i0 += 1) {",
        "    for (int64_t i1 = 0; i1 < 4; i1 += 1) {",
        "      const float v0 = x0[i0 * 4 + i1];",
        "      const float v1 = sinf(v0);",
        "      y0[i0 * 4 + i1] = v1;",
        "    }",
        "  }",
        "}",
    ]


NAMED = """
func.func @main(%x: tensor<3x8xf32> {relax.name = "x"}) -> (tensor<3x8xf32> {relax.name = "y"}) {
  %0 = "relax.sin"(%x) : (tensor<3x8xf32>) -> tensor<3x8xf32> loc("act")
  return %0 : tensor<3x8xf32>
}
"""
M, N = T.dims("M", "N")


@mirlo.prim_func
def by_hand(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("by_hand"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = T.sin(x[vi, vj])


def test_rules_of_one_node_work_inside_of_regions(tmp_path: Path) -> None:
    """`legalize={"node:..."}` gives the rule of an operator that the code generator legalizes itself."""
    seen = []

    def rule(op: Any, b: Any) -> Any:
        seen.append(op.name)
        return b.call_prim_func(by_hand, op.x)

    @mirlo.script
    def model(x: R.Tensor[(3, 8), R.f32]):
        return R.sin(x)

    VIEWS.clear()
    (tmp_path / "model.mlir").write_text(NAMED)
    mirlo.compile(tmp_path / "model.mlir", "legalizing,llvm", legalize={"node:act": rule})
    assert seen
    assert VIEWS[0]["block"].startswith("by_hand: ")


@pytest.mark.parametrize("placement", ["estimated", {"looper": [0]}])
def test_placements_by_number_are_refused(placement: Any) -> None:
    with pytest.raises(ValueError, match="'looper' matches prim functions, which are placed in the order"):
        mirlo.compile(network(3), "looper,llvm", placement=placement)


def test_a_host_without_the_pass_is_named() -> None:
    @dataclass(frozen=True)
    class Late(EXAMPLE.Looper):
        name = "late"
        after = "no-such-pass"

    register_target(Target("late", "too late", codegen=Late))
    with pytest.raises(mirlo.MirloError, match="'late' matches prim functions after the pass 'no-such-pass', which"):
        mirlo.compile(network(3), "late,llvm")


def test_fused_prim_functions() -> None:
    @dataclass(frozen=True)
    class Fused(EXAMPLE.Looper):
        name = "fused"
        after = "fuse-tir"

        def patterns(self) -> Any:
            return [("pointwise", elementwise_prim(wildcard(), ops={"tir.tanh", "tir.exp"}))]

    register_target(Target("fused", "after fusion", codegen=Fused))

    def model(x: R.Tensor[(3, 8), R.f32]):
        return R.tanh(R.exp(x))

    executable = mirlo.compile(mirlo.script(model), "fused,llvm")
    assert [e.functions for e in executable.artifact.externals] == [("fused_0",)]
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(executable(x), np.tanh(np.exp(x)), rtol=1e-5)


def test_partition_before_legalization_warns() -> None:
    from mirlo.passes.pipeline import Pipeline
    from mirlo.passes.session import Session

    warned: list[str] = []
    model = network(3)
    with model.context, ir.Location.unknown():
        Pipeline("partition{targets=looper}").run(model, Session(report=lambda kind, text, place: warned.append(text)))
    assert warned == [
        "the patterns of target 'looper' match calls of prim functions, and there are none: run 'legalize' before "
        "'partition'"
    ]


def test_the_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "code-generators.md").read_text(encoding="utf-8")
    page = text[text.index("## Take loops") :]
    example, printed = page.split("```python\n")[1].split("```")[0], page.split("```text\n")[1].split("```")[0]
    (tmp_path / "page.py").write_text(f"import mirlo\n{example}")
    assert output_of(run_script("page.py", cwd=tmp_path)).strip() == printed.strip()


def test_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(str(network(3)))
    assert main(["partition", str(path), "--targets", "looper,llvm"]) == 0
    out = capsys.readouterr().out
    assert "looper.product" in out and "its first block does not sum products" in out
    assert main(["partition", str(path), "--targets", "looper,llvm", "--cost", "estimated"]) == 1
    assert "which are placed in the order of the targets, not by cost" in capsys.readouterr().err
    assert main(["explain", str(path), "--target", "looper,llvm"]) == 0
    assert "taken by a code generator, as product_activation" in capsys.readouterr().out
