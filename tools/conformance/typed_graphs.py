"""Types, attributes and elements for the graph of a pattern that shape inference accepts, drawn from operators' cases.

The operands and attributes of an operation come from the cases of its operator. Where an operand is computed by
another operation, the sizes of the case are replaced by its sizes, and inference says which replacements fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.core.attributes import REQUIRED
from mirlo.dialects.core.conditions import collect_conditions
from mirlo.dialects.core.dtypes import DType, dtype, dtype_of_numpy
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.search import Predicate
from mirlo.runtime.records import dataclass
from mirlo.tools.conformance.case import COLUMNS, TABLE, VARIED, Draw, OperatorCase
from mirlo.tools.conformance.derivations import GraphLeaf, GraphOperation, GraphResult, GraphValue, PatternGraph
from mirlo.tools.conformance.programs import operator_class

if TYPE_CHECKING:
    from mirlo.dialects.core.op import DialectOp

MAX_COMBINATIONS = 300
"""Combinations of operand types that are offered to the inference of one operation."""
MAX_ELEMENTS = 1 << 14
"""Elements of one tensor: the reference computes in numpy."""
MAX_SMALL = 3
"""Sizes up to this one stay as they are when sizes are rounded to a tile: those of windows."""
INFINITE = 0.1
"""The share of drawn elements that are infinite, of an operator whose cases have such."""

Reject = (OpError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, AttributeError)


@dataclass(frozen=True)
class Lattice:
    """How the sizes of a case are changed: rounded up to multiples of a tile, and enlarged."""

    tile: int = 1
    beyond: int = 0
    kept: tuple[int, ...] = ()
    """Sizes that stay: those of images, where channels are multiples of a large tile."""


def may_be_positions(kind: np.dtype) -> bool:
    """Return whether elements of a type may be positions in another operand, which exist for the sizes of a case."""
    return kind.kind in "iu" and kind.itemsize > 1


def finite_range(array: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest finite element; 1 if there is none."""
    numbers = array.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return (float(numbers.min()), float(numbers.max())) if numbers.size else (1.0, 1.0)


@dataclass(frozen=True)
class ElementRange:
    """The element type of a leaf, and the range of its elements."""

    dtype: DType
    low: float
    high: float
    examples: np.ndarray
    """Elements of a case of the operator."""

    @staticmethod
    def of(array: np.ndarray) -> ElementRange:
        element = dtype_of_numpy(array.dtype)
        assert element is not None, array.dtype
        low, high = finite_range(array)
        return ElementRange(element, min(low, 1.0), max(high, 1.0), array)

    def draw(self, shape: Sequence[int], random: np.random.Generator, magnitude: float, whole: bool) -> np.ndarray:
        """Return an array; floats are scaled by the magnitude, bytes fill their range where `whole` is set.

        Some floats are infinite where those of the case are: no result of NaN is compared.
        Other integers, which may be positions or divisors, are those of the case: of its columns, if it has as many.
        """
        kind, examples = self.dtype.to_numpy(), self.examples
        if self.dtype.is_float:
            numbers = np.asarray(random.uniform(self.low, self.high, shape) * magnitude).astype(kind)
            infinite = examples[np.isinf(examples)]
            if infinite.size:
                numbers = np.where(random.random(shape) < INFINITE, random.choice(infinite, shape), numbers)
            return numbers
        if whole and kind.kind in "iu" and kind.itemsize == 1:
            limits = np.iinfo(kind)
            drawn = np.asarray(random.integers(limits.min, limits.max, shape, endpoint=True)).astype(kind)
            return drawn if (examples == 0).any() else np.where(drawn == 0, np.ones_like(drawn), drawn)
        if not examples.size:
            return np.ones(shape, kind)
        if examples.ndim and len(shape) and shape[-1] == examples.shape[-1]:
            rows = examples.reshape(-1, shape[-1])
            picked = random.integers(len(rows), size=shape)
            return np.asarray(rows[picked, np.arange(shape[-1])]).astype(kind)
        return np.asarray(random.choice(examples.reshape(-1), shape)).astype(kind)


