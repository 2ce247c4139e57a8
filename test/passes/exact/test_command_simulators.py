"""Simulators of accelerators that are generic in their numbers run on residues, compared with what they mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import T
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.passes.exact.commands import compare_command, compare_program
from mirlo.passes.schedule.primitives.command_intrin import CommandIntrin
from mirlo.passes.schedule.primitives.commands import CommandMemory, CommandProgram, TileCommand
from mirlo.passes.schedule.primitives.schedule import Schedule
from mirlo.passes.schedule.primitives.tensorize import INTRINSICS
from mirlo.passes.schedule.primitives.tree import ACCELERATOR_SCOPES

SIZE = 4
ROWS, COLS = T.dims("ROWS", "COLS")
low, high = T.attrs("low", "high")


@mirlo.prim_func
def load(x: T.Buffer[(ROWS, COLS), T.f32], y: T.Out[(ROWS, COLS), T.f32]):
    for i, j in T.grid(ROWS, COLS):
        y[i, j] = x.at(i, j - 1, outside=0)


@mirlo.prim_func
def multiply(x: T.Buffer[(ROWS, SIZE), T.f32], w: T.Buffer[(SIZE, SIZE), T.f32], y: T.Out[(ROWS, SIZE), T.f32]):
    for i, j, k in T.grid(ROWS, SIZE, SIZE):
        with T.block("multiply"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                y[vi, vj] = 0
            y[vi, vj] += x[vi, vk] * w[vk, vj]


@mirlo.prim_func
def store(x: T.Buffer[(ROWS, COLS), T.f32], y: T.Out[(ROWS, COLS), T.f32]):
    for i, j in T.grid(ROWS, COLS):
        y[i, j] = x[i, j]


@mirlo.prim_func
def largest(x: T.Buffer[(ROWS, COLS), T.i8], y: T.Out[(ROWS,), T.i8]):
    for i, j in T.grid(ROWS, COLS):
        with T.block("largest"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                y[vi] = -128
            y[vi] = max(y[vi], x[vi, vj])


@mirlo.prim_func
def narrow(x: T.Buffer[(ROWS, COLS), T.i32], y: T.Out[(ROWS, COLS), T.i8]):
    for i, j in T.grid(ROWS, COLS):
        y[i, j] = max(min(x[i, j], high), low).cast("i8")


@mirlo.prim_func
def peak(x: T.Buffer[(ROWS, COLS), T.f32], y: T.Out[(ROWS,), T.f32]):
    for i, j in T.grid(ROWS, COLS):
        with T.block("peak"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                y[vi] = -1048576.0
            y[vi] = max(y[vi], x[vi, vj])


@mirlo.prim_func
def weigh(x: T.Buffer[(ROWS, COLS), T.f32], m: T.Buffer[(ROWS,), T.f32], y: T.Out[(ROWS, COLS), T.f32]):
    for i, j in T.grid(ROWS, COLS):
        y[i, j] = T.exp(x[i, j] - m[i])


@mirlo.prim_func
def total(x: T.Buffer[(ROWS, COLS), T.f32], y: T.Out[(ROWS,), T.f32]):
    for i, j in T.grid(ROWS, COLS):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                y[vi] = 0
            y[vi] += x[vi, vj]


@mirlo.prim_func
def divide(x: T.Buffer[(ROWS, COLS), T.f32], d: T.Buffer[(ROWS,), T.f32], y: T.Out[(ROWS, COLS), T.f32]):
    for i, j in T.grid(ROWS, COLS):
        y[i, j] = x[i, j] / d[i]


class Unit:
    """The simulator; faults are methods that are overridden."""

    def load(self, command: TileCommand, memory: CommandMemory) -> None:
        memory.write(command.writes[0], command.extents, memory.read(command.reads[0], command.extents))

    store = load

    def multiply(self, command: TileCommand, memory: CommandMemory) -> None:
        x, w = (memory.read(each, command.extents) for each in command.reads)
        self.accumulate(command, memory, self.products(x, w).sum(-1, keepdims=True))

    def products(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x * w

    def accumulate(self, command: TileCommand, memory: CommandMemory, sums: np.ndarray) -> None:
        (y,) = command.writes
        if not command.is_first:
            sums = sums + memory.read(y, command.extents)
        memory.write(y, command.extents, sums)

    def largest(self, command: TileCommand, memory: CommandMemory) -> None:
        (y,) = command.writes
        found = memory.read(command.reads[0], command.extents).max(-1, keepdims=True)
        if not command.is_first:
            found = np.maximum(found, memory.read(y, command.extents))
        memory.write(y, command.extents, found)

    def narrow(self, command: TileCommand, memory: CommandMemory) -> None:
        x = memory.read(command.reads[0], command.extents)
        memory.write(
            command.writes[0],
            command.extents,
            np.maximum(np.minimum(x, command.numbers["high"]), command.numbers["low"]),
        )


class SoftmaxUnit(Unit):
    """A simulator with exponentials; `functions` are those of its table, by name."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self.weight = functions.get("weight", lambda x, m: np.exp(x - m))
        self.sums = functions.get("sums", lambda x: x.sum(-1, keepdims=True))

    def peak(self, command: TileCommand, memory: CommandMemory) -> None:
        (y,) = command.writes
        before = -1048576.0 if command.is_first else memory.read(y, command.extents)
        found = memory.read(command.reads[0], command.extents).max(-1, keepdims=True)
        memory.write(y, command.extents, np.maximum(found, before))

    def weigh(self, command: TileCommand, memory: CommandMemory) -> None:
        x, m = (memory.read(each, command.extents) for each in command.reads)
        memory.write(command.writes[0], command.extents, self.weight(x, m))

    def total(self, command: TileCommand, memory: CommandMemory) -> None:
        self.accumulate(command, memory, self.sums(memory.read(command.reads[0], command.extents)))

    def divide(self, command: TileCommand, memory: CommandMemory) -> None:
        x, d = (memory.read(each, command.extents) for each in command.reads)
        memory.write(command.writes[0], command.extents, x / d)


