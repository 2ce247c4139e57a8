"""A block of operations as a plain graph of nodes and values, for pattern matching and partitioning.

Operations that nest others (control flow) are nodes that read whatever their bodies read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import cached_property, cmp_to_key
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.surgery import captured
from mirlo.dialects.core.types import TensorType
from mirlo.passes.graph.constants import constant_value
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from mirlo.passes.session import Session

CONSTANT = "relax.constant"


@dataclass(eq=False)
class BlockValue:
    """A value that a node reads or defines."""

    mlir: ir.Value
    graph: BlockGraph
    number: int = 0
    """The index of the node's result, or of the block's argument."""
    is_constant: bool = False

    @cached_property
    def node(self) -> BlockNode | None:
        """Return the node of the graph that defines it, if any."""
        return self.graph.defining_node(self)

    @cached_property
    def users(self) -> list[BlockNode]:
        """Return the nodes that read it, each once, in program order; includes the terminator of the block."""
        return self.graph.reading_nodes(self)

    @cached_property
    def type(self) -> TensorType | None:
        """Return the tensor type, or None for a value that is not a tensor of a known element type."""
        return TensorType.from_mlir(self.mlir.type)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the dims of a tensor: numbers, and symbolic ones."""
        return self.mlir.shape

    @property
    def dtype(self) -> DType:
        return self.mlir.dtype

    @property
    def is_input(self) -> bool:
        """Return whether the value comes from outside the block: an argument, or a value of an enclosing block."""
        return self.node is None and not self.is_constant

    def array(self) -> np.ndarray | None:
        """Return the elements of a constant as a numpy array; None for other values or unknown elements."""
        if not self.is_constant or self.graph.session is None:
            return None
        return constant_value(self.mlir, self.graph.session)

    @property
    def name(self) -> str:
        """Return the name used in messages."""
        if self.is_constant:
            return "a constant"
        return f"the result of {self.node.name}" if self.node is not None else "an input"


@dataclass(eq=False)
class BlockNode:
    """An operation of the block that is not a constant."""

    index: int
    op: ir.Operation
    name: str
    operands: list[BlockValue]
    results: list[BlockValue] = field(default_factory=list)
    is_pure: bool = True
    after: BlockNode | None = None
    """For a node with effects, the previous one with effects: their order is preserved."""
    followed_by: BlockNode | None = None
    is_terminator: bool = False

    @property
    def type(self) -> TensorType | None:
        """Return the type of the first result."""
        return self.results[0].type if self.results else None

    @property
    def users(self) -> list[BlockNode]:
        """Return the nodes that read any of its results."""
        if len(self.results) == 1:
            return self.results[0].users
        return list(dict.fromkeys(user for value in self.results for user in value.users))

    def attribute(self, name: str) -> Any:
        """Return an attribute as a Python value; raises AttributeError if the operator has none of this name."""
        return getattr(self.op.opview, name)

    def operand(self, name: str) -> BlockValue | None:
        """Return the operand declared by this name, or None if it is absent."""
        operand = getattr(self.op.opview, name)
        if operand is None:
            return None
        return next(value for value in self.operands if value.mlir == operand)

    def __str__(self) -> str:
        return f"{self.name} #{self.index}"