@dataclass(eq=False)
class TypedGraph:
    """A graph whose values have types and whose operations have attributes."""

    graph: PatternGraph
    types: dict[GraphLeaf, TensorType]
    ranges: dict[GraphLeaf, ElementRange]
    attributes: dict[GraphOperation, dict[str, object]]
    results: dict[GraphOperation, tuple[TensorType, ...]]
    arguments: list[GraphLeaf]
    """The leaves that are arguments; the others are constants."""

    def type_of(self, value: GraphValue) -> TensorType:
        return self.types[value] if isinstance(value, GraphLeaf) else self.results[value.operation][value.number]

    def operand_types(self, operation: GraphOperation) -> list[object]:
        """Return the types of declared operands, as inference takes them."""
        return [
            [self.type_of(v) for v in o] if isinstance(o, list) else None if o is None else self.type_of(o)
            for o in operation.operands.values()
        ]

    def with_types(self, types: Mapping[GraphLeaf, TensorType]) -> TypedGraph | None:
        """Return the graph with other types of leaves, or None where inference rejects them or assumes sizes."""
        if dict(types) != self.types and any(may_be_positions(kind.dtype.to_numpy()) for kind in types.values()):
            return None  # positions are those of the case, in tensors of its sizes
        retyped = replace(self, types=dict(types), results={})
        for operation in self.graph.operations:
            try:
                with collect_conditions() as conditions:
                    retyped.results[operation] = _infer(
                        operation, retyped.operand_types(operation), self.attributes[operation]
                    )
            except Reject:
                return None
            if conditions:
                return None
        return retyped

    @property
    def text(self) -> str:
        """Return the drawn types and attributes in one line."""
        listed = ", ".join(
            f"{'' if leaf in self.arguments else 'constant '}{kind}" for leaf, kind in self.types.items()
        )
        return "; ".join([f"{self.graph} of {listed}", *([", ".join(self.changes)] if self.changes else [])])

    @property
    def changes(self) -> list[str]:
        """Return the attributes that differ from their defaults, as text."""
        return [
            f"{name}={value}"
            for operation, attributes in self.attributes.items()
            for name, value in attributes.items()
            if value not in (None, (), operator_class(_short(operation))._attributes[name].default)
        ]


def typed_graph(graph: PatternGraph, kind: str, lattice: Lattice, random: np.random.Generator) -> TypedGraph | None:
    """Return the graph with types that inference accepts, or None where none of those that are tried fits."""
    typed = TypedGraph(graph, {}, {}, {}, {}, [])
    for operation in graph.operations:
        if not _type_operation(typed, operation, kind, lattice, random):
            return None
    if any(not kind.is_static or math.prod(kind.static_shape) > MAX_ELEMENTS for kind in _all_types(typed)):
        return None
    typed.arguments += [leaf for leaf in typed.types if leaf.is_constant is False]
    open_leaves = [leaf for leaf in typed.types if leaf.is_constant is None]
    if not typed.arguments and open_leaves:
        typed.arguments.append(open_leaves.pop(0))
    typed.arguments += [leaf for leaf in open_leaves if random.integers(2)]
    typed.arguments.sort(key=list(typed.types).index)
    return typed if typed.arguments or not typed.types else None


def _all_types(typed: TypedGraph) -> list[TensorType]:
    return [*typed.types.values(), *itertools.chain.from_iterable(typed.results.values())]


def _short(operation: GraphOperation) -> str:
    return operation.name.removeprefix("relax.")


def _infer(
    operation: GraphOperation, operands: Sequence[object], attributes: Mapping[str, object]
) -> tuple[TensorType, ...]:
    cls = operator_class(_short(operation))
    infer = getattr(cls, "infer", None)
    if infer is None:
        raise ValueError(f"'{operation.name}' has no inference")
    inferred = infer(*operands, **_all_attributes(cls, attributes))
    return tuple(inferred) if isinstance(inferred, (tuple, list)) else (inferred,)


def _all_attributes(cls: type[DialectOp], attributes: Mapping[str, object]) -> dict[str, object]:
    values = {name: declared.default for name, declared in cls._attributes.items() if declared.default is not REQUIRED}
    values |= {name: None if v is None else cls._attributes[name].normalize(v) for name, v in attributes.items()}
    return values