SCOPES = {
    "load": {"y": "unit.data"}, "store": {"x": "unit.sums"},
    "multiply": {"x": "unit.data", "w": "unit.weights", "y": "unit.sums"}, "largest": {},
    "narrow": {"x": "unit.sums"},
}  # fmt: skip
MEANINGS = {"load": load, "store": store, "multiply": multiply, "largest": largest, "narrow": narrow}


def instruction(name: str, unit: Unit) -> CommandIntrin:
    return CommandIntrin(f"unit.{name}", MEANINGS[name], SCOPES[name], getattr(unit, name))


@pytest.mark.parametrize("name", MEANINGS)
def test_instructions_are_equal_to_what_they_mean(name: str) -> None:
    with make_context():
        verdict = compare_command(instruction(name, Unit()))
    assert verdict.status == "equal", verdict


@mirlo.prim_func
def product(x: T.Buffer[(10, 8), T.f32], w: T.Buffer[(8, 8), T.f32], y: T.Out[(10, 8), T.f32]):
    sums = T.alloc((10, 8), "f32")
    padded = T.alloc((10, 8), "f32")
    for i, j in T.grid(10, 8):
        with T.block("load"):
            vi, vj = T.axes("SS", i, j)
            padded[vi, vj] = x.at(vi, vj - 1, outside=0)
    for i, j, k in T.grid(10, 8, 8):
        with T.block("multiply"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                sums[vi, vj] = 0
            sums[vi, vj] += padded[vi, vk] * w[vk, vj]
    for i, j in T.grid(10, 8):
        with T.block("store"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = sums[vi, vj]


def program(unit: Unit, rows: int = 4) -> CommandProgram:
    """Return a product in tiles of some rows, of which the last one is smaller."""
    intrinsics = {name: instruction(name, unit) for name in ("load", "multiply", "store")}
    intrinsics["weights"] = CommandIntrin("unit.weights", store, {"y": "unit.weights"}, unit.load)
    s = Schedule.of(product, TensorType.of((10, 8), "f32"), TensorType.of((8, 8), "f32"))
    weights = s.cache_read("multiply", "w", "unit.weights")
    tiles, columns, depth, inside, *_ = s.tile(s.loops("multiply"), (rows, SIZE, SIZE))
    s.compute_at("load", tiles)
    s.compute_at(weights, depth)
    s.reverse_compute_at("store", tiles)
    s.set_scope("padded", "unit.data")
    s.set_scope("sums", "unit.sums")
    INTRINSICS.update({each.name: each for each in intrinsics.values()})
    s.tensorize(inside, "unit.multiply")
    for block, name in (("load", "load"), (weights, "weights"), ("store", "store")):
        s.tensorize(s.loops(block)[-2], f"unit.{name}")
    return CommandProgram("product", s)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    ACCELERATOR_SCOPES.update(("unit.data", "unit.weights", "unit.sums"))
    known = dict(INTRINSICS)
    yield
    INTRINSICS.clear()
    INTRINSICS.update(known)


@pytest.mark.parametrize("rows", [1, 4, 5, 10])
def test_programs_are_equal_to_their_functions(rows: int) -> None:
    verdict = compare_program(program(Unit(), rows))
    assert verdict.status == "equal", verdict
    assert verdict.bits > 50


def _faulty(**methods: Callable[..., Any]) -> Unit:
    return type("FaultyUnit", (Unit,), methods)()


def _without_last(self: Unit, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x[..., :-1] * w[..., :-1] if x.shape[-1] > 1 else x * w


def _overwrites(self: Unit, command: TileCommand, memory: CommandMemory, sums: np.ndarray) -> None:
    memory.write(command.writes[0], command.extents, sums)


def _adds_to_garbage(self: Unit, command: TileCommand, memory: CommandMemory, sums: np.ndarray) -> None:
    (y,) = command.writes
    memory.write(y, command.extents, sums + memory.read(y, command.extents))


def _fills_with_ones(self: Unit, command: TileCommand, memory: CommandMemory) -> None:
    (x,), (y,) = command.reads, command.writes
    memory.write(y, command.extents, memory.read(replace(x, outside=1), command.extents))


def _rows_later(self: Unit, command: TileCommand, memory: CommandMemory) -> None:
    (x,), (y,) = command.reads, command.writes
    memory.write(replace(y, address=y.address + y.strides[0]), command.extents, memory.read(x, command.extents))


def _smallest(self: Unit, command: TileCommand, memory: CommandMemory) -> None:
    memory.write(
        command.writes[0], command.extents, memory.read(command.reads[0], command.extents).min(-1, keepdims=True)
    )


def _forgets_the_first(self: Unit, command: TileCommand, memory: CommandMemory) -> None:
    found = memory.read(command.reads[0], command.extents).max(-1, keepdims=True)
    memory.write(command.writes[0], command.extents, found)


def _wraps(self: Unit, command: TileCommand, memory: CommandMemory) -> None:
    memory.write(command.writes[0], command.extents, memory.read(command.reads[0], command.extents))


FAULTS: dict[str, tuple[str, Unit]] = {
    "the last product is left out": ("multiply", _faulty(products=_without_last)),
    "a factor is nearly right": ("multiply", _faulty(products=lambda self, x, w: x * w * 1.0000001)),
    "products are sums": ("multiply", _faulty(products=lambda self, x, w: x + w)),
    "weights are reversed": ("multiply", _faulty(products=lambda self, x, w: x * w[:, :, ::-1])),
    "accumulators are overwritten": ("multiply", _faulty(accumulate=_overwrites)),
    "accumulators are not cleared": ("multiply", _faulty(accumulate=_adds_to_garbage)),
    "the border is one": ("load", _faulty(load=_fills_with_ones)),
    "a row too far": ("store", _faulty(store=_rows_later)),
    "the least": ("largest", _faulty(largest=_smallest)),
    "a maximum begins again": ("largest", _faulty(largest=_forgets_the_first)),
    "no limits": ("narrow", _faulty(narrow=_wraps)),
}
"""By fault, the instruction that has it, and the unit."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_simulator_is_found(fault: str) -> None:
    name, unit = FAULTS[fault]
    with make_context():
        for other in MEANINGS:
            assert (compare_command(instruction(other, unit)).status == "different") is (other == name), other
    if name not in ("largest", "narrow"):
        assert compare_program(program(unit)).status == "different"


def test_what_has_no_simulator_is_outside() -> None:
    with make_context():
        verdict = compare_command(CommandIntrin("unit.load", load, SCOPES["load"]))
    assert verdict.status == "outside"
    assert "simulate=" in verdict.why


SOFTMAX = {"peak": peak, "weigh": weigh, "total": total, "divide": divide}


SOFTMAX_SCOPES = {"peak": "y", "weigh": "my", "total": "xy", "divide": "xd"}
"""The operands that are in the unit's memory."""


def exponential(name: str, unit: Unit) -> CommandIntrin:
    scopes = dict.fromkeys(SOFTMAX_SCOPES[name], "unit.data")
    return CommandIntrin(f"softmax.{name}", SOFTMAX[name], scopes, getattr(unit, name))


@pytest.mark.parametrize("name", SOFTMAX)
def test_exponentials_are_equal_to_what_they_mean(name: str) -> None:
    with make_context():
        verdict = compare_command(exponential(name, SoftmaxUnit()))
    assert verdict.status == "equal", verdict


@mirlo.prim_func
def softmax(x: T.Buffer[(10, 8), T.f32], y: T.Out[(10, 8), T.f32]):
    top = T.alloc((10,), "f32")
    sums = T.alloc((10,), "f32")
    weights = T.alloc((10, 8), "f32")
    for i, j in T.grid(10, 8):
        with T.block("peak"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                top[vi] = -1048576.0
            top[vi] = max(top[vi], x[vi, vj])
    for i, j in T.grid(10, 8):
        with T.block("weigh"):
            vi, vj = T.axes("SS", i, j)
            weights[vi, vj] = T.exp(x[vi, vj] - top[vi])
    for i, j in T.grid(10, 8):
        with T.block("total"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                sums[vi] = 0
            sums[vi] += weights[vi, vj]
    for i, j in T.grid(10, 8):
        with T.block("divide"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = weights[vi, vj] / sums[vi]


def softmax_program(unit: Unit) -> CommandProgram:
    """Return a softmax whose rows commands compute."""
    s = Schedule.of(softmax, TensorType.of((10, 8), "f32"))
    for buffer in ("top", "sums", "weights"):
        s.set_scope(buffer, "unit.data")
    for name in SOFTMAX:
        intrin = exponential(name, unit)
        INTRINSICS[intrin.name] = intrin
        s.tensorize(s.loops(name)[0], intrin.name)
    return CommandProgram("softmax", s)


def test_a_softmax_is_equal_to_its_function() -> None:
    verdict = compare_program(softmax_program(SoftmaxUnit()))
    assert verdict.status == "equal", verdict


SOFTMAX_FAULTS: dict[str, tuple[str, SoftmaxUnit]] = {
    "a power of two": ("weigh", SoftmaxUnit(weight=lambda x, m: np.exp2(x - m))),
    "no maximum": ("weigh", SoftmaxUnit(weight=lambda x, m: np.exp(x))),
    "a maximum that is added": ("weigh", SoftmaxUnit(weight=lambda x, m: np.exp(x + m))),
    "one less": ("weigh", SoftmaxUnit(weight=lambda x, m: np.expm1(x - m))),
    "another function": ("weigh", SoftmaxUnit(weight=lambda x, m: np.tanh(x - m))),
    "a power": ("weigh", SoftmaxUnit(weight=lambda x, m: np.exp(x - m) ** 2)),
    "the last weight is left out": ("total", SoftmaxUnit(sums=lambda x: x[..., :-1].sum(-1, keepdims=True))),
}


@pytest.mark.parametrize("fault", SOFTMAX_FAULTS)
def test_a_fault_of_exponentials_is_found(fault: str) -> None:
    """Without its maximum, a softmax is the same function of residues: large floats overflow."""
    name, unit = SOFTMAX_FAULTS[fault]
    with make_context():
        for other in SOFTMAX:
            assert (compare_command(exponential(other, unit)).status == "different") is (other == name), other
    assert compare_program(softmax_program(unit)).status == "different"


def test_functions_without_a_meaning_are_outside() -> None:
    """Functions of Python's floats, and exponentials that the description does not have."""
    by_python = SoftmaxUnit(weight=lambda x, m: np.vectorize(math.exp, otypes=[object])(x - m))
    with make_context():
        verdict = compare_command(exponential("weigh", by_python))
        assert verdict.status == "outside" and "np.exp" in verdict.why, verdict
        verdict = compare_command(exponential("total", SoftmaxUnit(sums=lambda x: np.exp(x).sum(-1, keepdims=True))))
    assert verdict.status == "outside" and "an exponential, where" in verdict.why, verdict