class BlockGraph:
    """The nodes of a block in program order, with reachability masks in which bit i is node i."""

    def __init__(
        self, block: ir.Block, session: Session | None = None, is_pure: Callable[[ir.Operation], bool] = is_pure_relax
    ):
        self.block = block
        self.session = session
        self.nodes: list[BlockNode] = []
        self.values: dict[ir.Value, BlockValue] = {}
        self._is_pure = is_pure
        self._last_effect: BlockNode | None = None
        self._read()

    def _read(self) -> None:
        for op in self.block.operations:
            operation = op.operation
            if operation.name == CONSTANT:
                result = operation.results[0]
                self.values[result] = BlockValue(result, self, is_constant=True)
                continue
            self._add(operation)
        if self.nodes:
            self.nodes[-1].is_terminator = True
            self._let_escape()

    def _let_escape(self) -> None:
        """Treat values that other blocks read as read by the terminator."""
        region, end = self.block.region, self.nodes[-1]
        if len(region.blocks) < 2:
            return
        others = {value for block in region.blocks if block != self.block for value in read_in(block)}
        for node in self.nodes:
            for value in node.results:
                if value.mlir in others and end not in value.users:
                    value.users.append(end)

    def _add(self, op: ir.Operation) -> BlockNode:
        node = self._node(op)
        if not node.is_pure:
            node.after = self._last_effect
            if self._last_effect is not None:
                self._last_effect.followed_by = node
            self._last_effect = node
        for value in dict.fromkeys(node.operands):
            value.users.append(node)
        return node

    def _node(self, op: ir.Operation) -> BlockNode:
        read = dict.fromkeys(op.operands) if len(op.regions) else None
        if read is not None:
            read.update(dict.fromkeys(captured(op)))
        operands = [self._value(v) for v in (op.operands if read is None else read)]
        node = BlockNode(len(self.nodes), op, op.name, operands, is_pure=self._is_pure(op))
        for number, result in enumerate(op.results):
            value = self._value(result)
            value.number, value.node = number, node
            node.results.append(value)
        self.nodes.append(node)
        return node

    def _value(self, mlir: ir.Value) -> BlockValue:
        result = self.values.get(mlir)
        if result is None:
            constant = isinstance(mlir, ir.OpResult) and mlir.owner.name == CONSTANT
            number = mlir.arg_number if isinstance(mlir, ir.BlockArgument) else 0
            result = self.values[mlir] = BlockValue(mlir, self, number, constant)
        return result

    def defining_node(self, value: BlockValue) -> BlockNode | None:
        """Return the node that defines a value: none, as values of nodes have theirs since the graph was read."""
        return None

    def reading_nodes(self, value: BlockValue) -> list[BlockNode]:
        """Return the nodes that read a value: none yet, each is added when it is read."""
        return []

    def node_of(self, op: ir.Operation) -> BlockNode:
        """Return the node of an operation with results."""
        node = self.values[op.results[0]].node
        assert node is not None, f"{op.name} is no node"
        return node

    @cached_property
    def successors(self) -> list[int]:
        """Return for each node the mask of its readers."""
        return [mask_of(node.users) | mask_of(filter(None, [node.followed_by])) for node in self.nodes]

    @cached_property
    def ancestors(self) -> list[int]:
        """Return for each node the mask of nodes that it depends on, directly or not."""
        result: list[int] = []
        for node in self.nodes:
            mask = 0
            for value in node.operands:
                if value.node is not None:
                    mask |= result[value.node.index] | 1 << value.node.index
            if node.after is not None:
                mask |= result[node.after.index] | 1 << node.after.index
            result.append(mask)
        return result

    @cached_property
    def descendants(self) -> list[int]:
        """Return for each node the mask of nodes that depend on it, directly or not."""
        result = [0] * len(self.nodes)
        for node in reversed(self.nodes):
            mask = self.successors[node.index]
            for index in bits(mask):
                mask |= result[index]
            result[node.index] = mask
        return result

    def between(self, mask: int) -> int:
        """Return the nodes outside a set on paths from the set into it; 0 if the set is convex."""
        above = below = 0
        for index in bits(mask):
            above |= self.ancestors[index]
            below |= self.descendants[index]
        return above & below & ~mask

    def members(self, mask: int) -> list[BlockNode]:
        """Return the nodes of a set in program order."""
        return [self.nodes[index] for index in bits(mask)]


