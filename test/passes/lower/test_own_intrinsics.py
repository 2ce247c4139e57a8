"""Intrinsics that a plug-in declares: pure or with effects, on scalars, vectors and handles, with a result or none."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from devices import needs_vulkan

import mirlo
from mirlo import R, T
from mirlo.dialects.core.errors import DialectError
from mirlo.dialects.core.types import TensorType
from mirlo.extend.ops import define_intrinsic, register_dialect
from mirlo.extend.rules import INTRINSIC, intrinsic
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.same import same_ir
from mirlo.passes.rules import LEGALIZE
from mirlo.runtime.object_loader import define_symbol
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main

UNIT = register_dialect("ownunit")
define_intrinsic(UNIT, "pop", "ii", None, pure=False, doc="wait for a token")
define_intrinsic(UNIT, "held", "f", doc="x, at most 1")
define_intrinsic(UNIT, "is_big", "f", "bool", doc="x above 1")
define_intrinsic(UNIT, "scale", "hi", "f32", pure=False, doc="the first element of a buffer, times a number")
define_intrinsic(UNIT, "open", "i", "handle", pure=False, doc="a channel")
define_intrinsic(UNIT, "send", "hf", None, pure=False, doc="a number to a channel")
define_intrinsic(UNIT, "median", "fff", doc="the one in the middle")
define_intrinsic(UNIT, "lonely", "i", None, pure=False)
CALLS: list[Any] = []


@ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
def OwnPop(a: int, b: int) -> None:
    CALLS.append(("pop", a, b))


@ctypes.CFUNCTYPE(ctypes.c_float, ctypes.POINTER(ctypes.c_float), ctypes.c_int64)
def OwnScale(x: Any, factor: int) -> float:
    return float(x[0]) * factor


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)
def OwnOpen(number: int) -> int:
    return 4096 + number


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_float)
def OwnSend(channel: int, x: float) -> None:
    CALLS.append(("send", channel, x))


def pop(op: Any, b: Any) -> None:
    b.call_extern("OwnPop", None, *op.nums)


def held(op: Any, b: Any) -> Any:
    x = op.nums[0]
    return b.select(b.call("ownunit.is_big", x), 1.0, x)


def is_big(op: Any, b: Any) -> Any:
    return op.nums[0] > 1.0


def scale(op: Any, b: Any) -> Any:
    return b.call_extern("OwnScale", "f32", *op.args)


def opened(op: Any, b: Any) -> Any:
    return b.call_extern("OwnOpen", "!llvm.ptr", *op.args)


def send(op: Any, b: Any) -> None:
    b.call_extern("OwnSend", None, *op.args)


@pytest.fixture(autouse=True, scope="module")
def rules() -> Iterator[None]:
    with temporary_registrations(__name__):
        intrinsic("ownunit.pop", target="llvm")(pop)
        intrinsic("ownunit.held")(held)
        intrinsic("ownunit.is_big")(is_big)
        intrinsic("ownunit.scale", target="llvm")(scale)
        intrinsic("ownunit.open", target="llvm")(opened)
        intrinsic("ownunit.send", target="llvm")(send)
        intrinsic("ownunit.median")(median)
        yield


@pytest.fixture(autouse=True)
def driver() -> Iterator[None]:
    for name, function in {"OwnPop": OwnPop, "OwnScale": OwnScale, "OwnOpen": OwnOpen, "OwnSend": OwnSend}.items():
        define_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    CALLS.clear()
    yield


@mirlo.script
def model(x: R.Tensor[(4, 8), R.f32]):
    return R.relu(x)


X = np.random.default_rng(0).standard_normal((4, 8), np.float32) * 2


def compiled(rule: Any) -> Any:
    return mirlo.compile(model, legalize={"relax.relu": rule}, cache=False)


def test_in_loops() -> None:
    def body(loops: Any, x: Any, y: Any) -> None:
        channel = loops.call("ownunit.open", 5)
        for i in loops.range(4):
            loops.call("ownunit.pop", 1, i)
            for j in loops.range(8):
                y[i, j] = loops.call("ownunit.held", x[i, j])
        loops.call("ownunit.send", channel, loops.call("ownunit.scale", x, 3))

    found = compiled(lambda op, b: b.call_loops(body, op.x))(X)
    np.testing.assert_array_equal(found, np.minimum(X, 1))
    assert [*[("pop", 1, i) for i in range(4)], ("send", 4101, float(np.float32(X[0, 0] * 3)))] == CALLS


def test_in_hand_written_tir_that_round_trips() -> None:
    @mirlo.prim_func
    def kernel(x: T.Buffer[(4, 8), T.f32], y: T.Out[(4, 8), T.f32]):
        for i in range(4):
            T.call_intrin("ownunit.pop", 2, i)
            for j in range(8):
                y[i, j] = T.call_intrin("ownunit.held", x[i, j])

    found = compiled(lambda op, b: b.call_prim_func(kernel, op.x))(X)
    np.testing.assert_array_equal(found, np.minimum(X, 1))
    assert [call[2] for call in CALLS] == [0, 1, 2, 3]


@pytest.mark.parametrize("loops", [False, True])
def test_calls_are_expressions_in_both_forms(loops) -> None:
    """A pure intrinsic is part of arithmetic, conditions and other calls; as blocks it is fused and vectorized."""

    @mirlo.prim_func(buffers=loops)
    def kernel(x: T.Buffer[(4, 8), T.f32], y: T.Out[(4, 8), T.f32]):
        for i, j in T.grid(4, 8):
            with T.block("y"):
                vi, vj = T.axes("SS", i, j)
                held = T.call_intrin("ownunit.held", x[vi, vj] + 1) * 2.0 - T.call_intrin("tir.exp", x[vi, vj])
                big = T.call_intrin("ownunit.is_big", x[vi, vj])
                y[vi, vj] = T.select(big, T.call_intrin("ownunit.median", held, 0.5, -T.exp(held)), held)

    assert kernel.why_loops(TensorType.of((4, 8), "f32")) is None

    @mirlo.script
    def called(x: R.Tensor[(4, 8), R.f32]):
        return R.call_tir(kernel, x)

    value = np.minimum(X + 1, 1) * 2 - np.exp(X)
    expected = np.where(X > 1, np.median(np.stack([value, np.full_like(X, 0.5), -np.exp(value)]), axis=0), value)
    np.testing.assert_allclose(mirlo.compile(called, cache=False)(X), expected, rtol=1e-5, atol=1e-6)
    text = mirlo.script_of(called)
    assert "mlir(" not in text
    assert same_ir(called, mirlo.parse_script(text, context=called.context))


def test_calls_with_effects_are_values_too() -> None:
    @mirlo.prim_func
    def kernel(x: T.Buffer[(4, 8), T.f32], y: T.Out[(4, 8), T.f32]):
        channel = T.call_intrin("ownunit.open", 5)
        for i, j in T.grid(4, 8):
            y[i, j] = T.call_intrin("ownunit.scale", x, 3) * 2.0 + x[i, j]
        T.call_intrin("ownunit.send", channel, T.call_intrin("ownunit.scale", x, 1) + 1.0)

    @mirlo.script
    def called(x: R.Tensor[(4, 8), R.f32]):
        return R.call_tir(kernel, x)

    np.testing.assert_allclose(mirlo.compile(called, cache=False)(X), X[0, 0] * 6 + X, rtol=1e-6)
    assert [("send", 4101, pytest.approx(X[0, 0] + 1))] == CALLS
    text = mirlo.script_of(called)
    assert "mlir(" not in text
    assert same_ir(called, mirlo.parse_script(text, context=called.context))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("T.call_intrin('ownunit.hold', x[i])", r"the intrinsic 'ownunit.hold'; did you mean 'ownunit.held'\?"),
        ("T.call_intrin('ownunit.held', i)", "'ownunit.held' takes a float here, found a scalar of index: cast it"),
        ("T.call_intrin('ownunit.median', x[i])", "'ownunit.median' takes 3 operands, found 1"),
        ("T.call_intrin('float16', 'tir.exp', x[i])", "'exp' returns a scalar of f32, not f16: cast what it takes"),
        ("T.call_intrin(3, x[i])", "the name of an intrinsic must be text in quotes, found 3"),
        ("T.call_intrin('ownunit.send', x, 1.0) * 2.0", "None"),
    ],
)
def test_wrong_calls_are_errors_at_their_line(call, message) -> None:
    text = f"""
