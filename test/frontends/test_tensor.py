"""Operators of tensors: the same expression on arrays of numpy says what each must compute."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from graph_callbacks import in_a_graph

import mirlo
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import find_named
from mirlo.frontends import tensor as T
from mirlo.frontends.builder import GraphBuilder, UnsupportedOperation
from mirlo.frontends.foreign import ImportedModule
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.params import ParameterStore

RANDOM = np.random.default_rng(0)
N = D.symbol("n")


def build(types: Sequence[TensorType], fill: Callable[..., Sequence[Tensor]]) -> ImportedModule:
    """Return a module whose function computes what `fill` does of arguments of these types."""
    store = ParameterStore()
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ([type_.to_mlir() for type_ in types], []))
        builder = GraphBuilder("main", store)
        builder.taken.update(name for type_ in types for dim in type_.shape for name in D.symbols_of(dim))
        with builder.inside(function.add_entry_block()):
            results = [builder.full(x) for x in fill(*map(builder.tensor, function.entry_block.arguments))]
            func.ReturnOp(results)
        given = ir.FunctionType.get([type_.to_mlir() for type_ in types], [value.type for value in results])
        function.attributes["function_type"] = ir.TypeAttr.get(given)
    return ImportedModule(module, store)


def require_same(
    types: Sequence[TensorType], arrays: Sequence[np.ndarray], cases: Mapping[str, Callable[..., Any]]
) -> None:
    """Compare what each of these functions computes of tensors and of arrays."""
    module = build(types, lambda *given: [case(*given) for case in cases.values()])
    found = mirlo.compile(module, cache=False)(*arrays)
    for (name, case), one in zip(cases.items(), found if isinstance(found, tuple) else (found,), strict=True):
        other = np.asarray(case(*arrays))
        assert one.shape == other.shape, (name, one.shape, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "x + y": lambda x, y: x + y, "x - y": lambda x, y: x - y, "x * y": lambda x, y: x * y, "x / y": lambda x, y: x / y,
    "x // y": lambda x, y: x // y, "x % y": lambda x, y: x % y, "abs(x) ** y": lambda x, y: abs(x) ** y,
    "-x": lambda x, y: -x, "3 - x": lambda x, y: 3 - x, "2 / y": lambda x, y: 2 / y, "7 // y": lambda x, y: 7 // y,
    "7 % y": lambda x, y: 7 % y, "2 ** x": lambda x, y: 2**x, "1 + 2 * x": lambda x, y: 1 + 2 * x,
    "x < y": lambda x, y: x < y, "x <= 0": lambda x, y: x <= 0, "x > y": lambda x, y: x > y,
    "0 >= x": lambda x, y: x <= 0,
    "np.float32(2) * x": lambda x, y: np.float32(2) * x,
    "(x < 0) & ~(y > 0)": lambda x, y: (x < 0) & ~(y > 0), "(x < 0) | (y > 0)": lambda x, y: (x < 0) | (y > 0),
    "(x < 0) ^ True": lambda x, y: (x < 0) ^ True,
}  # fmt: skip
PARTS: dict[str, Callable[..., Any]] = {
    "x[1:]": lambda x: x[1:], "x[..., 1:]": lambda x: x[..., 1:], "x[:, ::2]": lambda x: x[:, ::2],
    "x[0]": lambda x: x[0], "x[..., -1]": lambda x: x[..., -1], "x[:, 1, None]": lambda x: x[:, 1, None],
    "x[None, ..., 2:4, 1]": lambda x: x[None, ..., 2:4, 1], "x[-3:, :, :-1]": lambda x: x[-3:, :, :-1],
    "x[2:5:2, ..., ::3]": lambda x: x[2:5:2, ..., ::3], "x[1:][:, 3]": lambda x: x[1:][:, 3],
}  # fmt: skip
OF_FIXED_DIMS: dict[str, Callable[..., Any]] = {
    "x[::-1]": lambda x: x[::-1], "x[:, 3:0:-2]": lambda x: x[:, 3:0:-2], "x[:, 9:]": lambda x: x[:, 9:],
    "x[-99:2]": lambda x: x[-99:2],
}  # fmt: skip


@pytest.mark.parametrize("rows", [6, N])
def test_arithmetic(rows: D.Dim) -> None:
    types = [TensorType.of((rows, 5), "f32"), TensorType.of((5,), "f32")]
    y = RANDOM.uniform(0.5, 2, 5).astype(np.float32) * np.array([1, -1, 1, -1, 1], np.float32)
    require_same(types, [RANDOM.standard_normal((6, 5)).astype(np.float32), y], ARITHMETIC)


@pytest.mark.parametrize("kind", ["i32", "u8"])
def test_integers(kind: str) -> None:
    names = ("x + y", "x * y", "x % y", "x // y", "x < y", "x > y")
    cases = {name: ARITHMETIC[name] for name in names} | {
        "bits": lambda x, y: (x & y) | (x ^ 3), "~x": lambda x, y: ~x, "x << y": lambda x, y: x << y,
        "x >> y": lambda x, y: x >> y, "1 & x": lambda x, y: 1 & x,
    }  # fmt: skip
    arrays = [RANDOM.integers(0, 60, 9).astype(kind.replace("u", "uint").replace("i3", "int3")) for _ in "xy"]
    require_same([TensorType.of((9,), kind)] * 2, [arrays[0], arrays[1] % 5 + 1], cases)


@pytest.mark.parametrize("rows", [6, N])
def test_parts(rows: D.Dim) -> None:
    cases = PARTS if rows is N else PARTS | OF_FIXED_DIMS
    require_same([TensorType.of((rows, 5, 4), "f32")], [RANDOM.standard_normal((6, 5, 4)).astype(np.float32)], cases)


UNARY = (
    "acos", "asin", "atan", "atanh", "cos", "sin", "tan", "tanh", "sinh", "cosh", "asinh", "exp", "expm1", "exp2",
    "log1p", "ceil", "floor", "trunc", "square", "sign", "cbrt",
)  # fmt: skip


def _numpy_name(name: str) -> str:
    inverse = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "atanh": "arctanh", "asinh": "arcsinh"}
    return inverse.get(name, name)


def test_methods() -> None:
    x = RANDOM.uniform(-0.9, 0.9, (3, 4)).astype(np.float32)

    def fill(x: Tensor) -> list[Tensor]:
        return [
            *(getattr(x, name)() for name in UNARY),
            x.sum(1), x.mean((0, 1), keepdims=True), x.max(), x.min(0), (x > 0).any(1), (x > 0).all(0),
            x.clip(-0.5, 0.5), x.transpose(), x.expand_dims(0, -1), x.flip([1]), *x.halves(-1),
            T.where(x < 0, 0.0, x), T.maximum(x, 0.25), T.concat([x, -x], 0), T.stack([x, x], -1), x @ x.transpose(),
            x.cast("i32").cast("f32"), x.reshape((2, 6)), x.filled(2.0), x.equals(x), x.not_equals(0.0), x.argmax(1),
            x.bitcast("i32").bitcast("f32"), x[:1].expand((3, 4)) - x, x.cumsum(1),
        ]  # fmt: skip

    def expected(x: np.ndarray) -> list[Any]:
        return [
            *(getattr(np, _numpy_name(name))(x) for name in UNARY),
            x.sum(1), x.mean((0, 1), keepdims=True), x.max(), x.min(0), (x > 0).any(1), (x > 0).all(0),
            x.clip(-0.5, 0.5), x.T, x[None, ..., None], x[:, ::-1], x[:, :2], x[:, 2:],
            np.where(x < 0, 0.0, x), np.maximum(x, 0.25), np.concatenate([x, -x], 0), np.stack([x, x], -1), x @ x.T,
            np.trunc(x), x.reshape(2, 6), np.full_like(x, 2.0), x == x, x != 0, x.argmax(1),
            x, x[:1] - x, x.cumsum(1),
        ]  # fmt: skip

    found = mirlo.compile(build([TensorType.of((3, 4), "f32")], fill), cache=False)(x)
    for index, (one, other) in enumerate(zip(found, expected(x), strict=True)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=str(index))


def test_constants_are_not_computed() -> None:
    """Casts, shapes and parts of one number, and of sizes, make no operator."""

    def fill(x: Tensor) -> list[Tensor]:
        one = x.like(3).reshape((1, 1)).expand((2, 3))
        assert [tensor.array is not None for tensor in (one, one[:, 1:], one[0])] == [True] * 3
        size = T.number(x.builder, N, x.dtype)
        assert size.sizes == (N,)
        return [one]

    text = str(build([TensorType.of((N, 2), "i64")], fill).module)
    assert text.count('"relax.') == 2, text  # the constant that is returned, and its expansion


def test_parts_of_dynamic_dims() -> None:
    """A slice with constant bounds has the requested shape; calls refuse dims that are too small."""
    forward = [(begin, size, step) for begin in (0, 2) for size in (0, 1, 3) for step in (1, 2)]
    cases = [*forward, (2, 3, -1), (3, 2, -2)]

    def fill(x: Tensor) -> list[Tensor]:
        results = [x.slice(0, *case) for case in cases]
        assert [each.shape for each in results] == [(size, 2) for _, size, _ in cases]
        return results

    exe = mirlo.compile(build([TensorType.of((N, 2), "f32")], fill), cache=False)
    needed = max(begin + max(size - 1, 0) * max(step, 0) for begin, size, step in cases) + 1
    for rows in (needed, needed + 3):
        x = RANDOM.standard_normal((rows, 2)).astype(np.float32)
        for case, found in zip(cases, exe(x), strict=True):
            begin, size, step = case
            np.testing.assert_array_equal(found, x[[begin + i * step for i in range(size)]], err_msg=str(case))
    text = r"3 elements from element 2, each 2 after the one before, are not within axis 0 of f32\[n, 2\], where n = 6"
    with pytest.raises(mirlo.MirloError, match=text):
        exe(np.zeros((needed - 1, 2), np.float32))


@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_parts_from_data(step: int) -> None:
    """Calls refuse the begins and sizes with which a part reads beyond its dim, no others."""

    def fill(x: Tensor, numbers: Tensor) -> list[Tensor]:
        begin, size = x.builder.bind(numbers, "part")
        return [x.slice(0, begin - 5, size, step)]

    exe = mirlo.compile(build([TensorType.of((N, 2), "f32"), TensorType.of((2,), "i64")], fill), cache=False)
    begins = [-5, -3, -1, 0, 1, 3, 4, 5, 2**62, 2**63 - 8, 2**63 - 6]
    sizes = [0, 1, 2, 3, 4, 5, 2**31, 2**62, 2**63 - 1]  # a begin that overflows when multiplied is refused anyway
    for rows, begin, size in itertools.product((0, 1, 4), begins, sizes):
        x = RANDOM.standard_normal((rows, 2)).astype(np.float32)
        last = begin + (size - 1) * step
        if (size == 0 and begin < 6) or (0 <= begin < rows and 0 <= last < rows):
            found = exe(x, np.array([begin + 5, size]))
            np.testing.assert_array_equal(found, x[[begin + i * step for i in range(size)]].reshape(size, 2))
        else:
            with pytest.raises(mirlo.MirloError, match="not within axis 0|larger than any memory|is too large"):
                exe(x, np.array([begin + 5, size]))


def test_what_cannot_be_said() -> None:
    problems = {
        "0.5 stands beside a tensor of i64": lambda x: x * 0.5,
        "3 indices do not select": lambda x: x[0, 0, 0],
        "flip the axis first": lambda x: x[::-1],
        "only a dim of 1 can be squeezed": lambda x: x.squeeze(1),
        "axis 2 is outside a tensor of rank 2": lambda x: x.split([1, 1], 2),
        "axis -3 is outside a tensor of rank 2": lambda x: T.concat([x], -3),
        "axis 3 is outside a tensor of rank 3": lambda x: T.stack([x, x], 3),
        "cannot|elements|reshape": lambda x: x.like(1).expand((2, 3)).reshape((2, 2)),
    }
    for text, case in problems.items():
        with pytest.raises(OpError, match=text):
            build([TensorType.of((N, 2), "i64")], lambda x, case=case: [case(x)])


def test_branches_that_fail_leave_no_operation() -> None:
    """An import that goes on in another way has no half of one."""

    def fail() -> list[Tensor]:
        raise UnsupportedOperation("no such branch")

    def fill(b: GraphBuilder, x: Tensor) -> None:
        condition = b.full(b.constant(True, "bool"))
        with pytest.raises(UnsupportedOperation, match="no such branch"):
            b.branches(condition, [lambda: [x], fail], lambda one, other: lambda results: results)
        assert not find_named(x.value.owner.owner, ["scf.if", "scf.yield"])

    in_a_graph(fill)