class OperandGraph(BlockGraph):
    """A graph of a block that is read on demand: an operation, its operands, and its readers.

    Nodes are numbered in the order in which they are read. There is no order of effects and no reachability.
    """

    def _read(self) -> None:
        """Read nothing yet."""

    def node_of(self, op: ir.Operation) -> BlockNode:
        known = self.values.get(op.results[0]) if len(op.results) else None
        return known.node if known is not None and known.node is not None else self._node(op)

    def defining_node(self, value: BlockValue) -> BlockNode | None:
        if value.is_constant or not isinstance(value.mlir, ir.OpResult):
            return None
        op = value.mlir.owner.operation
        return self._node(op) if op.block == self.block else None

    def reading_nodes(self, value: BlockValue) -> list[BlockNode]:
        readers: list[ir.Operation] = []
        for use in value.mlir.uses:
            reader = self._enclosing(use.owner.operation)
            if reader not in readers:
                readers.append(reader)
        return [self._reader(op) for op in sorted(readers, key=_PROGRAM_ORDER)]

    def members(self, mask: int) -> list[BlockNode]:
        return sorted(super().members(mask), key=lambda node: _PROGRAM_ORDER(node.op))

    def _enclosing(self, op: ir.Operation) -> ir.Operation:
        """Return the operation of this block that contains one; the terminator for one in another block."""
        while op.block != self.block:
            parent = op.parent
            if parent is None or parent.operation == self.block.owner.operation:
                return self.block.operations[len(self.block.operations) - 1].operation
            op = parent.operation
        return op

    def _reader(self, op: ir.Operation) -> BlockNode:
        if len(op.results):
            return self.node_of(op)
        known = next((node for node in self.nodes if node.op == op), None)
        return known if known is not None else self._node(op)


def _compare(left: ir.Operation, right: ir.Operation) -> int:
    return 0 if left == right else -1 if left.is_before_in_block(right) else 1


_PROGRAM_ORDER = cmp_to_key(_compare)


def mask_of(nodes: Iterable[BlockNode]) -> int:
    mask = 0
    for node in nodes:
        mask |= 1 << node.index
    return mask


def bits(mask: int) -> Iterator[int]:
    """Return the positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def read_in(block: ir.Block) -> Iterator[ir.Value]:
    """Return the values that the operations of a block read, including nested ones."""
    for op in block.operations:
        yield from op.operation.operands
        for region in op.operation.regions:
            for inner in region.blocks:
                yield from read_in(inner)


class QuotientGraph:
    """A partition of a graph's nodes; every node starts as a group of its own."""

    def __init__(self, graph: BlockGraph):
        self.graph = graph
        self.mask_of = [1 << node.index for node in graph.nodes]
        """The mask of each node's group."""

    def closure(self, mask: int) -> int:
        """Return the union of the groups of a set's nodes."""
        result = 0
        for index in bits(mask):
            result |= self.mask_of[index]
        return result

    def path_back(self, mask: int) -> BlockNode | None:
        """Return a node outside a set on a path that leaves and re-enters the set, or None.

        The set can become one group exactly if there is none.
        """
        mask = self.closure(mask)
        pending = self._followers(mask) & ~mask
        seen = pending
        while pending:
            index = (pending & -pending).bit_length() - 1
            group = self.mask_of[index]
            pending &= ~group
            followers = self._followers(group)
            if followers & mask:
                return self.graph.nodes[index]
            fresh = followers & ~seen & ~group
            seen |= group | fresh
            pending |= fresh
        return None

    def join(self, mask: int) -> None:
        """Merge the groups of these nodes."""
        mask = self.closure(mask)
        for index in bits(mask):
            self.mask_of[index] = mask

    def leave(self, mask: int) -> None:
        """Split a whole group into single nodes."""
        for index in bits(mask):
            self.mask_of[index] = 1 << index

    def order(self) -> list[BlockNode]:
        """Return a topological order in which groups are contiguous and that otherwise keeps program order."""
        groups = {mask: i for i, mask in enumerate(dict.fromkeys(self.mask_of))}
        waiting = [0] * len(groups)
        followers: list[set[int]] = []
        for mask in groups:
            after = {groups[self.mask_of[i]] for i in bits(self._followers(mask) & ~mask)}
            followers.append(after)
            for group in after:
                waiting[group] += 1
        masks = list(groups)
        ready = [(mask.bit_length(), group) for mask, group in groups.items() if not waiting[group]]
        heapq.heapify(ready)
        ordered: list[BlockNode] = []
        while ready:
            _, group = heapq.heappop(ready)
            ordered += self.graph.members(masks[group])
            for follower in followers[group]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    heapq.heappush(ready, (masks[follower].bit_length(), follower))
        if len(ordered) != len(self.graph.nodes):
            raise AssertionError("the groups form a cycle")
        return ordered

    def _followers(self, mask: int) -> int:
        result = 0
        for index in bits(mask):
            result |= self.graph.successors[index]
        return result
