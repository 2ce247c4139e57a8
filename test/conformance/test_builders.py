"""Each method of the builders that rules receive, on each target: code of one builder is emitted by all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from devices import needs_vulkan
from onnx_models import F32, make_model, node

import mirlo
from mirlo import T
from mirlo.dialects.relax import OPS
from mirlo.dialects.tir.compute import Axis
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.loops import LoopBuilder
from mirlo.extend.ops import define_intrinsic, register_dialect
from mirlo.extend.rules import intrinsic
from mirlo.passes.legalize.builder import LegalizeBuilder
from mirlo.passes.lower.values import ValueBuilder
from mirlo.runtime.errors import MirloError
from mirlo.testing import temporary_registrations
from mirlo.testing.ptx.driver import emulated

ROWS, COLUMNS = 3, 5
CHIP = "sm_80"
TARGETS = {
    "llvm": pytest.param("llvm"),
    "c": pytest.param("c"),
    "spirv": pytest.param("spirv", marks=needs_vulkan()),
    "nvvm": pytest.param(f"nvvm{{chip={CHIP}}}", id="nvvm"),
}
Use = tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]
"""A rule, and what it computes in numpy."""


@pytest.fixture(autouse=True, scope="module")
def own_intrinsic() -> Iterator[None]:
    """Declare an intrinsic that `LoopBuilder.call` can call."""
    with temporary_registrations(__name__):
        define_intrinsic(register_dialect("builders"), "tripled", "f", doc="three times x")
        intrinsic("builders.tripled")(lambda op, b: op.nums[0] * 3.0)
        yield


def _triple(x: np.ndarray) -> np.ndarray:
    return x * 3


@mirlo.prim_func
def triple(x: T.Buffer[(ROWS, COLUMNS), T.f32], y: T.Out[(ROWS, COLUMNS), T.f32]):
    for i, j in T.grid(ROWS, COLUMNS):
        y[i, j] = x[i, j] * 3.0


LEGALIZE: dict[str, Use] = {
    "call_prim": (
        lambda op, b: b.call_prim(lambda p, x: p.compute(x.shape, lambda *at: x.at(*at) * 3.0), op.x), _triple
    ),
    "call_prim_func": (lambda op, b: b.call_prim_func(triple, op.x), _triple),
    "call_loops": (lambda op, b: b.call_loops(_loops(lambda loops, x, y, at: x[at] * 3.0), op.x), _triple),
    "emit": (lambda op, b: b.emit(OPS["multiply"], op.x, op.x), np.square),
    "value": (lambda op, b: b.emit(OPS["add"], b.value(op.x), op.x), lambda x: x * 2),
}  # fmt: skip
PRIM: dict[str, Use] = {
    "compute": LEGALIZE["call_prim"],
    "reduce": (
        lambda op, b: b.call_prim(
            lambda p, x: p.compute(
                x.shape,
                (lambda total: lambda i, j: total.at(i) + x.at(i, j))(
                    p.reduce("add", (ROWS,), (COLUMNS,), lambda i, k: x.at(i, k))
                ),
            ),
            op.x,
        ),
        lambda x: x + x.sum(1, keepdims=True),
    ),
    "reduce_many": (
        lambda op, b: b.call_prim(_sum_and_product, op.x),
        lambda x: x.sum(1, keepdims=True) + (x * x).sum(1, keepdims=True) + np.zeros_like(x),
    ),
    "block": (lambda op, b: b.call_prim(_block, op.x), _triple),
}


def _sum_and_product(p: Any, x: Any) -> Any:
    totals = p.reduce_many(
        (ROWS,), (COLUMNS,), lambda i, k: (x.at(i, k), x.at(i, k) * x.at(i, k)), (0.0, 0.0),
        lambda old, new: [a + b for a, b in zip(old, new, strict=True)],
    )  # fmt: skip
    return p.compute(x.shape, lambda i, j: totals[0].at(i) + totals[1].at(i))


def _block(p: Any, x: Any) -> Any:
    i, j = Axis(0), Axis(1)
    return p.block("tripled", x.shape, (), [x.at(i, j) * 3.0])[0]


def _loops(element: Callable[..., Any]) -> Callable[..., None]:
    """Return a body that computes each element by a function of the builder, the buffers and the indices."""

    def body(loops: Any, x: Any, y: Any) -> None:
        for at in loops.nest((ROWS, COLUMNS)):
            y[at] = element(loops, x, y, at)

    return body


def _of_loops(body: Callable[..., None]) -> Callable[..., Any]:
    return lambda op, b: b.call_loops(body, op.x)


def _ranges(loops: Any, x: Any, y: Any) -> None:
    for i in loops.range(ROWS):
        for j in loops.range(0, COLUMNS, 1):
            y[i, j] = x[i, j] * 3.0


def _branches(loops: Any, x: Any, y: Any) -> None:
    for at in loops.nest((ROWS, COLUMNS)):
        with loops.if_(x[at] > 0.0):
            y[at] = x[at]
        with loops.else_():
            y[at] = x[at] * -2.0


def _variables(loops: Any, x: Any, y: Any) -> None:
    for i in loops.range(ROWS):
        total = loops.variable(0.0, "f32")
        for j in loops.range(COLUMNS):
            total.set(total.get() + x[i, j])
            y[i, j] = total.get()


def _while(loops: Any, x: Any, y: Any) -> None:
    for i in loops.range(ROWS):
        column = loops.variable(0, "i32")
        for _ in loops.while_(lambda column=column: column.get() < COLUMNS):
            at = column.get().cast("index")
            y[i, at] = x[i, at] * 3.0
            column.set(column.get() + 1)


def _scratch(loops: Any, x: Any, y: Any) -> None:
    memory = loops.scratch((ROWS, COLUMNS), "f32")
    for i, j in loops.nest((ROWS, COLUMNS)):
        memory[i, j] = x[i, j] * 3.0
    loops.copy(memory, y)


def _alloca(loops: Any, x: Any, y: Any) -> None:
    memory = loops.alloca((COLUMNS,), "f32")
    for i in loops.range(ROWS):
        for j in loops.range(COLUMNS):
            memory[j] = x[i, j]
        for j in loops.range(COLUMNS):
            y[i, j] = memory[COLUMNS - 1 - j]


def _from_input(loops: Any, x: Any, y: Any) -> None:
    loops.start_from(x, y)
    for i in loops.range(ROWS):
        y[i, 0] = y[i, 0] * 3.0


def _first_tripled(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[:, :1] * 3, x[:, 1:]], 1)


LOOPS: dict[str, Use] = {
    "range": (_of_loops(_ranges), _triple),
    "nest": (_of_loops(_loops(lambda loops, x, y, at: x[at] * 3.0)), _triple),
    "let": (_of_loops(_loops(lambda loops, x, y, at: loops.let(x[at] * 3.0))), _triple),
    "if_": (_of_loops(_branches), lambda x: np.where(x > 0, x, x * -2)),
    "else_": (_of_loops(_branches), lambda x: np.where(x > 0, x, x * -2)),
    "variable": (_of_loops(_variables), lambda x: np.cumsum(x, 1, dtype=np.float32)),
    "while_": (_of_loops(_while), _triple),
    "scratch": (_of_loops(_scratch), _triple),
    "copy": (_of_loops(_scratch), _triple),
    "alloca": (_of_loops(_alloca), lambda x: x[:, ::-1]),
    "start_from": (_of_loops(_from_input), _first_tripled),
    "call": (_of_loops(_loops(lambda loops, x, y, at: loops.call("builders.tripled", x[at]))), _triple),
    "call_extern": (
        _of_loops(_loops(lambda loops, x, y, at: loops.call_extern("fabsf", x[at], returns="f32"))), np.abs
    ),
}  # fmt: skip


def _sorted(op: Any, b: Any) -> Any:
    """Return the middle one of x, -x and 1, by sorting in memory."""

    def body(loops: Any, x: Any, memory: Any) -> Any:
        for i, value in enumerate((x, -x, x * 0.0 + 1.0)):
            memory[i] = value
        for _ in loops.range(2):
            for i in loops.range(2):
                low, high = loops.let(memory[i]), loops.let(memory[i + 1])
                with loops.if_(low > high):
                    memory[i], memory[i + 1] = high, low
        return loops.let(memory[1])

    return b.statements(body, "f32", op.nums[0], scratch=[((3,), "f32")])


def _of(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda op, b: function(b, op.nums[0])


def _if_any(b: Any, x: Any) -> Any:
    return b.if_any(x > 100.0, lambda: [x * 2.0], x)[0]


def _repeated(b: Any, x: Any) -> Any:
    n = b.constant("i32", 3)
    return b.repeat(b.largest_lane(n), lambda y: [y * 2.0], x)[0]


VALUES: dict[str, Use] = {
    "abs": (_of(lambda b, x: b.abs(x)), np.abs),
    "bits": (_of(lambda b, x: b.from_bits(b.bits(x) & 0x7FFFFFFF, "f32")), np.abs),
    "from_bits": (_of(lambda b, x: b.from_bits(b.bits(x) & 0x7FFFFFFF, "f32")), np.abs),
    "call": (_of(lambda b, x: b.call("sqrt", b.abs(x))), lambda x: np.sqrt(np.abs(x))),
    "call_extern": (_of(lambda b, x: b.call_extern("fabsf", "f32", x)), np.abs),
    "clamp_above": (_of(lambda b, x: b.clamp_above(x, 1.0)), lambda x: np.minimum(x, 1)),
    "clamp_below": (_of(lambda b, x: b.clamp_below(x, 1.0)), lambda x: np.maximum(x, 1)),
    "compare": (_of(lambda b, x: b.select(b.compare("lt", x, 1.0), x, 1.0)), lambda x: np.minimum(x, 1)),
    "constant": (_of(lambda b, x: x * b.constant("f32", 3.0)), _triple),
    "convert": (_of(lambda b, x: b.convert(b.convert(x, "f16"), "f32")), lambda x: x.astype(np.float16)),
    "copysign": (_of(lambda b, x: b.copysign(b.constant("f32", 2.0), x)), lambda x: np.copysign(2.0, x)),
    "emit": (_of(lambda b, x: b.emit("arith.negf", "f32", x)), np.negative),
    "extend": (_of(lambda b, x: b.to_float(b.extend(b.to_int(x, "i32"), "i64"), "f32")), np.trunc),
    "fma": (_of(lambda b, x: b.fma(x, x, 1.0)), lambda x: x * x + 1),
    "if_any": (_of(_if_any), lambda x: x),
    "largest_lane": (_of(_repeated), lambda x: x * 8),
    "like": (_of(lambda b, x: x * b.like(x, 3.0)), _triple),
    "multiply_add": (_of(lambda b, x: b.multiply_add(x, x, 1.0)), lambda x: x * x + 1),
    "num": (lambda op, b: b.num(op.args[0]) * 3.0, _triple),
    "polynomial": (_of(lambda b, x: b.polynomial(x, (2.0, 0.0, 1.0))), lambda x: 2 * x * x + 1),
    "power_of_two": (_of(lambda b, x: b.power_of_two(b.to_int(x, "i32"), "f32")), lambda x: np.exp2(np.trunc(x))),
    "quotient": (_of(lambda b, x: b.quotient(x, b.constant("f32", 2.0))), lambda x: x / 2),
    "repeat": (_of(_repeated), lambda x: x * 8),
    "round_to_int": (_of(lambda b, x: b.round_to_int(x)[0]), np.rint),
    "select": (_of(lambda b, x: b.select(x < 0.0, -x, x)), np.abs),
    "shift_right_signed": (
        _of(lambda b, x: b.to_float(b.shift_right_signed(b.to_int(x, "i32"), 1), "f32")), lambda x: np.trunc(x) // 2
    ),
    "small_int_to_float": (_of(lambda b, x: b.small_int_to_float(b.to_int(x, "i32"), "f32")), np.trunc),
    "sqrt": (_of(lambda b, x: b.sqrt(b.abs(x))), lambda x: np.sqrt(np.abs(x))),
    "statements": (_sorted, lambda x: np.median(np.stack([x, -x, np.ones_like(x)]), 0)),
    "to_float": (_of(lambda b, x: b.to_float(b.to_int(x, "i32"), "f32")), np.trunc),
    "to_int": (_of(lambda b, x: b.to_float(b.to_int(x, "i32"), "f32")), np.trunc),
    "truncate": (
        _of(lambda b, x: b.to_float(b.extend(b.truncate(b.to_int(x, "i32"), "i8"), "i32"), "f32")), np.trunc
    ),
    "unary": (_of(lambda b, x: b.unary("math.absf", x)), np.abs),
}  # fmt: skip
BUILDERS: dict[type, tuple[dict[str, Use], tuple[str, ...]]] = {
    LegalizeBuilder: (LEGALIZE, ("call_packed",)),
    PrimBuilder: (PRIM, ("finish",)),
    LoopBuilder: (LOOPS, ()),
    ValueBuilder: (VALUES, ("type", "constants")),
}
"""By builder: uses of its methods, and the names that emit no code: packed functions have tests of their own."""
REFUSED = {
    ("call_extern", "spirv"): "which GPUs do not have",
    ("call_extern", "nvvm"): "which GPUs do not have",
}
"""Why methods do not work on targets: part of the message."""


def cells() -> Iterator[Any]:
    for builder, (uses, _) in BUILDERS.items():
        for method in uses:
            for name, target in TARGETS.items():
                yield pytest.param(
                    builder, method, name, *target.values, id=f"{builder.__name__}.{method}-{name}", marks=target.marks
                )


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda builder: builder.__name__)
def test_each_method_has_a_row(builder: type) -> None:
    uses, silent = BUILDERS[builder]
    names = {name for name, _ in inspect.getmembers(builder) if not name.startswith("_")}
    assert names == {*uses, *silent}


@pytest.mark.sample(5)
@pytest.mark.parametrize(("builder", "method", "name", "target"), list(cells()))
def test_a_method_on_a_target(builder: type, method: str, name: str, target: str) -> None:
    rule, meaning = BUILDERS[builder][0][method]
    is_value = builder is ValueBuilder
    model = make_model([node("Exp" if is_value else "Neg", "x", "y")], {"x": (F32, [ROWS, COLUMNS])}, ["y"])
    given: dict[str, Any] = {"intrinsics": {"exp": rule}} if is_value else {"legalize": {"relax.negative": rule}}
    x = (np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS) % 7 - 3) * np.float32(1.25)
    device: AbstractContextManager[Any] = emulated(CHIP) if name == "nvvm" else nullcontext()
    with device:
        if (method, name) in REFUSED:
            with pytest.raises(MirloError, match=REFUSED[method, name]):
                mirlo.compile(model, target=target, cache=False, jobs=1, **given)
            return
        found = mirlo.compile(model, target=target, cache=False, jobs=1, **given)(x)
        np.testing.assert_allclose(found, meaning(x), rtol=1e-6, atol=1e-6)
