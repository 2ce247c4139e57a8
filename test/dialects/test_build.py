"""Builders: the Python values that they accept, and the errors for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mirlo.dialects import relax
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.dims import symbol
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType


@pytest.fixture
def module() -> Iterator[Any]:
    with make_context(), ir.Location.unknown():
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            yield made
        made.operation.verify()


def tensor(*shape: Any, element: str = "f32") -> Any:
    return relax.create.Full.make(shape=shape, value=0, dtype=element)


def type_of(value: Any) -> str:
    return str(TensorType.from_mlir(value.type))


def test_every_operator_is_found_by_name() -> None:
    assert relax.OPS["conv"] is relax.conv.Conv
    assert relax.OPS["add"] is relax.elementwise.Add
    assert all(f"relax.{name}" == op.OPERATION_NAME for name, op in relax.OPS.items())


def test_make_returns_the_value_or_the_values(module: Any) -> None:
    x = tensor(4, 6)
    assert type_of(relax.OPS["relu"].make(x)) == "f32[4, 6]"
    values, indices = relax.OPS["topk"].make(x, k=2)
    assert (type_of(values), type_of(indices)) == ("f32[4, 2]", "i64[4, 2]")
    assert [type_of(v) for v in relax.OPS["split"].make(x, axis=1, sizes=[1, 2, 3])] == [
        "f32[4, 1]",
        "f32[4, 2]",
        "f32[4, 3]",
    ]


def test_optional_operands(module: Any) -> None:
    x, scale = tensor(2, 3), tensor(3)
    for given in ((x,), (x, None), (x, scale), (x, None, scale), (x, scale, scale)):
        op = relax.normalize.LayerNorm.build(*given)
        padded = (*given, None, None)[:3]
        assert [op.x, op.scale, op.bias] == list(padded)


def test_attributes_are_python_values(module: Any) -> None:
    op = relax.conv.Conv.build(
        tensor(1, 3, 8, 8), tensor(4, 3, 3, 3), strides=np.array([2, 1]), padding=[np.int64(1)] * 4
    )
    assert (op.strides, op.padding, op.groups, op.data_layout) == ((2, 1), (1, 1, 1, 1), 1, "NC*")
    assert op.attribute_values()["dilations"] == ()
    assert "groups" not in op.operation.attributes
    assert relax.elementwise.Cast.build(tensor(2), dtype=dtype("i8")).dtype is dtype("i8")
    assert relax.activation.Clip.build(tensor(2), min=0, max=np.float32(6)).max == 6.0
    assert relax.shape.Reshape.build(tensor("n", 4), shape=(4, "n")).shape == (4, symbol("n"))


def test_defaults_are_left_out(module: Any) -> None:
    op = relax.conv.Conv.build(tensor(1, 3, 8), tensor(4, 3, 3), groups=1, strides=[], data_layout="NC*")
    assert set(op.operation.attributes) - {"operandSegmentSizes"} == set()


def test_concat_of_more_types_than_one_operation_holds(module: Any) -> None:
    pieces = [tensor(1, 1 + i % 3) for i in range(50)]
    joined = relax.OPS["concat"].make(pieces, axis=1)
    assert type_of(joined) == f"f32[1, {sum(1 + i % 3 for i in range(50))}]"
    assert sum(op.operation.name == "relax.concat" for op in module.body.operations) == 4


@pytest.mark.parametrize(
    "name, operands, attributes, message",
    [
        ("softmax", [(4,)], {"axsi": 0}, "has no attribute 'axsi'; did you mean 'axis'?"),
        ("softmax", [(4,)], {"axis": 0.5}, "attribute 'axis' must be an integer, got 0.5"),
        ("gelu", [(4,)], {"approximate": "erf"}, "attribute 'approximate' must be one of 'none', 'tanh', got 'erf'"),
        ("gelu", [(4,)], {"approximate": 1}, "attribute 'approximate' must be a string, got 1"),
        ("clip", [(4,)], {"min": "x"}, "attribute 'min' must be a number such as 0.5 : f64, got 'x'"),
        ("permute", [(4,)], {"axes": 0}, "attribute 'axes' must be integers such as array<i64: 1, 1>, got 0"),
        ("reshape", [(4,)], {"shape": [-1]}, "attribute 'shape' must be dims such as"),
        ("reshape", [(4,)], {"shape": [2.0, 2]}, "attribute 'shape' must be dims such as"),
        ("reshape", [("n",)], {"shape": ["n +"]}, "'n +' is not a dim expression"),
        ("cast", [(4,)], {"dtype": "float32"}, "unknown element type 'float32'; known: f64, f32"),
        ("cast", [(4,)], {}, "'relax.cast' needs the attribute 'dtype'"),
        ("tri", [(4, 4)], {"upper": "yes"}, "attribute 'upper' must be true or false, got 'yes'"),
        ("add", [(4,)], {}, "operand 'rhs' is missing"),
        ("relu", [(4,), (4,)], {}, "'relax.relu' takes 1 operands, got 2"),
        ("call_packed", [[(4,)]], {"function": "f"}, "'relax.call_packed' cannot infer its results: pass result_types"),
        ("conv", [(1, 3, 8), (4, 2, 3)], {}, "must agree, got 3 and 2"),
    ],
)
def test_errors(module: Any, name: str, operands: list[Any], attributes: dict[str, Any], message: str) -> None:
    values = [[tensor(*s) for s in shape] if isinstance(shape, list) else tensor(*shape) for shape in operands]
    with pytest.raises(OpError) as error:
        relax.OPS[name].make(*values, **attributes)
    assert message in str(error.value)


def test_an_operand_that_is_no_tensor(module: Any) -> None:
    from mirlo.dialects.bindings import arith

    scalar = arith.ConstantOp(ir.F32Type.get(), 1.0).result
    with pytest.raises(OpError, match="operand 'x' must be a ranked tensor of a known element type, got f32"):
        relax.OPS["relu"].make(scalar)
    with pytest.raises(OpError, match="operand 'xs' must be a ranked tensor of a known element type, got f32"):
        relax.OPS["concat"].make([tensor(2), scalar], axis=0)
