"""Products of all orders of dims, types, constants and sizes of run time are schedules of primitives, and exact."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import make_model, node
from presets import PROCESSORS

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.view import PrimView, prim_functions
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.exact.verdict import EQUAL
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.contraction.forms import row_major
from mirlo.passes.schedule.blocks.group import whole_group
from mirlo.passes.schedule.primitives.group_plan import schedule_of
from mirlo.passes.session import Session
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.schedule.contraction.plan import plan_of
from mirlo.targets.llvm.schedule.contraction.sides import NO_AXIS
from mirlo.targets.llvm.schedule.contraction.tiled import ContractionLoops, loops_of_contraction
from mirlo.tools.explain.model import explain_model
from mirlo.tools.verify.model import verify_model

FLOAT_EQUATIONS = (
    "mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "bmk,bkn->bmn", "bmk,bnk->bmn", "abmk,abnk->abmn",
    "abmk,akn->abmn", "abmk,bkn->abmn", "mk,k->m", "k,kn->n", "mk,mk->m", "ij,ij->", "bmk,bkn->mbn", "bmkl,kln->bmn",
    "abm,abn->mn", "mab,abn->mn", "amb,bna->mn", "am,an->amn", "mbk,nbk->bmn", "i,j->ij",
)  # fmt: skip
BYTE_EQUATIONS = ("mk,kn->mn", "bmk,bkn->bmn", "abmk,abkn->abmn")
SIZES = (1, 2, 3, 5, 8, 13, 17, 32, 33, 64, 70, 100)
FLOATS = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64, onnx.TensorProto.FLOAT16: np.float16}
BYTES = {onnx.TensorProto.UINT8: np.uint8, onnx.TensorProto.INT8: np.int8}


class Product:
    """A product of two arrays that a seed determines."""

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.random = np.random.default_rng(seed)
        self.is_of_bytes = choose.random() < 0.4
        types = BYTES if self.is_of_bytes else FLOATS
        self.equation = choose.choice(BYTE_EQUATIONS if self.is_of_bytes else FLOAT_EQUATIONS)
        self.terms = self.equation.split("->")[0].split(",")
        self.sizes = {dim: choose.choice(SIZES) for dim in sorted(set("".join(self.terms)))}
        self.dynamic = {dim for dim in self.sizes if choose.random() < 0.3} if choose.random() < 0.6 else set()
        self.is_constant = choose.random() < 0.3
        self.is_transposed = self.is_of_bytes and not self.is_constant and choose.random() < 0.4
        if self.is_constant:
            self.dynamic -= set(self.terms[1])
        kinds = list(types)
        left = choose.choice(kinds)
        self.kinds = [left, choose.choice(kinds) if self.is_of_bytes else left]
        self.types = [types[kind] for kind in self.kinds]

    def array(self, side: int, sizes: dict[str, int]) -> np.ndarray:
        """Return whole numbers that sums keep."""
        info = np.iinfo(self.types[side]) if self.is_of_bytes else None
        low, high = (info.min, info.max + 1) if info is not None else (-3, 4)
        shape = [sizes[dim] for dim in self.terms[side]]
        return self.random.integers(low, high, shape).astype(self.types[side])

    @property
    def model(self) -> onnx.ModelProto:
        """Return the product as a model; the second operand may be a constant, or come transposed."""
        shapes = [[dim if dim in self.dynamic else self.sizes[dim] for dim in term] for term in self.terms]
        nodes = [node("MatMulInteger" if self.is_of_bytes else "Einsum", "a b", "y",
                      **({} if self.is_of_bytes else {"equation": self.equation}))]  # fmt: skip
        inputs: dict[str, Any] = {"a": (self.kinds[0], shapes[0])}
        constants: dict[str, np.ndarray] = {}
        if self.is_constant:
            constants["b"] = self.array(1, self.sizes)
            self.constant = constants["b"]
        elif self.is_transposed:
            order = [*range(len(shapes[1]) - 2), len(shapes[1]) - 1, len(shapes[1]) - 2]
            nodes.insert(0, node("Transpose", "c", "b", perm=order))
            inputs["c"] = (self.kinds[1], [shapes[1][dim] for dim in order])
        else:
            inputs["b"] = (self.kinds[1], shapes[1])
        return make_model(nodes, inputs, ["y"], constants)


@pytest.mark.sample(20)
@pytest.mark.parametrize("processor", ["zen3", "icelake", "sapphire", "neoverse-n1", "neoverse-n2"])
@pytest.mark.parametrize("seed", range(40))
def test_products_are_primitives(seed: int, processor: str) -> None:
    """Products print their primitives, also where one row of converted elements has loops of its own."""
    product = Product(seed)
    explained = explain_model(product.model, f"llvm{{{PROCESSORS[processor]}}}", tune=False)
    records = [kernel.schedule for kernel in explained.kernels if kernel.schedule is not None]
    for record in (each for each in records if each.rule.name == "contraction"):
        assert "register_tile" in str(record.trace) and not record.is_applied


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(100))
def test_products_are_exact(seed: int) -> None:
    product = Product(seed)
    f = mirlo.compile(product.model, cache=False)
    for each in ({}, dict.fromkeys(product.dynamic, 1), dict.fromkeys(product.dynamic, 41)):
        sizes = {**product.sizes, **each}
        a = product.array(0, sizes)
        b = product.constant if product.is_constant else product.array(1, sizes)
        given = [a] if product.is_constant else [a, np.swapaxes(b, -1, -2).copy() if product.is_transposed else b]
        wide = np.int64 if product.is_of_bytes else np.float64
        expected = np.einsum(product.equation, a.astype(wide), b.astype(wide))
        np.testing.assert_allclose(f(*given), expected, rtol=0 if product.types[0] != np.float16 else 2e-3)


def loops_of_axes(model: onnx.ModelProto, processor: str) -> list[ContractionLoops]:
    """Return the loops of the contractions of a model; require that each axis of the analysis has one of its own.

    It is as long as the axis, and operands move along it as the analysis says.
    """
    result: list[ContractionLoops] = []
    module, store = import_model(model)
    with module.context, ir.Location.unknown():
        passes = "simplify,legalize{target=llvm},annotate-kinds,fuse-ops,fuse-tir,pack-weights"
        session = Session(store, options={"machine": PROCESSORS[processor]})
        Pipeline(f"builtin.module({passes})").run(module, session, verify_each=False)
        for function in prim_functions(module.operation):
            group = whole_group(PrimView(function), find_machine(PROCESSORS[processor]))
            plan = plan_of(group.blocks, group.kept, group.machine)
            if isinstance(plan, Decline):
                continue
            s = schedule_of(group)
            block = s.blocks()[0]
            found = loops_of_contraction(s, block, plan.roles)
            axes = {axis.id: axis for axis in plan.roles.contraction.axes}
            assert {*found.of_axis.values(), *found.units, *found.over} == {*s.loops(block)}
            assert {*found.of_axis} - {NO_AXIS.id} == {*axes}
            for id_, loop in ((id_, found.of_axis[id_]) for id_ in axes):
                assert s.extent(loop) == axes[id_].extent
                for side in (plan.roles.rows, plan.roles.columns):
                    stride = row_major(side.access.dims, side.access.shape).stride(axes[id_])
                    assert s.strides(block, loop)[0][side.factor.position] == stride
            parts = [part for axis in (*plan.column_axes, *plan.row_axes) for part in axis.parts if part in axes]
            assert sorted(parts) == sorted(axis.id for axis in plan.roles.contraction.spatial)
            result.append(found)
    return result


@pytest.mark.parametrize("seed", range(60))
def test_loops_are_found_by_axes(seed: int) -> None:
    loops_of_axes(Product(seed).model, "icelake")


@pytest.mark.parametrize("processor", ["zen3", "icelake", "neoverse-n1"])
@pytest.mark.parametrize("columns", [1, 48, 70, 100, 192, 200])
def test_loops_of_panels_are_found_by_axes(columns: int, processor: str) -> None:
    """Columns that are stored as panels have a loop over panels, of which the last may be smaller, and one in them."""
    weights = np.ones((24, columns), np.float32)
    model = make_model([node("MatMul", "a b", "y")], {"a": (onnx.TensorProto.FLOAT, [40, 24])}, ["y"], {"b": weights})
    (found,) = loops_of_axes(model, processor)
    assert len(found.of_axis) in ({2} if columns == 1 else {4} if columns > 150 else {3, 4})


BYTE_CPUS = ("x86-64-v3", "cascadelake", "neoverse-n1", "neoverse-n2")


@pytest.mark.sample(4)
@pytest.mark.parametrize("cpu", BYTE_CPUS)
@pytest.mark.parametrize("depth", [8, 13, 4, 3])
def test_interleaved_columns_equal_their_definition(cpu: str, depth: int) -> None:
    """Columns of each call in groups of K, with and without a rest, of all signs, for processors that do not run."""
    nodes: list[Any] = []
    inputs: dict[str, Any] = {}
    for i, (left, right, transposed) in enumerate(itertools.product(BYTES, BYTES, (False, True))):
        name = f"c{i}" if transposed else f"b{i}"
        if transposed:
            nodes.append(node("Transpose", name, f"b{i}", perm=[1, 0]))
        nodes.append(node("MatMulInteger", f"a{i} b{i}", f"y{i}"))
        inputs |= {f"a{i}": (left, [5, depth]), name: (right, [19, depth] if transposed else [depth, 19])}
    model = make_model(nodes, inputs, [f"y{i}" for i in range(8)])
    verdicts = verify_model(model, processor=cpu, cache=False, tune=False).verdicts
    assert sum(verdict.rule == "contraction" for verdict in verdicts) == 8
    assert all(verdict.status == EQUAL for verdict in verdicts)
    kernels = explain_model(model, f"llvm{{cpu={cpu}}}", tune=False).kernels
    records = {kernel.name: kernel.schedule for kernel in kernels if kernel.schedule is not None}
    printed = {name: record.trace for name, record in records.items() if record.rule.name == "contraction"}
    given = verify_model(model, processor=cpu, schedules=printed, cache=False, tune=False).verdicts
    assert sum(verdict.rule == "given" for verdict in given) == 8
    assert all(verdict.status == EQUAL for verdict in given)


@pytest.mark.parametrize("cpu", [*BYTE_CPUS, "cooperlake"])
@pytest.mark.parametrize("channels", [2, 3, 5, 7])
def test_windows_of_few_channels_equal_their_definition(cpu: str, channels: int) -> None:
    """The channels of a pixel are groups of K, of which the last one, or the only one, is partial."""
    nodes: list[Any] = []
    inputs: dict[str, Any] = {}
    for i, (left, right) in enumerate(itertools.product(BYTES, BYTES)):
        nodes.append(node("ConvInteger", f"a{i} b{i}", f"y{i}", pads=[1, 1, 1, 1], strides=[1 + i % 2] * 2))
        inputs |= {f"a{i}": (left, [1, channels, 7, 9]), f"b{i}": (right, [19, channels, 3, 3])}
    model = make_model(nodes, inputs, [f"y{i}" for i in range(4)])
    verdicts = verify_model(model, processor=cpu, cache=False, tune=False).verdicts
    assert sum(verdict.rule == "contraction" for verdict in verdicts) == 4
    assert all(verdict.status == EQUAL for verdict in verdicts)