@lru_cache(maxsize=4096)
def _cases(operator: str, kind: str, lattice: Lattice) -> tuple[OperatorCase, ...]:
    """Return the cases of an operator for an element type, sizes changed."""
    if lattice == Lattice():
        return (*TABLE.cases(operator, kind), *VARIED.cases(operator, kind))
    drawn = []
    for table in (TABLE, VARIED):
        random = np.random.default_rng(lattice.tile)
        draw = Draw(dtype(kind), random, lattice.tile, MAX_SMALL, lattice.beyond, lattice.kept, MAX_ELEMENTS)
        drawn += table.drawn_cases(operator, draw)
    return tuple(drawn)


def _type_operation(
    typed: TypedGraph, operation: GraphOperation, kind: str, lattice: Lattice, random: np.random.Generator
) -> bool:
    """Choose types of the operands that have none yet, and attributes; return whether any fit."""
    known = [typed.type_of(v) for v in _flat(operation) if isinstance(v, GraphResult) or v in typed.types]
    kinds = [known[0].dtype.name] if known else [kind]
    cases = [case for name in kinds if name in COLUMNS for case in _cases(_short(operation), name, lattice)]
    for position in random.permutation(len(cases)):
        case = cases[position]
        tried = [case.attributes]
        if random.integers(2):
            tried.insert(0, _with_other_axes(operation, case, random))
        for attributes in itertools.chain.from_iterable(_constrained(operation, candidate) for candidate in tried):
            chosen = _fitting(typed, operation, case, attributes, random)
            if chosen is not None:
                types, ranges, results = chosen
                typed.types |= types
                typed.ranges |= ranges
                typed.attributes[operation] = attributes
                typed.results[operation] = results
                return True
    return False


def _with_other_axes(
    operation: GraphOperation, case: OperatorCase, random: np.random.Generator
) -> Mapping[str, object]:
    """Return the attributes of a case with another `axis`, and with `axes` counted from the other end."""
    first = next((operand for operand in case.operands if isinstance(operand, np.ndarray)), None)
    if first is None or not first.ndim:
        return case.attributes
    changed = dict(case.attributes)
    for name, declared in operator_class(_short(operation))._attributes.items():
        value = case.attributes.get(name, declared.default)
        if name == "axis" and isinstance(value, int):
            changed[name] = int(random.integers(-first.ndim, first.ndim))
        elif name == "axes" and isinstance(value, (tuple, list)):
            changed[name] = tuple(axis - first.ndim if axis >= 0 else axis + first.ndim for axis in value)
    return changed


def _flat(operation: GraphOperation) -> list[GraphValue]:
    held = (o if isinstance(o, list) else [o] for o in operation.operands.values())
    return [value for values in held for value in values if value is not None]


