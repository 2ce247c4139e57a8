"""Branches and loops that calls decide on: subgraphs of a node, or what a converter makes, as regions of operations.

`body` is the import of the function that contains them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import UNKNOWN, Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.frontends.builder import sizes_if
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import GraphDef, ValueDef
from mirlo.frontends.onnx.node import NodeImporter
from mirlo.frontends.onnx.objects import object_of
from mirlo.frontends.onnx.values import (
    AnyValue,
    LoopIteration,
    ObjectValue,
    join,
    kind_of,
    tensor_kind,
    tensor_type,
    without_shapes,
)
from mirlo.frontends.tensor import Tensor, concat, where
from mirlo.runtime.kinds import ELEMENT_TYPES, Kind
from mirlo.runtime.records import dataclass

Branch = Callable[[], list[AnyValue]]
"""Imports a branch at the insertion point; returns its results."""
JoinKinds = Callable[[NodeImporter, Sequence[AnyValue], Sequence[AnyValue]], list[Kind]]
"""Returns the kinds of results that two branches make."""


def choose(body: NodeImporter, condition: Tensor, then_graph: GraphDef, else_graph: GraphDef) -> list[AnyValue]:
    """Return the results of an scf.if of two graphs."""
    branches = [partial(body.branch, graph) for graph in (then_graph, else_graph)]
    return conditional(body, condition, branches, _kinds_of_branches)


def fork(body: NodeImporter, condition: Tensor, branches: Sequence[Branch]) -> list[AnyValue]:
    """Return the results of an scf.if whose branches are the rest of a graph; what differs in rank is an object."""
    return conditional(body, condition, branches, _kinds_of_ends)


def conditional(
    body: NodeImporter, condition: Tensor, branches: Sequence[Branch], join_kinds: JoinKinds
) -> list[AnyValue]:
    """Return the results of an scf.if; each branch inserts operations and returns its results."""
    kinds: list[Kind] = []
    names: list[str] = []

    def filled(branch: Branch) -> list[AnyValue]:
        values = branch()
        for value in values:
            if isinstance(value, Tensor):
                body.full(value)
        return values

    def joined(one: Sequence[AnyValue], other: Sequence[AnyValue]) -> Callable[[Sequence[AnyValue]], list[ir.Value]]:
        kinds.extend(join_kinds(body, one, other))
        names.extend(value.name or "branch" for value in one)
        return lambda values: [of_kind(body, value, kind) for value, kind in zip(values, kinds, strict=True)]

    branch_results = body.branches(
        scalar_of(body, condition, "cond"), [partial(filled, each) for each in branches], joined
    )
    return [value_of(body, *each) for each in zip(branch_results, kinds, names, strict=True)]


def _kinds_of_ends(body: NodeImporter, one: Sequence[AnyValue], other: Sequence[AnyValue]) -> list[Kind]:
    """Return the kinds of the results of the rest of a graph in either branch."""
    kinds = []
    for a, b in zip(one, other, strict=True):
        kind = without_dims(a.kind, b.kind) or join(a.kind, b.kind)
        if kind is None:
            raise NodeError(f"'{a.name}' is {a.kind} after one branch and {b.kind} after the other")
        kinds.append(kind)
    return kinds


def _kinds_of_branches(body: NodeImporter, one: Sequence[AnyValue], other: Sequence[AnyValue]) -> list[Kind]:
    """Return the kinds of an If's results, whichever branch makes them."""
    if len(one) != len(other):
        raise NodeError(
            f"'then_branch' gives {len(one)} outputs and 'else_branch' {len(other)}: both must give those of the node"
        )
    kinds = []
    for a, b in zip(one, other, strict=True):
        is_tensor = isinstance(a, Tensor) and isinstance(b, Tensor)
        kind = without_dims(a.kind, b.kind) if is_tensor else join(a.kind, b.kind)
        if kind is None:
            both = " and ".join("(" + ", ".join(map(str, side)) + ")" for side in (one, other))
            text = f"the branches give different types: {both}"
            if is_tensor and a.kind.name == b.kind.name:
                body.refuse_ranks(text)
            raise NodeError(text)
        if kind.name in ELEMENT_TYPES and kind.shape is None:
            body.refuse_ranks(f"a branch gives {kind} of one rank or another")
        kinds.append(kind)
    return kinds


