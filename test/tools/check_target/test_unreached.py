"""`mirlo check-target` cannot call a rule ok that no case took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mirlo.extend.codegen import CodeGenerator, is_op, wildcard
from mirlo.extend.ops import DialectOp, TensorType, elementwise, operand, register_dialect, result
from mirlo.extend.rules import decline, decline_machine, legalize
from mirlo.extend.target import LlvmTarget, Pipeline, Target, register_target
from mirlo.targets.llvm.cpus import X86
from mirlo.targets.llvm.processor import host_processor
from mirlo.testing import Draw, case, conformance_case, temporary_registrations
from mirlo.tools.cli import main
from mirlo.tools.conformance.check import check_target


class TiledTarget(Target):
    emit = LlvmTarget.emit

    def pipeline(self, options: Any) -> str:
        return str(Pipeline.named("llvm", options).for_target("tiled"))


@pytest.fixture(autouse=True)
def target() -> Iterator[None]:
    with temporary_registrations(__name__):

        class Twice(DialectOp, name="twice", dialect=register_dialect("unreached")):
            """A number, twice."""

            x, output = operand(), result()

            @staticmethod
            def infer(x: TensorType) -> TensorType:
                return x

        register_target(TiledTarget("tiled", "of a test", parent="llvm"))
        yield


def product(tile: int, factor: float) -> Any:
    def matmul(op: Any, b: Any) -> Any:
        dims = [*op.lhs.type.shape, *op.rhs.type.shape]
        if op.transpose_lhs or op.transpose_rhs:
            return decline("the unit reads matrices by rows")
        if len(dims) != 4 or any(dim % tile for dim in dims):
            return decline("the unit multiplies matrices in whole tiles", tile=tile, dims=dims)

        def body(p: Any, x: Any, y: Any) -> Any:
            shape = (x.shape[0], y.shape[1])
            return p.reduce("add", shape, (x.shape[1],), lambda i, j, k: x[i, k] * y[k, j] * factor)

        return b.call_prim(body, op.lhs, op.rhs)

    return matmul


@pytest.mark.sample(0)
@pytest.mark.parametrize(("tile", "factor", "code"), [(8, 1.5, 1), (24, 1.0, 0)])
def test_shapes_follow_from_tiles(tile: int, factor: float, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule that declines all usual shapes is tested on multiples of the sizes that it names."""
    legalize("relax.matmul", target="tiled")(product(tile, factor))
    assert main(["check-target", "tiled", "--operator", "relax.matmul"]) == code
    told = capsys.readouterr()
    assert "not reached" not in told.out
    assert ("f32: wrong: " in told.out) == bool(code)


@pytest.mark.sample(0)
def test_a_rule_that_nothing_reaches(capsys: pytest.CaptureFixture[str]) -> None:
    legalize("relax.relu", target="tiled", name="never")(lambda op, b: decline("never"))
    assert main(["check-target", "tiled", "--operator", "relax.relu"]) == 1
    told = capsys.readouterr()
    assert "relax.relu: not reached: no case took rule 'never' at " in told.out
    assert ": no case was found; tried " in told.out and "; the last declines: never\n" in told.out
    assert "no case took 1 rules of target 'tiled'" in told.err


def test_a_rule_for_other_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported, and no error of the target."""
    legalize("relax.relu", target="tiled", name="wide")(lambda op, b: decline_machine("no vectors of", bits=4096))
    assert main(["check-target", "tiled", "--operator", "relax.relu"]) == 0
    out = capsys.readouterr().out
    assert "relax.relu: not checked: rule 'wide' is for other machines: no vectors of (bits=4096)\n" in out


@pytest.mark.sample(0)
def test_instructions_that_a_processor_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    if host_processor().arch != X86:
        pytest.skip("the processors are of x86-64")
    assert main(["check-target", "llvm{cpu=x86-64-v2}", "--operator", "tir.exp2"]) == 0
    out = capsys.readouterr().out
    assert "exp2: not checked: rule 'exp2' is for other machines: the processor has no instruction that scales" in out


@pytest.mark.parametrize(("factor", "code"), [(2.0, 0), (3.0, 1)])
def test_operators_of_plugins(factor: float, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    @conformance_case("unreached.twice", kinds=("f32",))
    def twice(draw: Draw) -> Any:
        x = draw.array(4, 8)
        return case(x, expected=2.0 * x)

    legalize("unreached.twice", target="tiled")(lambda op, b: elementwise(op, b, [op.x], lambda x: x * factor))
    assert main(["check-target", "tiled", "--operator", "unreached.twice"]) == code
    assert "unreached.twice" in capsys.readouterr().out


@pytest.mark.sample(0)
@pytest.mark.parametrize(("factor", "is_wrong"), [(-1.0, False), (-3.0, True)])
def test_rules_for_operators_in_composites(factor: float, is_wrong: bool) -> None:
    """A rule that only composites of several operators bring to a region is found in those."""

    @dataclass(frozen=True)
    class Pairs(CodeGenerator):
        name = "pairs"
        pipeline = "legalize"
        guarded = False

        def patterns(self) -> Any:
            return [("pair", is_op("relax.relu")(is_op("relax.negative")(wildcard())))]

    register_target(Target("pairs", "of a test", codegen=Pairs))
    legalize("relax.negative", target="pairs", priority=99)(
        lambda op, b: elementwise(op, b, [op.x], lambda x: x * factor)
    )
    matrix = check_target("pairs,llvm", ["relax.negative"])
    assert (matrix.unreached, matrix.untaken) == ((), ())
    assert bool(matrix.count("wrong")) == is_wrong
