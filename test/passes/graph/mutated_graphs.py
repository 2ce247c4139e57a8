"""The graphs of the tests of rules with other shapes: broadcasts, other ranks, dims of one element.

Each graph of `simplify-*.mlir` and `convert-layout*.mlir` is one that a rule takes, or declines for one reason. Its
inputs and constants get other shapes, and what follows from them is inferred again; shapes with which an operator is
invalid are drawn again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.attributes import dense_attribute
from mirlo.dialects.core.op import class_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.passes.entry import find_entry
from mirlo.passes.graph.constants import constant_value
from mirlo.passes.session import Session
from mirlo.runtime.params import ParameterStore
from mirlo.tools.conformance import references  # noqa: F401  (what operators mean whose classes do not say it)
from mirlo.tools.conformance.derived import evaluate

FOLDER = Path(__file__).parent
ATTEMPTS = 60
"""Shapes that are drawn for a graph until its operators are valid with them."""


@dataclass(frozen=True)
class Mutated:
    """A graph, its inputs, and its reference results."""

    module: ir.Module
    session: Session
    inputs: list[np.ndarray]
    expected: list[np.ndarray]


class NotMutable(Exception):
    """A graph with control flow, dims, or calls."""


def graphs() -> Iterator[tuple[str, str]]:
    """Yield the name and text of each graph with static shapes."""
    for path in sorted([*FOLDER.glob("simplify-*.mlir"), *FOLDER.glob("convert-layout*.mlir")]):
        whole = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for text in re.split(r"^(?=func\.func )", whole, flags=re.MULTILINE):
            named = re.match(r"func\.func @(\w+)", text)
            if named is not None and not any(mark in text for mark in ("#relax.dims", "scf.", "?")):
                yield f"{path.stem.removeprefix('simplify-')}.{named[1]}", text


def mutated(
    text: str, random: np.random.Generator, share: float = 0.5, *, is_empty: bool = False, is_shared: bool = False
) -> Mutated | None:
    """Return a graph with other shapes, or None where none were found.

    With `is_empty`, dims become 0; with `is_shared`, the graph returns each value, so that each has one more user.
    """
    original = ir.Module.parse(text)
    (function,) = (op for op in original.body.operations if op.operation.name == "func.func")
    for attempt in range(ATTEMPTS):
        try:
            return _rebuilt(function, Shapes(random, share / (1 + attempt / 8), is_empty), is_shared)
        except NotMutable:
            return None
        except Exception:  # an operator that is invalid with these shapes
            continue
    return None


def _rebuilt(function: Any, shapes: Shapes, is_shared: bool) -> Mutated:
    module, session = ir.Module.create(), Session(ParameterStore())
    arguments = function.operation.regions[0].blocks[0].arguments
    arrays: dict[ir.Value, np.ndarray] = {}
    values: dict[ir.Value, ir.Value] = {}
    kinds = [TensorType.from_mlir(argument.type) for argument in arguments]
    if any(kind is None for kind in kinds):
        raise NotMutable
    inputs = [_numbers(kind, shapes.other(kind.static_shape), shapes.random) for kind in kinds]
    types = [TensorType(array.shape, kind.dtype).to_mlir() for array, kind in zip(inputs, kinds, strict=True)]
    with ir.InsertionPoint(module.body):
        made = func.FuncOp("main", ir.FunctionType.get(types, []))
    for old, new, array in zip(arguments, made.add_entry_block().arguments, inputs, strict=True):
        values[old], arrays[new] = new, array
    with ir.InsertionPoint(made.entry_block):
        for op in function.operation.regions[0].blocks[0].operations:
            if op.operation.name == "func.return":
                returned = [values[value] for value in op.operation.operands]
                if is_shared:
                    returned += [value for value in arrays if value not in returned]
                func.ReturnOp(returned)
            elif op.operation.name == "relax.constant":
                values[op.operation.results[0]] = _constant(op, session, shapes, arrays)
            else:
                _operator(op, values, arrays)
    kind = ir.FunctionType.get(types, [value.type for value in returned])
    made.operation.attributes["function_type"] = ir.TypeAttr.get(kind)
    return Mutated(module, session, inputs, [arrays[value] for value in returned])


def _operator(op: Any, values: dict[ir.Value, ir.Value], arrays: dict[ir.Value, np.ndarray]) -> None:
    name = op.operation.name
    if not name.startswith("relax.") or name.removeprefix("relax.") not in OPS:
        raise NotMutable
    built = class_of(op).build(*_operands(op, values), **op.attribute_values()).operation
    evaluated(op, values, arrays, list(built.results))
    values.update(zip(op.operation.results, built.results, strict=True))


def _operands(op: Any, values: dict[ir.Value, ir.Value]) -> list[Any]:
    flat, layout = [values[value] for value in op.operation.operands], class_of(op)._operand_layout
    return [layout.pick(field, op.operation, flat) for field in layout.fields]


def evaluated(
    op: Any, values: dict[ir.Value, ir.Value], arrays: dict[ir.Value, np.ndarray], results: list[ir.Value]
) -> None:
    """Add what an operator computes of its operands to the arrays, rounded to the type of each result."""
    read = [[arrays[v] for v in each] if isinstance(each, list) else arrays.get(each) for each in _operands(op, values)]
    attributes = op.attribute_values()
    if op.operation.name == "relax.matmul":
        attributes["out_dtype"] = None  # integers are computed in i64 here
    try:
        made = evaluate(op.operation.name.removeprefix("relax."), read, attributes)
    except ValueError as error:
        raise NoMeaning(str(error)) from error
    for result, array in zip(results, made, strict=True):
        kind = TensorType.from_mlir(result.type)
        assert kind is not None and kind.shape == array.shape
        with np.errstate(all="ignore"):
            arrays[result] = array.astype(kind.dtype.to_numpy())


def _constant(op: Any, session: Session, shapes: Shapes, arrays: dict[ir.Value, np.ndarray]) -> ir.Value:
    kind = TensorType.from_mlir(op.operation.results[0].type)
    assert kind is not None
    if op.param is None:
        array = constant_value(op.operation.results[0], session)
        assert array is not None
        other = shapes.part(array)
        given = {"value": dense_attribute(other, TensorType(other.shape, kind.dtype))}
    else:
        other = _numbers(kind, shapes.other(kind.static_shape), shapes.random)
        session.params.add(op.param, other)
        given = {"param": op.param}
    value: ir.Value = OPS["constant"].make(**given, result_types=[TensorType(other.shape, kind.dtype)])
    arrays[value] = other
    return value


class NoMeaning(Exception):
    """An operator that is not evaluated here, such as attention."""


@dataclass(frozen=True)
class Shapes:
    """Draws shapes in the place of others; `share` of them have fewer or more dims, or dims of one element."""

    random: np.random.Generator
    share: float
    is_empty: bool = False
    """Whether dims become 0."""

    def other(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.random.random() > self.share:
            return shape
        if self.is_empty:
            return tuple(0 if self.random.random() < 0.5 else dim for dim in shape)
        drawn = self.random.integers(4)
        if not shape or drawn == 0:
            return (1, *shape)
        if drawn == 1:
            return shape[int(self.random.integers(1, len(shape) + 1)) :]
        return tuple(1 if self.random.random() < 0.5 else dim for dim in shape)

    def part(self, array: np.ndarray) -> np.ndarray:
        """Return a part of a constant that has another shape."""
        shape = self.other(array.shape)
        if len(shape) > array.ndim:
            return np.array(array.reshape(shape), order="C")
        array = array[(0,) * (array.ndim - len(shape))]
        return np.array(array[tuple(slice(0, dim) for dim in shape)], order="C")  # without dims too


def _numbers(kind: TensorType, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if kind.dtype.is_bool:
        return random.random(shape) < 0.5
    if kind.dtype.is_integer:
        limits = np.iinfo(kind.dtype.to_numpy())
        return random.integers(max(limits.min, -9), min(limits.max, 9), shape).astype(kind.dtype.to_numpy())
    return random.uniform(-2, 2, shape).astype(kind.dtype.to_numpy())


def computed(module: ir.Module, session: Session, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return what the graph of a module computes."""
    block = find_entry(module).regions[0].blocks[0]
    arrays = dict(zip(block.arguments, inputs, strict=True))
    for op in block.operations:
        if op.operation.name == "func.return":
            return [arrays[value] for value in op.operation.operands]
        if op.operation.name == "relax.constant":
            array = constant_value(op.operation.results[0], session)
            assert array is not None
            arrays[op.operation.results[0]] = array
        else:
            values: dict[ir.Value, ir.Value] = {value: value for value in op.operation.operands}
            evaluated(op, values, arrays, list(op.operation.results))
    raise AssertionError("no return")
