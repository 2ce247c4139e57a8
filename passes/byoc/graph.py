"""A block of operations as a plain graph of nodes and values, for pattern matching and partitioning.

Operations that nest others (control flow) are nodes that read whatever their bodies read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.surgery import captured
from mirlo.dialects.core.types import TensorType
from mirlo.passes.graph.dce import is_pure_relax

if TYPE_CHECKING:
    import numpy as np

    from mirlo.passes.session import Session

CONSTANT = "relax.constant"


@dataclass(eq=False)
class BlockValue:
    """A value that a node reads or defines."""

    mlir: ir.Value
    node: BlockNode | None = None
    """The node of the graph that defines it, if any."""
    number: int = 0
    """The index of the node's result, or of the block's argument."""
    is_constant: bool = False
    users: list[BlockNode] = field(default_factory=list)
    """The nodes that read it, each once, in program order; includes the terminator of the block."""
    graph: BlockGraph | None = None

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
        if not self.is_constant or self.graph is None or self.graph.session is None:
            return None
        from mirlo.passes.graph.constants import constant_value

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
        found = getattr(self.op.opview, name)
        if found is None:
            return None
        return next(value for value in self.operands if value.mlir == found)

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
        for op in block.operations:
            operation = op.operation
            if operation.name == CONSTANT:
                result = operation.results[0]
                self.values[result] = BlockValue(result, is_constant=True, graph=self)
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

    def _add(self, op: ir.Operation) -> None:
        read = dict.fromkeys(op.operands) if len(op.regions) else None
        if read is not None:
            read.update(dict.fromkeys(captured(op)))
        node = BlockNode(
            len(self.nodes), op, op.name, [self._value(v) for v in (op.operands if read is None else read)]
        )
        if not self._is_pure(op):
            node.is_pure, node.after = False, self._last_effect
            if self._last_effect is not None:
                self._last_effect.followed_by = node
            self._last_effect = node
        for value in dict.fromkeys(node.operands):
            value.users.append(node)
        for number, result in enumerate(op.results):
            made = BlockValue(result, node, number, graph=self)
            self.values[result] = made
            node.results.append(made)
        self.nodes.append(node)

    def _value(self, mlir: ir.Value) -> BlockValue:
        result = self.values.get(mlir)
        if result is None:
            constant = isinstance(mlir, ir.OpResult) and mlir.owner.name == CONSTANT
            number = mlir.arg_number if isinstance(mlir, ir.BlockArgument) else 0
            result = self.values[mlir] = BlockValue(mlir, number=number, is_constant=constant, graph=self)
        return result

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