@T.prim_func
def f(x: T.Buffer[(4,), "f32"], y: T.Out[(4,), "f32"]):
    for i in range(4):
        y[i] = {call}
"""
    with pytest.raises(ScriptError, match=message) as raised:
        mirlo.parse_script(text)
    assert ":5:" in str(raised.value)


@pytest.mark.parametrize("name", ["ownunit.held", "tir.exp"])
def test_the_type_of_a_result_may_be_named_for_one_version(name: str) -> None:
    text = f"""
@T.prim_func
def f(x: T.Buffer[(4,), "f32"], y: T.Out[(4,), "f32"]):
    for i in range(4):
        y[i] = T.call_intrin('{name}', x[i]{{dtype}})
"""
    with pytest.warns(DeprecationWarning, match="T.call_intrin.dtype=...."):
        named = mirlo.parse_script(text.format(dtype=", dtype='float32'"))
    assert same_ir(named, mirlo.parse_script(text.format(dtype=""), context=named.context))
    with pytest.warns(DeprecationWarning), pytest.raises(ScriptError, match="returns a scalar of f32, not f16: cast"):
        mirlo.parse_script(text.format(dtype=", dtype='float16'"))


def test_vectors() -> None:
    """A pure intrinsic in an elementwise body is vectorized with it."""
    from mirlo.extend.ops import compute, elementwise

    found = compiled(lambda op, b: elementwise(op, b, [op.x], lambda x: compute.call("ownunit.held", x) * 2.0))(X)
    np.testing.assert_array_equal(found, np.minimum(X, 1) * 2)


def median(op: Any, b: Any) -> Any:
    """Legalized for targets without it: sorts three values in memory, by loops and branches."""

    def body(loops: Any, x: Any, y: Any, z: Any, memory: Any) -> Any:
        for i, value in enumerate((x, y, z)):
            memory[i] = value
        for _ in loops.range(2):
            for i in loops.range(2):
                low, high = loops.let(memory[i]), loops.let(memory[i + 1])
                with loops.if_(low > high):
                    memory[i], memory[i + 1] = high, low
        return loops.let(memory[1])

    return b.statements(body, "f32", *op.nums, scratch=[((3,), "f32")])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_rule_may_write_statements(threads: int) -> None:
    from mirlo.extend.ops import compute, elementwise

    def rule(op: Any, b: Any) -> Any:
        return elementwise(op, b, [op.x], lambda x: compute.call("ownunit.median", x, x * x, x * 0.0))

    large = np.random.default_rng(0).standard_normal((256, 512), np.float32)

    @mirlo.script
    def wide(x: R.Tensor[(256, 512), R.f32]):
        return R.relu(x)

    found = mirlo.compile(wide, legalize={"relax.relu": rule}, threads=threads, cache=False)(large)
    np.testing.assert_array_equal(found, np.median([large, large * large, large * 0], axis=0))


@pytest.mark.parametrize("target", ["llvm", "c", pytest.param("spirv", marks=needs_vulkan())])
def test_statements_on_each_target(target: str) -> None:
    """The example of docs/intrinsics.md, for an intrinsic that all targets have otherwise."""

    def by_sorting(op: Any, b: Any) -> Any:
        def body(loops: Any, x: Any, memory: Any) -> Any:
            memory[0], memory[1] = x, -x
            low, high = loops.let(memory[0]), loops.let(memory[1])
            with loops.if_(low > high):
                memory[0], memory[1] = high, low
            return loops.let(memory[0])

        return b.statements(body, "f32", *op.nums, scratch=[((2,), "f32")])

    @mirlo.script
    def rows(x: R.Tensor[(5, 37), R.f32]):
        return R.tanh(x)

    x = np.random.default_rng(0).standard_normal((5, 37), np.float32)
    found = mirlo.compile(rows, target, intrinsics={"tanh": by_sorting}, cache=False)(x)
    np.testing.assert_array_equal(found, -np.abs(x))


def test_a_target_without_a_rule() -> None:
    def body(loops: Any, x: Any, y: Any) -> None:
        loops.call("ownunit.lonely", 1)

    with pytest.raises(mirlo.MirloError, match="no rule lowers 'ownunit.lonely' on \\(index\\) for target 'llvm'"):
        compiled(lambda op, b: b.call_loops(body, op.x))


def test_a_rule_for_a_name_that_no_plug_in_declares() -> None:
    with pytest.raises(mirlo.MirloError, match="not an intrinsic; did you mean 'ownunit.held'?"):
        mirlo.compile(model, intrinsics={"ownunit.hold": lambda op, b: None}, cache=False)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ownunit.held"]) == 0
    assert "held  [default]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "q"), "operands are letters"),
        (("x", "f", "quad"), "expected the result same, bool"),
        (("x",), "has no operand that its result"),
        (("x", "f", None), "declare it with pure=False"),
    ],
)
def test_declarations(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DialectError, match=message):
        define_intrinsic(UNIT, *arguments, pure=arguments[0] != "pop")


def teardown_module() -> None:
    for book in (LEGALIZE, INTRINSIC):
        for rules in book._rules.values():
            rules[:] = [rule for rule in rules if rule.function.__module__ != __name__]
