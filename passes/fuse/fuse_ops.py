"""The pass `fuse-ops`: groups calls of prim functions into `relax.primitive` functions."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.surgery import blocks, clone_with
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType, dims_of
from mirlo.dialects.tir.view import RULES, PrimView, is_prim_func, is_tensor_form
from mirlo.passes.fuse.groups import MAX_INPUTS, TAKES_ELEMENTS, FusionNode, Groups
from mirlo.passes.fuse.inline import is_cheap
from mirlo.passes.fuse.kinds import FusionKind, domain_of_columns, has_several_contractions, is_move, kind_of
from mirlo.passes.fuse.siblings import join_siblings, read_values
from mirlo.passes.graph.constants import is_constant, whole_constant
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

PRIMITIVE = "relax.primitive"
"""Attribute of a function whose body is one group of calls; `fuse-tir` merges it into a prim function."""

LONGEST_NAME = 80


@register_pass
@dataclass(frozen=True)
class FuseOps(Pass):
    """Group calls of prim functions by kind: a contraction with its epilogue, elementwise chains, row operations.

    Each group moves to a private function with the attribute `relax.primitive`, called with `func.call`. A cheap map
    that several groups read, such as `x - mean`, is computed again in each, where that moves fewer bytes.
    """

    name = "fuse-ops"
    keeps_layers = True
    contained = True
    trusted = True
    max_inputs: int = option(MAX_INPUTS, "most tensors that a fused function may read")
    widen: bool = option(False, "fuse conversions of narrow types into the attention and products that read them")

    def run(self, op: ir.OpView, session: Session) -> None:
        body = op.regions[0].blocks[0]
        functions = [f for f in body.operations if f.operation.name == "func.func"]
        prims = _Prims(
            {symbol_name(f): kind_of(f) for f in functions if is_prim_func(f)},
            {symbol_name(f) for f in functions if is_prim_func(f) and is_move(f)},
            {symbol_name(f) for f in functions if is_prim_func(f) and is_move(f, self.widen)},
            {symbol_name(f) for f in functions if is_prim_func(f) and has_several_contractions(f)},
            {symbol_name(f) for f in functions if is_prim_func(f) and _is_cheap_map(f)},
            {symbol_name(f): ir.StringAttr(f.attributes[RULES]).value for f in functions if RULES in f.attributes},
            {symbol_name(f): domain_of_columns(f) for f in functions if is_prim_func(f)},
        )
        symbols = ir.SymbolTable(op.operation)
        for function in functions:
            if is_prim_func(function) or not function.operation.regions[0].blocks:
                continue
            if PRIMITIVE in function.operation.attributes:
                continue
            for block in blocks(function) if self.widen else ():
                _divide_conversions(block, prims)
            _fuse(function, prims, symbols, body, self.max_inputs)


@dataclass(frozen=True)
class _Prims:
    """Facts about the prim functions, by name."""

    kinds: dict[str, FusionKind]
    moves: set[str]
    reads: set[str]
    """Those that move rows, and may convert their elements to a wider type."""
    takes_moves: set[str]
    cheap: set[str]
    """Those that compute elements with few operations."""
    rules: dict[str, str]
    """The target whose rules lower their intrinsics, of those that came from an external module."""
    columns: dict[str, Hashable | None]
    """The domains of reductions of columns."""


def _is_cheap_map(function: ir.OpView) -> bool:
    """Return whether a function computes each element with few operations of elements."""
    if not is_tensor_form(function) or kind_of(function) > FusionKind.BROADCAST:
        return False
    return all(map(is_cheap, PrimView(function).blocks))


def _divide_conversions(block: ir.Block, prims: _Prims) -> None:
    """Give each product a conversion of its own of a constant that several read: it can convert where it reads."""
    for op in [op.operation for op in block.operations]:
        if op.name != "relax.call_tir" or not _widens_constant(op, prims.moves, prims.reads):
            continue
        uses = list(op.results[0].uses)
        products = [use for use in uses if _is_product(use.owner.operation, block, prims)]
        for use in products[1:] if len(products) == len(uses) else products:
            with ir.InsertionPoint(op):
                copy = clone_with(op, list(op.operands), op.location)
            use.owner.operation.operands[use.operand_number] = copy.results[0]


def _is_product(op: ir.Operation, block: ir.Block, prims: _Prims) -> bool:
    is_call = op.name == "relax.call_tir" and op.block == block
    return is_call and prims.kinds.get(op.opview.callee) is FusionKind.CONTRACTION


def _widens_constant(call: ir.Operation, moves: Collection[str], reads: Collection[str]) -> bool:
    """Return whether a call converts a constant, and does no more than to permute it."""
    callee = call.opview.callee
    return (
        callee in reads and callee not in moves and all(is_constant(whole_constant(value)) for value in call.operands)
    )


def _fuse(function: ir.OpView, prims: _Prims, symbols: ir.SymbolTable, module_body: ir.Block, max_inputs: int) -> None:
    for block in blocks(function):
        steps, groups, nbytes = _group(block, prims, max_inputs)
        siblings = join_siblings(groups, nbytes)
        taken = {i for members in siblings for i in members}
        for members in (*siblings, *(each for each in groups.members() if taken.isdisjoint(each))):
            _outline([steps[i] for i in members], symbols, module_body)
        if siblings:
            _sort(block)


def _sort(block: ir.Block) -> None:
    """Move operations after those whose results they read; the others keep their order."""
    steps = [op.operation for op in block.operations]
    placed: dict[ir.Operation, None] = {}
    for step in steps:
        waiting = [step]
        while waiting:
            makers = (value.owner.operation for value in _read_by(waiting[-1]) if isinstance(value, ir.OpResult))
            missing = [op for op in makers if op.block == block and op not in placed]
            waiting.extend(missing)
            if not missing:
                placed.setdefault(waiting.pop())
    for step in list(placed)[:-1]:
        step.move_before(steps[-1])


def _group(block: ir.Block, prims: _Prims, max_inputs: int) -> tuple[list[ir.Operation], Groups, list[int]]:
    """Return the operations of a block, their groups and the bytes of values.

    Maps that several groups compute are copied.
    """
    stored: set[ir.Value] = set()
    copies: list[_Copies] = []
    while True:
        steps = [op.operation for op in block.operations]
        nodes, nbytes = graph_of(steps, prims)
        groups = Groups(nodes, max_inputs)
        numbers: dict[ir.Value, int] = {value: i for i, op in enumerate(steps) for value in op.results}
        ends = {max(members) for members in groups.inside if members}
        refused = [each for each in copies if any(numbers[value] in ends for value in each.results)]
        for each in refused:
            stored.add(each.results[0])
            each.join()
        if refused:
            copies = []
            continue
        selected = select_recomputed(groups, nbytes, {numbers[value] for value in stored})
        if not selected:
            return steps, groups, nbytes
        copies = [_Copies(steps, each) for each in selected]


class _Copies:
    """A map with a copy for each kernel that reads it but the first."""

    def __init__(self, steps: Sequence[ir.Operation], recomputation: Recomputation) -> None:
        members = [steps[i] for i in recomputation.members]
        self.results, self._copied = [members[-1].results[0]], []
        for users in recomputation.readers[1:]:
            env: dict[ir.Value, ir.Value] = {}
            with ir.InsertionPoint(members[-1]):
                for op in members:
                    copy = clone_with(op, [env.get(value, value) for value in op.operands], op.location)
                    env[op.results[0]] = copy.results[0]
                    self._copied.append(copy)
            self.results.append(copy.results[0])
            for number in users:
                user = steps[number]
                for i, value in enumerate(user.operands):
                    if value == self.results[0]:
                        user.operands[i] = self.results[-1]

    def join(self) -> None:
        """Compute the map once for all readers again."""
        for result in self.results[1:]:
            result.replace_all_uses_with(self.results[0])
        for op in reversed(self._copied):
            op.erase()


def graph_of(steps: Sequence[ir.Operation], prims: _Prims) -> tuple[list[FusionNode], list[int]]:
    """Return a node per operation of a block, and estimated bytes of each value by its number.

    Operations other than calls of prim functions are opaque.
    """
    nodes: list[FusionNode] = []
    made_by: dict[ir.Value, int] = {}
    numbers: dict[ir.Value, int] = {}
    for i, op in enumerate(steps):
        kind = FusionKind.OPAQUE
        shape: tuple[Dim, ...] = ()
        if op.name == "relax.call_tir" and len(op.results) == 1:
            kind = prims.kinds.get(op.opview.callee, FusionKind.OPAQUE)
            shape = dims_of(op.results[0].type)
        operands = _read_by(op)
        values = frozenset(numbers.setdefault(v, len(numbers)) for v in operands)
        makes = frozenset(numbers.setdefault(v, len(numbers)) for v in op.results)
        node = FusionNode(i, kind, shape, reads=values, makes=makes)
        if kind is not FusionKind.OPAQUE:
            callee = op.opview.callee
            node.is_move, node.is_read = callee in prims.moves, callee in prims.reads
            node.takes_moves, node.is_cheap = callee in prims.takes_moves, callee in prims.cheap
            node.widens_constant = _widens_constant(op, prims.moves, prims.reads)
            node.rules, node.columns = prims.rules.get(callee, ""), prims.columns.get(callee)
        for value in operands:
            source = made_by.get(value)
            if source is not None and source not in node.inputs:
                node.inputs.append(source)
                nodes[source].users.append(i)
                nodes[source].escapes |= i == len(steps) - 1
        for value in op.results:
            made_by[value] = i
        nodes.append(node)
    return nodes, [_estimated_bytes(value) for value in numbers]


def _estimated_bytes(value: ir.Value) -> int:
    kind = TensorType.from_mlir(value.type)
    return 0 if kind is None else D.estimate_dim(kind.elements) * kind.dtype.bytes


def _read_by(op: ir.Operation) -> dict[ir.Value, None]:
    """Return the operands of an operation, and of those in its regions."""
    result = dict.fromkeys(op.operands)
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                result.update(_read_by(inner.operation))
    return result


def _outline(group: list[ir.Operation], symbols: ir.SymbolTable, module_body: ir.Block) -> None:
    """Move the group to a new function, and call it at the position of its last operation.

    It returns the values that are read elsewhere.
    """
    inside = {value for op in group for value in op.results}
    inputs = list(dict.fromkeys(v for op in group for v in op.operands if v not in inside))
    members, last = set(group), group[-1]
    results = [v for op in group for v in op.results if any(use.owner.operation not in members for use in v.uses)]
    results = results or list(last.results)
    location = ir.Location.fused([op.location for op in group])
    name = _name_of(dict.fromkeys(op.opview.callee for op in group))
    with location:
        kind = ir.FunctionType.get([v.type for v in inputs], [v.type for v in results])
        function = func.FuncOp(name, kind, visibility="private", ip=False)
        entry = function.add_entry_block()
        module_body.append(function.operation)
        symbol = ir.StringAttr(symbols.insert(function.operation)).value
        function.operation.attributes[PRIMITIVE] = ir.UnitAttr.get()
        env: dict[ir.Value, ir.Value] = dict(zip(inputs, entry.arguments, strict=True))
        with ir.InsertionPoint(entry):
            for op in group:
                copy = _copy(op, env)
                env.update(zip(op.results, copy.results, strict=True))
            func.ReturnOp([env[v] for v in results])
        with ir.InsertionPoint(last):
            call = func.CallOp([v.type for v in results], ir.FlatSymbolRefAttr.get(symbol), inputs)
    for old, new in zip(results, call.results, strict=True):
        old.replace_all_uses_with(new)
    for op in reversed(group):
        op.erase()


def _name_of(callees: Iterable[str]) -> str:
    """Return a name such as `fused_matmul_add`, truncated for a long chain."""
    name = "fused"
    for callee in callees:
        if len(name) + len(callee) > LONGEST_NAME:
            return f"{name}_and_more"
        name = f"{name}_{callee}"
    return name


def _copy(op: ir.Operation, env: dict[ir.Value, ir.Value]) -> ir.Operation:
    return clone_with(op, [env[v] for v in op.operands], op.location)


@dataclass(frozen=True)
class Recomputation:
    """A map, and the nodes that read it, in the kernels that they are in."""

    members: list[int]
    """The nodes of the map in program order; the last one has its result."""
    readers: list[list[int]]
    """The users of the result, one list per kernel."""


def select_recomputed(groups: Groups, nbytes: Sequence[int], stored: Collection[int]) -> list[Recomputation]:
    """Return maps to compute again in each reader, none of which reads another; those that end at `stored` are not."""
    selected: list[Recomputation] = []
    taken: set[int] = set()
    joined = {i: members for members in join_siblings(groups, nbytes) for i in members}
    for members in _maps(groups):
        last = groups.nodes[members[-1]]
        if last.index in stored or last.escapes or taken.intersection(last.users):
            continue
        by_kernel: dict[int, list[int]] = {}
        for user in last.users:
            by_kernel.setdefault(groups.find(user), []).append(user)
        if len(by_kernel) < 2 or not all(_takes_elements(groups, user) for user in last.users):
            continue
        read, (result,) = read_values(groups, members), last.makes
        kernels = {tuple(joined.get(user, groups.inside[groups.find(user)])) for user in last.users}
        once = sum(nbytes[value] for value in read) + (1 + len(kernels)) * nbytes[result]
        again = sum(nbytes[v] for kernel in kernels for v in read - read_values(groups, kernel))
        if again < once:
            selected.append(Recomputation(members, list(by_kernel.values())))
            taken.update(members)
    return selected


def _maps(groups: Groups) -> Iterator[list[int]]:
    """Yield the kernels that are cheap elementwise maps, the last one first."""
    for node in reversed(groups.nodes):
        members = groups.inside[groups.find(node.index)]
        if node.kind > FusionKind.BROADCAST or node.index != max(members):
            continue
        if all(groups.nodes[i].is_cheap and groups.nodes[i].kind <= FusionKind.BROADCAST for i in members):
            yield sorted(members)


def _takes_elements(groups: Groups, user: int) -> bool:
    """Return whether a node computes elements of its operands where it reads them."""
    kind = groups.nodes[user].kind
    return kind <= FusionKind.INJECTIVE or kind in TAKES_ELEMENTS
