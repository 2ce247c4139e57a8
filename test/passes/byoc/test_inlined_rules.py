"""Regions that a pipeline legalizes keep the intrinsic rules of their target when they are compiled with the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import mirlo
from mirlo import R
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.codegen import CodeGenerator, is_op, wildcard
from mirlo.extend.rules import decline, intrinsic
from mirlo.extend.target import Target, register_target
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import PassError
from mirlo.passes.session import Session
from mirlo.testing import stages_round_trip, temporary_registrations

LOWERED: list[str] = []


class Lookup(CodeGenerator):
    """Takes exponentials of matrices, and leaves their code to the host."""

    name = "lookup"
    pipeline = "legalize"

    def patterns(self) -> list[tuple]:
        def takes(match):
            return len(match.op("exp").x.shape) == 2 or decline("matrices only")

        return [("exp", is_op("relax.exp")(wildcard()).named("exp"), takes)]


def line(op, b):
    """Lower to a line, so that one sees which rule lowered it."""
    LOWERED.append(op.type)
    return op.nums[0] * 2.0 + 1.0


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_target(Target("lookup", "exponentials by a table", codegen=Lookup))
        intrinsic("exp", target="lookup")(line)
        yield


@mirlo.script
def model(x: R.Tensor[(4, 8), R.f32], v: R.Tensor[(8,), R.f32]):
    return R.exp(R.relu(R.exp(x - 1.0))) * R.exp(v)


X, V = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8), np.linspace(-1, 1, 8, dtype=np.float32)
EXPECTED = (np.maximum((X - 1) * 2 + 1, 0) * 2 + 1) * np.exp(V)


@pytest.mark.parametrize("host", ["llvm", "c"])
def test_each_exponential_is_lowered_by_the_rules_of_its_target(host):
    np.testing.assert_allclose(mirlo.compile(model, f"lookup,{host}")(X, V), EXPECTED, rtol=1e-5)


@pytest.mark.parametrize("host", ["nvvm", "spirv"])
def test_kernels_of_devices_use_them_too(host):
    LOWERED.clear()
    mirlo.compile(model, f"lookup,{host}")
    assert LOWERED, "the kernel of the exponentials of matrices was lowered by the rules of the host"


def test_dynamic_dims():
    dynamic = mirlo.parse_script(mirlo.script_of(model).replace("(4, 8)", '("n", 8)'))
    np.testing.assert_allclose(mirlo.compile(dynamic, "lookup,llvm")(X[:3], V), EXPECTED[:3], rtol=1e-5)


@pytest.mark.sample(0)
def test_stages_are_resumed_with_the_rules():
    assert any("lower-intrinsics" in step for step in stages_round_trip(str(model), "lookup,llvm"))


def test_a_target_that_is_not_installed_is_an_error():
    text = """
func.func private @f(%x: memref<4xf32>, %y: memref<4xf32>) attributes {tir.prim_func, tir.rules = "lokup"} {
  return
}"""
    with make_context(), pytest.raises(PassError, match=r"'tir\.rules': unknown target 'lokup'; did you mean 'lookup'"):
        Pipeline("lower-intrinsics").run(ir.Module.parse(text), Session())