def _constrained(operation: GraphOperation, attributes: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield the attributes of a case with the values that the pattern requires."""
    declared = operator_class(_short(operation))._attributes
    choices: list[list[tuple[str, object]]] = []
    for name, wanted in operation.attributes.items():
        value = attributes.get(name, declared[name].default)
        if callable(wanted):
            value = None if value is None else declared[name].normalize(value)
            if Predicate.of(wanted).declines(value) is not None:
                return
        elif isinstance(wanted, (set, frozenset)):
            choices.append([(name, member) for member in sorted(wanted, key=str)])
        else:
            choices.append([(name, wanted)])
    for chosen in itertools.product(*choices):
        yield {**attributes, **dict(chosen)}


Fitting = tuple[dict[GraphLeaf, TensorType], dict[GraphLeaf, ElementRange], tuple[TensorType, ...]]


def _fitting(
    typed: TypedGraph,
    operation: GraphOperation,
    case: OperatorCase,
    attributes: Mapping[str, object],
    random: np.random.Generator,
) -> Fitting | None:
    """Return types of the leaves of an operation that its inference accepts."""
    free: dict[GraphLeaf, list[tuple[TensorType, ElementRange]]] = {}
    renamed = _renamed_sizes(typed, operation, case)
    arrays = [operand for operand in case.operands if isinstance(operand, np.ndarray)]
    is_fixed = any(may_be_positions(array.dtype) for array in arrays)
    known = [typed.type_of(v) for v in _flat(operation) if isinstance(v, GraphResult) or v in typed.types]
    for (_, operand), example in zip(operation.operands.items(), case.operands, strict=False):
        for position, value in enumerate(operand if isinstance(operand, list) else [operand]):
            if not isinstance(value, GraphLeaf) or value in typed.types:
                continue
            array = example[position % len(example)] if isinstance(example, list) else example
            if array is None:
                return None
            elements = ElementRange.of(array)
            shapes = [array.shape] if is_fixed else _shapes(array.shape, renamed, known)
            free[value] = [(TensorType(shape, elements.dtype), elements) for shape in shapes]
    combinations = list(itertools.islice(itertools.product(*free.values()), 20 * MAX_COMBINATIONS))
    order = random.permutation(len(combinations))[:MAX_COMBINATIONS] if known else range(len(combinations))
    for position in order:
        types = dict(zip(free, (kind for kind, _ in combinations[position]), strict=True))
        trial = replace(typed, types=typed.types | types)
        try:
            results = _infer(operation, trial.operand_types(operation), attributes)
        except Reject:
            continue
        if all(kind.is_static for kind in results):
            return types, dict(zip(free, (e for _, e in combinations[position]), strict=True)), results
    return None


def _renamed_sizes(typed: TypedGraph, operation: GraphOperation, case: OperatorCase) -> dict[int, set[int]]:
    """Return the new sizes of a case where computed operands have other sizes."""
    renamed: dict[int, set[int]] = {}
    for operand, array in zip(operation.operands.values(), case.operands, strict=False):
        if not isinstance(array, np.ndarray) or operand is None or isinstance(operand, list):
            continue
        if isinstance(operand, GraphLeaf) and operand not in typed.types:
            continue
        shape = typed.type_of(operand).static_shape
        if len(shape) == array.ndim:
            for old, new in zip(array.shape, shape, strict=True):
                renamed.setdefault(old, set()).add(new)
    return renamed


def _shapes(
    shape: tuple[int, ...], renamed: Mapping[int, set[int]], known: Sequence[TensorType]
) -> list[tuple[int, ...]]:
    """Return the shapes that are tried for an operand."""
    if not known:
        return [shape]
    choices = [sorted({size, *renamed.get(size, ())}) for size in shape]
    shapes = list(itertools.islice(itertools.product(*choices), 32))
    first = known[0].static_shape
    shapes += [first, first[-1:], (), *((size,) for size in first)]
    shapes += [tuple(size if i == axis else 1 for i, size in enumerate(first)) for axis in range(len(first))]
    return list(dict.fromkeys(shapes))


def with_dynamic_dims(typed: TypedGraph) -> Iterator[tuple[TypedGraph, dict[GraphLeaf, dict[int, str]]]]:
    """Yield the graph with one dim of its arguments dynamic, and which axes of which leaves that is."""
    if not typed.arguments:
        return
    first = typed.arguments[0]
    shape = typed.types[first].static_shape
    for axis in dict.fromkeys((0, len(shape) - 2, len(shape) - 1)):
        if 0 <= axis < len(shape):
            variant = _dynamic(typed, first, axis, shape[axis])
            if variant is not None:
                yield variant


def _dynamic(
    typed: TypedGraph, first: GraphLeaf, axis: int, size: int
) -> tuple[TypedGraph, dict[GraphLeaf, dict[int, str]]] | None:
    """Make an axis dynamic, and those of other arguments that must be equal to it."""
    others = [
        (leaf, i)
        for leaf in typed.arguments
        if leaf is not first
        for i, other in enumerate(typed.types[leaf].static_shape)
        if other == size
    ][:4]
    for chosen in itertools.product((True, False), repeat=len(others)):
        axes: dict[GraphLeaf, dict[int, str]] = {first: {axis: "n"}}
        for (leaf, i), is_dynamic in zip(others, chosen, strict=True):
            if is_dynamic:
                axes.setdefault(leaf, {})[i] = "n"
        types = dict(typed.types)
        for leaf, names in axes.items():
            dims = [names.get(i, dim) for i, dim in enumerate(types[leaf].shape)]
            types[leaf] = TensorType.of(dims, types[leaf].dtype)
        variant = typed.with_types(types)
        if variant is not None and not any(variant.type_of(output).is_static for output in variant.graph.outputs):
            return variant, axes
    return None