MAX_ITERATIONS = 1 << 31
"""Most iterations of loops that only trip counts of the file end, one inside of another: an hour or more."""
ATTEMPTS = 8
CHANGES_TYPE = "a value that the loop carries changes its type in every iteration"


def iteration_of_graph(body: NodeImporter, graph: GraphDef, carried: int) -> LoopIteration:
    """Return the `LoopIteration` that the body of ONNX's Loop defines."""

    def make(count: Tensor, going: Tensor, values: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        condition, *results = body.branch(graph, [count, going, *values])
        return condition, results[:carried], results[carried:]

    return LoopIteration(make, carried=graph.inputs[2:], collected=graph.outputs[1 + carried :], graph=graph)


class KnownAfterFirst(NodeError):
    """Raised for a value whose type differs between iterations: in its rank, or in the sizes of its rows."""


def repeat(
    body: NodeImporter,
    round_: LoopIteration,
    limit: Tensor | None,
    going: Tensor | None,
    carried: Sequence[AnyValue],
    room: Dim | None = None,
) -> list[Any]:
    """Make a loop of up to `limit` iterations while `going`, and the first result of an iteration, is true.

    With `room`, the maximum trip count, scan outputs are collected: the results are followed by tensors of that many
    rows and the number of used rows. If it is unknown, each iteration appends its rows to tensors that grow.
    """
    try:
        return _repeat(body, round_, limit, going, carried, room)
    except KnownAfterFirst as error:
        if round_.graph is None:
            raise
        unknown = error
    try:
        return _repeat_after_first(body, round_, limit, going, carried, room, str(unknown))
    except KnownAfterFirst:
        raise unknown from None  # the next one tells another


def _repeat_after_first(
    body: NodeImporter,
    round_: LoopIteration,
    limit: Tensor | None,
    going: Tensor | None,
    carried: Sequence[AnyValue],
    room: Dim | None,
    why: str,
) -> list[Any]:
    """Peel the first iteration of a loop whose other iterations make values of its types.

    The call checks that there is a first iteration. Exporters of programs with variables that are not defined before
    the loop carry scalars in their place, and those of TensorFlow's maps collect rows whose sizes the body computes.
    """
    starts = body.constant(True) if going is None else going.reshape(())
    if limit is not None:
        starts = starts & (limit.reshape(()) > body.constant(0, "i64"))
    if starts.array is None or not starts.known:
        body.bind(sizes_if(starts, body.constant([0], "i64")), "loop", f"the loop has no iteration, but {why}")
    condition, results, first_rows = _made(round_, body.constant(0, "i64"), body.constant(True), list(carried))

    def make(count: Tensor, going: Tensor, values: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        return round_.make(count + body.constant(1, "i64"), going, values)

    behind = replace(round_, make=make)
    left = None if limit is None else limit.reshape(()) - body.constant(1, "i64")
    left_room = room if room is None or room is UNKNOWN else room - 1
    rows_as = [row.type for row in first_rows if isinstance(row, Tensor)]
    repeated = _repeat(body, behind, left, condition, results, left_room, rows_as)
    if room is None:
        return repeated
    *values, used = repeated if room is not UNKNOWN else (*repeated, None)
    for i, row in enumerate(first_rows, len(results)):
        rows = values[i]
        values[i] = concat([_tensor(_conformed(body, row, _row_kind(rows))).expand_dims(0), rows], axis=0)
    return values if used is None else [*values, used + body.constant(1, "i64")]


def _row_kind(rows: Tensor) -> Kind:
    return tensor_kind(rows.type.with_shape(rows.shape[1:]))


def _repeat(
    body: NodeImporter,
    round_: LoopIteration,
    limit: Tensor | None,
    going: Tensor | None,
    carried: Sequence[AnyValue],
    room: Dim | None,
    rows_as: Sequence[TensorType] = (),
) -> list[Any]:
    """Make a loop as `repeat` does; `rows_as` are the types of scan outputs, which a peeled iteration has."""
    if room is UNKNOWN:
        return _appending(body, round_, limit, going, carried, rows_as)
    most = None if limit is None else scalar_of(body, limit, "M")
    around, body.expansion.iterations = body.expansion.iterations, 1
    going = body.constant(True) if going is None else going
    kinds = _carried_kinds(body, round_, carried)
    first = [body.full(body.constant(0, "i64")), scalar_of(body, going, "cond")]
    for _ in range(ATTEMPTS + sum(len(kind.shape or ()) for kind in kinds)):
        inits = [*first, *(of_kind(body, value, kind) for value, kind in zip(carried, kinds, strict=True))]
        next_kinds: list[Kind] | None = None
        if room is not None:
            next_kinds, rows = _collected_types(body, round_, inits, kinds, rows_as)
            inits += [_rows(room, row) for row in rows]
            if next_kinds != kinds:
                kinds = _checked(carried, kinds, next_kinds)
                continue
        iteration = _Iteration(body, round_, kinds, room)
        loop_results = body.loop_while(inits, partial(_goes_on, most=most), iteration.build)
        if loop_results is None:
            # What is carried is less specific than assumed: import the body again.
            kinds = _checked(carried, kinds, iteration.kinds)
            continue
        if round_.graph is not None:
            body.expansion.carried[round_.graph] = kinds
        if iteration.is_counted:
            _limit_iterations(body, limit, going)
        body.expansion.iterations = max(around, body.expansion.iterations)
        count, _, *results = loop_results
        values = [value_of(body, result, kind) for result, kind in zip(results, kinds, strict=False)]
        return values if room is None else [*values, *map(body.tensor, results[len(kinds) :]), body.tensor(count)]
    raise NodeError(CHANGES_TYPE)


def _limit_iterations(body: NodeImporter, limit: Tensor | None, going: Tensor) -> None:
    """Count the iterations of a loop that only its trip count ends, and of loops inside; refuse endless loops."""
    if going.array is None or not going.known:
        return  # an input decides whether there is an iteration
    if limit is None:
        raise NodeError("the loop never ends: it has no trip count, and its condition is always true")
    if limit.array is None or limit.known is None:
        return
    rounds, inside = max(int(limit.known), 0), body.expansion.iterations
    if rounds * inside > MAX_ITERATIONS:
        of = f" of {inside} iterations inside" if inside > 1 else ""
        raise NodeError(
            f"the model says that the loop has {rounds} iterations{of}, and its condition is always true: at most "
            f"{MAX_ITERATIONS} are computed. Give the trip count as an input, or end the loop by a condition"
        )
    body.expansion.iterations = max(rounds * inside, 1)


def _appending(
    body: NodeImporter,
    round_: LoopIteration,
    limit: Tensor | None,
    going: Tensor | None,
    carried: Sequence[AnyValue],
    rows_as: Sequence[TensorType],
) -> list[Any]:
    """Make a loop that carries the rows of its scan outputs, to which each iteration appends."""
    rows = _types_of_rows(body, round_, body.constant(True) if going is None else going, carried, rows_as)

    def make(count: Tensor, going: Tensor, values: list[AnyValue]) -> tuple[AnyValue, list[AnyValue], list[AnyValue]]:
        condition, results, collected = round_.make(count, going, values[: len(carried)])
        longer = [
            _appended(body, old, new, row)
            for old, new, row in zip(values[len(carried) :], collected, rows, strict=True)
        ]
        return condition, [*results, *longer], []

    none = [body.tensor(_rows(0, row)) for row in rows]
    growing = LoopIteration(make, carried=round_.carried[: len(carried)], graph=round_.graph)
    return _repeat(body, growing, limit, going, [*carried, *none], None)


def _types_of_rows(
    body: NodeImporter,
    round_: LoopIteration,
    going: Tensor,
    carried: Sequence[AnyValue],
    rows_as: Sequence[TensorType],
) -> list[TensorType]:
    """Return the types of the scan outputs of an iteration."""
    kinds = [_carried_kind(value, _at(round_.carried, i)) for i, value in enumerate(carried)]
    first = [body.full(body.constant(0, "i64")), scalar_of(body, going, "cond")]
    for _ in range(ATTEMPTS + sum(len(kind.shape or ()) for kind in kinds)):
        inits = [*first, *(of_kind(body, value, kind) for value, kind in zip(carried, kinds, strict=True))]
        next_kinds, rows = _collected_types(body, round_, inits, kinds, rows_as)
        if next_kinds == kinds:
            return rows
        kinds = _checked(carried, kinds, next_kinds)
    raise NodeError(CHANGES_TYPE)


def _appended(body: NodeImporter, old: AnyValue, new: AnyValue, row: TensorType) -> AnyValue:
    """Return the rows with one more row."""
    last = _tensor(_conformed(body, new, tensor_kind(row))).expand_dims(0)
    return concat([_tensor(old), last], axis=0)


def _tensor(value: AnyValue) -> Tensor:
    assert isinstance(value, Tensor)  # rows are
    return value


def _carried_kinds(body: NodeImporter, round_: LoopIteration, carried: Sequence[AnyValue]) -> list[Kind]:
    kinds = [_carried_kind(value, _at(round_.carried, i)) for i, value in enumerate(carried)]
    if round_.graph is None:
        return kinds
    # The body of an inner loop is imported again with that of the outer one.
    return list(map(_resized_as, kinds, body.expansion.carried.get(round_.graph, kinds)))


def _goes_on(arguments: list[ir.Value], most: ir.Value | None) -> ir.Value:
    """Return whether there is another iteration: up to `most`, while the carried flag is true."""
    count, going, *_ = arguments
    if most is None:
        return going
    result: ir.Value = OPS["logical_and"].make(OPS["less"].make(count, most), going)
    return result


def _at(declared: Sequence[ValueDef], index: int) -> ValueDef | None:
    return declared[index] if index < len(declared) else None


def _collected_types(
    body: NodeImporter,
    round_: LoopIteration,
    inits: Sequence[ir.Value],
    kinds: list[Kind],
    rows_as: Sequence[TensorType],
) -> tuple[list[Kind], list[TensorType]]:
    """Return the kinds to carry, and the types of the scan outputs: import the body once and discard it."""
    known, row_types, carried = set(body.symbols.bound), list[TensorType](), list[Kind]()

    def probe(arguments: list[ir.Value]) -> None:
        _, results, collected = _imported(body, round_, arguments, kinds)
        values = [value for value in collected if isinstance(value, Tensor)]
        if len(values) < len(collected):
            raise NodeError("a loop can collect tensors only, but its body gives objects beside what it carries")
        row_types.extend(_as_declared(value.type, _at(round_.collected, i)) for i, value in enumerate(values))
        for i, (new, kind) in enumerate(zip(results, kinds, strict=True)):
            carried.append(_carried(body, round_, i, new, kind)[1])

    body.loop_while(inits, partial(_goes_on, most=None), probe)
    for i, row in enumerate(row_types):
        if any(D.symbols_of(dim) & (body.symbols.bound.keys() - known) for dim in row.shape):
            if i < len(rows_as) and _may_be(row, rows_as[i]):
                row_types[i] = rows_as[i]
                continue
            declared = _at(round_.collected, i)
            name = "" if declared is None else declared.name
            raise KnownAfterFirst(
                f"output '{name}' of the body is {row}, of a size that each iteration determines: what is collected "
                "must have the same shape in all iterations; declare its dims in the body"
            )
    return carried, row_types


def _as_declared(computed: TensorType, declared: ValueDef | None) -> TensorType:
    """Return the declared type, if its dims are known only within an iteration."""
    dims = None if declared is None else declared.type.static_dims
    if computed.is_static or dims is None:
        return computed
    wanted = computed.with_shape(dims)
    return wanted if _may_be(computed, wanted) else computed


def _rows(room: Dim, row: TensorType) -> ir.Value:
    result: ir.Value = OPS["full"].make(shape=(room, *row.shape), value=0, dtype=row.dtype)
    return result


def _imported(
    body: NodeImporter, round_: LoopIteration, arguments: list[ir.Value], kinds: list[Kind]
) -> tuple[Tensor, list[AnyValue], list[AnyValue]]:
    """Import an iteration for the arguments of its block: the flag to continue, carried values, scan outputs."""
    count, going = map(body.tensor, arguments[:2])
    values = [value_of(body, x, kind) for x, kind in zip(arguments[2:], kinds, strict=False)]
    for value in (count, going, *values):
        value.region = body.depth
    return _made(round_, count, going, values)


def _made(
    round_: LoopIteration, count: Tensor, going: Tensor, values: list[AnyValue]
) -> tuple[Tensor, list[AnyValue], list[AnyValue]]:
    """Import an iteration; return the flag to continue, which must be a tensor, carried values and scan outputs."""
    condition, results, collected = round_.make(count, going, values)
    if not isinstance(condition, Tensor):
        raise NodeError(f"the body's condition is {condition}, expected a tensor")
    return condition, results, collected


@dataclass
class _Iteration:
    """An iteration of a loop that is being built."""

    body: NodeImporter
    round_: LoopIteration
    kinds: list[Kind]
    """The kinds of what is carried; those to carry instead once they were found not to fit."""
    room: Dim | None
    is_counted: bool = False
    """Whether only a trip count ends the loop: a condition that is always true does not, nor the size of a tensor."""

    def build(self, arguments: list[ir.Value]) -> list[ir.Value] | None:
        """Import the iteration and return the values carried to the next one; None if kinds do not fit."""
        body, round_ = self.body, self.round_
        condition, results, collected = _imported(body, round_, arguments, self.kinds)
        pairs = [
            _carried(body, round_, i, new, kind) for i, (new, kind) in enumerate(zip(results, self.kinds, strict=True))
        ]
        results, joined = [value for value, _ in pairs], [kind for _, kind in pairs]
        if joined != self.kinds:
            self.kinds = joined
            return None
        count = body.tensor(arguments[0])
        values = [of_kind(body, new, kind) for new, kind in zip(results, self.kinds, strict=True)]
        for i, (rows, new) in enumerate(zip(arguments[2 + len(self.kinds) :], collected, strict=False)):
            is_backwards = i < len(round_.backwards) and round_.backwards[i]
            values.append(self._with_row(body.tensor(rows), new, count, is_backwards))
        flag = scalar_of(body, condition, "cond")
        is_always_true = flag == arguments[1] or (condition.array is not None and bool(condition.known))
        self.is_counted = round_.graph is not None and is_always_true
        return [body.full(count + 1), flag, *values]

    def _with_row(self, rows: Tensor, new: AnyValue, position: Tensor, is_backwards: bool) -> ir.Value:
        """Return rows in which the result of an iteration is at its position."""
        row = _tensor(_conformed(self.body, new, _row_kind(rows)))
        row = row.expand_dims(0)
        if is_backwards:
            assert self.room is not None
            last = self.body.emit("dims_tensor", dims=[self.room - 1]).reshape(())
            position = last - position
        index = position.reshape((1, 1))
        return self.body.full(self.body.emit("scatter_nd", rows, index, row))


def _carried(body: NodeImporter, round_: LoopIteration, index: int, new: AnyValue, kind: Kind) -> tuple[AnyValue, Kind]:
    """Return the next carried value, conformed to the kind if possible, and the common kind of both."""
    wanted = tensor_type(kind)
    if wanted is None or not isinstance(new, Tensor):
        return new, new.kind if kind.is_tensor else join(kind, new.kind) or new.kind
    if new.type.dtype is wanted.dtype and new.type.rank != wanted.rank and new.type.elements == wanted.elements == 1:
        new = new.reshape(wanted.shape)  # exporters mix scalars and tensors of one element
    if new.type.dtype is not wanted.dtype or new.type.rank != wanted.rank:
        return new, new.kind
    declared = _declared_dims(_at(round_.carried, index), wanted.rank)
    shape, joined = list[Dim](), list[Dim]()
    for dim, old, declared_dim in zip(new.type.shape, wanted.shape, declared, strict=True):
        both_known = isinstance(dim, int) and isinstance(old, int)
        is_kept = dim == old or (
            not both_known and (declared_dim == old or (old is not UNKNOWN and round_.graph is None))
        )
        shape.append(old if is_kept else dim)
        joined.append(old if is_kept else dim if round_.graph is None else UNKNOWN)
    conformed = _conformed(body, new, tensor_kind(new.type.with_shape(shape)))
    return conformed, tensor_kind(wanted.with_shape(joined))


def _declared_dims(declared: ValueDef | None, rank: int) -> list[int | None]:
    """Return the dims that a declaration of a tensor has as numbers."""
    dims = None if declared is None else declared.type.dims
    if dims is None or len(dims) != rank:
        return [None] * rank
    return [dim if isinstance(dim, int) else None for dim in dims]


def _conformed(body: NodeImporter, value: AnyValue, kind: Kind) -> AnyValue:
    """Return a tensor as one of this kind, with a check of dims that only the call can confirm."""
    wanted = tensor_type(kind)
    if wanted is None or not isinstance(value, Tensor) or value.type == wanted or not _may_be(value.type, wanted):
        return value
    body.full(value)
    actual = body.emit("dims_tensor", dims=value.type.shape)
    checked = where(actual.equals(body.emit("dims_tensor", dims=wanted.shape)), actual, -1)
    names = [body.new_symbol(value.name or "carried") for _ in wanted.shape]
    what = f"what the loop carries as {wanted} is {value.type} after an iteration"
    OPS["bind_dims"].build(
        body.full(checked), symbols=names, bounds=[UNKNOWN] * wanted.rank, what=what, result_types=[]
    )
    conformed = value.part([0] * wanted.rank, wanted.shape)
    conformed.name = value.name
    return conformed


def _may_be(computed: TensorType, wanted: TensorType) -> bool:
    pairs = zip(computed.shape, wanted.shape, strict=False)
    return (
        computed.dtype is wanted.dtype
        and computed.rank == wanted.rank
        and all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    )


def _checked(carried: Sequence[AnyValue], kinds: list[Kind], next_kinds: list[Kind]) -> list[Kind]:
    """Return the new kinds of carried values, which must be less specific than the old ones."""
    for old, kind, new in zip(carried, kinds, next_kinds, strict=True):
        is_less_specific = without_dims(kind, new) == new if kind.is_tensor else join(kind, new) == new
        if new != kind and not is_less_specific:
            one, two = tensor_type(kind), tensor_type(new)
            is_rank = one is not None and two is not None and one.dtype is two.dtype
            raise (KnownAfterFirst if is_rank else NodeError)(
                f"'{old.name}' is {kind} before the loop and {new} after an iteration: what a loop with a dynamic trip "
                "count carries must keep its element type and its rank"
            )
    return next_kinds


def _resized_as(kind: Kind, known: Kind) -> Kind:
    """Return the kind without the dims that another kind of the same value does not have."""
    one, two = tensor_type(kind), tensor_type(known)
    if one is None or two is None or one.rank != two.rank:
        return kind
    return tensor_kind(one.with_shape([b if b is UNKNOWN else a for a, b in zip(one.shape, two.shape, strict=True)]))


def without_dims(kind: Kind, other: Kind) -> Kind | None:
    """Return the kind of tensors without the dims in which another kind differs; None for another type or rank."""
    one, two = tensor_type(kind), tensor_type(other)
    if one is None or two is None or one.dtype is not two.dtype or one.rank != two.rank:
        return None
    return tensor_kind(one.with_shape([a if a == b else UNKNOWN for a, b in zip(one.shape, two.shape, strict=True)]))


def of_kind(body: NodeImporter, value: AnyValue, kind: Kind) -> ir.Value:
    """Return the SSA value for a wanted kind: a tensor, without the dims that the kind does not have, or an object."""
    wanted = tensor_type(kind)
    if wanted is None:
        return object_of(value, body)
    axes = [axis for axis, dim in enumerate(wanted.shape) if dim is UNKNOWN]
    return OPS["erase_dims"].make(body.ssa(value), axes=axes) if axes else body.ssa(value)


def scalar_of(body: NodeImporter, value: Tensor, name: str) -> ir.Value:
    """Return a tensor of one element as rank 0; the call checks its size if necessary."""
    if value.type.elements != 1 and not (D.symbols_of(value.type.elements) and value.type.elements is not D.UNKNOWN):
        raise NodeError(f"'{name}' must have one element, got {value.type}")
    return body.full(value.reshape(()))


def value_of(body: NodeImporter, result: ir.Value, kind: Kind, name: str = "carried") -> AnyValue:
    """Wrap an SSA value of this kind; dims that the kind does not have get names."""
    type_ = tensor_type(kind)
    if type_ is None:
        return ObjectValue("", kind, result)
    if UNKNOWN in type_.shape:
        symbols = [body.bound_symbol(name) for dim in type_.shape if dim is UNKNOWN]
        result = OPS["match_dims"].make(result, symbols=symbols)
    return body.tensor(result)


def _carried_kind(value: AnyValue, graph_input: ValueDef | None) -> Kind:
    """Return the kind of a carried value; the body's element types are used for sequences."""
    if isinstance(value, Tensor):
        return value.kind
    if graph_input is not None and graph_input.type.case in ("sequence", "optional"):
        declared_kind = kind_of(graph_input.type, f"'{graph_input.name}'")
        if join(declared_kind, value.kind) == declared_kind:
            return declared_kind
    return without_shapes(value.kind)
