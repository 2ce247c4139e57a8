"""Targets whose own rules compute wrongly, one kind of bug each, and correct ones: legalization, schedules, intrinsics.

    target = chip("schedule_last_iteration")     # registered; derived from target llvm
    target = chip("", "schedule")                # the correct rules of one kind

Every rule takes part of what it could: it declines the rest with the sizes that it wants, as rules do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import decline, intrinsic, legalize, schedule
from mirlo.extend.schedules import Schedule
from mirlo.extend.target import LlvmTarget, Pipeline, Target, register_target

TILE = 8
ODD_SIZE = 13
ODD_LANES = 5

# ------------------------------------------------------------------------------------------------------ legalization


def products(target: str, fault: str) -> None:
    """Multiply matrices in whole tiles."""

    @legalize("relax.matmul", target=target)
    def tiled_matmul(op: Any, b: Any) -> Any:
        dims = [*op.lhs.type.shape, *op.rhs.type.shape]
        is_static = op.lhs.type.has_static_shape and op.rhs.type.has_static_shape
        if len(dims) != 4 or not is_static or any(dim % TILE for dim in dims):
            return decline("the unit multiplies whole tiles", tile=TILE, dims=dims)
        if (op.transpose_lhs or op.transpose_rhs) and fault != "legalize_ignores_transposes":
            return decline("the unit reads matrices by rows")
        if op.lhs.dtype.name != "f32":
            return decline("the unit multiplies f32", type=op.lhs.dtype)

        def body(p: Any, x: Any, y: Any) -> Any:
            inner = x.shape[1] - (1 if fault == "legalize_one_step_less" else 0)
            return p.reduce("add", (x.shape[0], y.shape[1]), (inner,), lambda i, j, k: x[i, k] * y[k, j])

        if fault == "legalize_ignores_transposes" and (dims[0] != dims[1] or dims[2] != dims[3] or dims[1] != dims[2]):
            return decline("the unit multiplies square matrices", tile=TILE, dims=dims)
        return b.call_prim(body, op.lhs, op.rhs)


def exponentials(target: str, fault: str) -> None:
    """Compute a softmax by other operators."""

    @legalize("relax.softmax", target=target)
    def by_operators(op: Any, b: Any) -> Any:
        if op.x.dtype.name != "f32":
            return decline("the unit computes in f32", type=op.x.dtype)
        rank = len(op.x.type.shape)
        axis = abs(op.axis) if fault == "legalize_negative_axis" else op.axis % rank
        axis = min(axis, rank - 1)
        if fault == "legalize_dynamic_only" and not op.x.type.has_static_shape:
            axis = 0
        top = OPS["reduce_max"].make(op.x, axes=(axis,), keepdims=True)
        raised = OPS["exp"].make(OPS["subtract"].make(op.x, top))
        total = OPS["reduce_sum"].make(raised, axes=(axis,), keepdims=True)
        return OPS["divide"].make(raised, total)


def maxima(target: str, fault: str) -> None:
    """Compute a maximum with zero."""

    @legalize("relax.relu", target=target)
    def by_selection(op: Any, b: Any) -> Any:
        if op.x.dtype.name not in ("f32", "f16"):
            return decline("the unit computes in f32 and f16", type=op.x.dtype)
        if fault == "legalize_low_precision" and op.x.dtype.name == "f16":
            return elementwise(op, b, [op.x], lambda x: x)
        return OPS["maximum"].make(op.x, OPS["full"].make(shape=(), value=0.0, dtype=op.x.dtype))


# ---------------------------------------------------------------------------------------------------------- schedules


def schedules(target: str, fault: str, priority: int = 0) -> None:
    """Compute maps in the plainest order of loops."""

    @schedule(target=target, priority=priority)
    def plain_loops(kernel: Any, context: Any) -> Any:
        blocks = kernel.view.blocks
        if any(block.reduce for block in blocks) or not 1 <= len(blocks) <= 2:
            return decline("only maps of one or two blocks", blocks=[block.name for block in blocks])
        domain = blocks[-1].domain
        if len(domain) < 1:
            return decline("no loop")
        threads = context.options["threads"]
        made = Schedule(kernel.view.op).emit()
        applies = {
            "schedule_last_iteration": True,
            "schedule_with_epilogue": len(blocks) == 2,
            "schedule_in_threads": threads > 1,
            "schedule_dynamic_only": not isinstance(domain[-1], int),
        }
        if applies.get(fault, False):
            _shorten(made, None)
        if fault == "schedule_one_size":
            _shorten(made, ODD_SIZE)
        return made


def _shorten(function: Any, size: int | None) -> None:
    """Leave out the last iteration of the innermost loops; those of one size, or all."""
    index = ir.IndexType.get()
    for loop in list(_loops_in(function.operation)):
        if any(True for region in loop.regions for block in region for op in block for _ in _loops_in(op.operation)):
            continue
        bound = loop.operands[1]
        with ir.InsertionPoint(loop), loop.location:
            less = _made("arith.subi", index, bound, _constant(1))
            if size is not None:
                equal = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
                is_odd = _made("arith.cmpi", ir.IntegerType.get_signless(1), bound, _constant(size), predicate=equal)
                less = _made("arith.select", index, is_odd, less, bound)
            loop.operands[1] = less


def _constant(value: int) -> ir.Value:
    return _made("arith.constant", ir.IndexType.get(), value=ir.IntegerAttr.get(ir.IndexType.get(), value))


def _made(name: str, result: ir.Type, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
    return ir.Operation.create(name, [result], list(operands), attributes).results[0]


def _loops_in(operation: ir.Operation) -> Iterator[ir.Operation]:
    if operation.name == "scf.for":
        yield operation
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _loops_in(inner.operation)


# --------------------------------------------------------------------------------------------------------- intrinsics


def intrinsics(target: str, fault: str) -> None:
    """Compute intrinsics by others."""

    @intrinsic("rsqrt", target=target)
    def by_quotient(op: Any, b: Any) -> Any:
        if op.dtype not in ("f32", "f64"):
            return decline("the unit computes in f32 and f64", type=op.dtype)
        (x,) = op.nums
        wrong = {
            "intrinsic_one_lane_count": b.shape == (ODD_LANES,),
            "intrinsic_scalars": b.shape is None,
            "intrinsic_two_dims": b.shape is not None and len(b.shape) == 2,
            "intrinsic_f64": op.dtype == "f64",
        }
        return (2.0 if wrong.get(fault, False) else 1.0) / b.sqrt(x)


KINDS: dict[str, Callable[[str, str], None]] = {
    "products": products,
    "softmax": exponentials,
    "maxima": maxima,
    "schedules": schedules,
    "intrinsics": intrinsics,
}
"""The correct rules of a chip, and how they are registered."""

RULE_FAULTS: dict[str, str] = {
    "legalize_one_step_less": "products",
    "legalize_ignores_transposes": "products",
    "legalize_negative_axis": "softmax",
    "legalize_dynamic_only": "softmax",
    "legalize_low_precision": "maxima",
    "schedule_last_iteration": "schedules",
    "schedule_with_epilogue": "schedules",
    "schedule_in_threads": "schedules",
    "schedule_dynamic_only": "schedules",
    "schedule_one_size": "schedules",
    "intrinsic_one_lane_count": "intrinsics",
    "intrinsic_scalars": "intrinsics",
    "intrinsic_two_dims": "intrinsics",
    "intrinsic_f64": "intrinsics",
}
"""The faults, and whose rules have them."""


def chip(fault: str, kind: str = "") -> str:
    """Register a target with the rules of one kind, correct where no fault is named; return its name."""
    name = f"chip_{fault or kind}"

    class ChipTarget(Target):
        emit = LlvmTarget.emit

        def pipeline(self, options: Any) -> str:
            return str(Pipeline.named("llvm", options).for_target(name))

    register_target(ChipTarget(name, f"a chip: {fault or 'correct'}", parent="llvm"))
    KINDS[RULE_FAULTS[fault] if fault else kind](name, fault)
    return name


# ------------------------------------------------------------------------------------------------------------ models


def chip_network(seed: int = 0) -> onnx.ModelProto:
    """Return a network whose nodes the rules of all chips take."""
    random = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.uniform(-0.5, 0.5, shape).astype(np.float32), name)

    weights = [weight("w0", 16, 16), weight("w1", 16, 16), weight("s", 12, ODD_SIZE)]
    starts, ends = (numpy_helper.from_array(np.array(given), name) for name, given in (("a", [0, 0]), ("b", [12, 13])))
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m0"], name="product"),
        helper.make_node("Gemm", ["m0", "w1"], ["m1"], name="transposed", transB=1),
        helper.make_node("Softmax", ["m1"], ["p"], name="softmax", axis=-1),
        helper.make_node("Slice", ["p", "a", "b"], ["c"], name="slice"),
        helper.make_node("Mul", ["c", "s"], ["d"], name="scaled"),
        helper.make_node("CumSum", ["d", "axis"], ["e"], name="sums"),
        helper.make_node("Relu", ["e"], ["r"], name="relu"),
        helper.make_node("Gemm", ["m0", "m0"], ["g"], name="gram", transB=1),
        helper.make_node("LayerNormalization", ["g", "ones"], ["l"], name="norm"),
        helper.make_node("Slice", ["l", "a", "b"], ["k"], name="part"),
        helper.make_node("Cast", ["k"], ["h"], name="halves", to=TensorProto.FLOAT16),
        helper.make_node("Relu", ["h"], ["hr"], name="relu_of_halves"),
        helper.make_node("Cast", ["hr"], ["hd"], name="doubles", to=TensorProto.DOUBLE),
        helper.make_node("Add", ["hd", "two"], ["sd"], name="positive"),
        helper.make_node("Sqrt", ["sd"], ["sq"], name="roots"),
        helper.make_node("Reciprocal", ["sq"], ["rs"], name="reciprocal"),
        helper.make_node("Cast", ["rs"], ["z"], name="floats", to=TensorProto.FLOAT),
        helper.make_node("Add", ["r", "c"], ["y"], name="result"),
    ]
    weights += [numpy_helper.from_array(np.ones(16, np.float32), "ones"), numpy_helper.from_array(np.array(2.0), "two")]
    axis = numpy_helper.from_array(np.array(1), "axis")
    graph = helper.make_graph(
        nodes, "chips", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 16])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [12, ODD_SIZE]) for name in "yz"],
        [*weights, starts, ends, axis],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
