"""Class `LoopQueries`: the loops and blocks of a prim function, by their names."""

from __future__ import annotations

from functools import cached_property

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.schedule.blocks.instance import BlockInstance
from mirlo.passes.schedule.buffers import TARGET
from mirlo.passes.schedule.primitives.analysis import instances_of
from mirlo.passes.schedule.primitives.contiguity import (
    contiguous_loops,
    divisors,
    is_beyond_edge,
    memory_order,
    strides,
)
from mirlo.passes.schedule.primitives.kernels import tree_target
from mirlo.passes.schedule.primitives.loops import block_that_runs_once
from mirlo.passes.schedule.primitives.partition import change_points
from mirlo.passes.schedule.primitives.tree import Root, ScheduleBuffer, ScheduleError, around, build, leaves_of


class LoopQueries:
    """Queries on the loops of a prim function, and on the buffers that its blocks read."""

    def __init__(self, function: ir.OpView | ir.Operation | PrimView) -> None:
        self._function = function
        self.is_closed = False
        """Whether a compilation may have erased the function: nothing reads it any more."""

    def __str__(self) -> str:
        from mirlo.passes.schedule.primitives.show import show  # for what is printed

        return show(self._root)

    @property
    def target(self) -> str:
        """Return the target that the function is scheduled for; empty if it is not known."""
        attributes = self._view.op.attributes
        return ir.StringAttr(attributes[TARGET]).value if TARGET in attributes else ""

    def require_open(self) -> None:
        """Require that the function of the schedule is there."""
        if self.is_closed:
            raise ScheduleError(
                "the loops of this schedule are emitted, or it was for the call of a function; its trace can be "
                "replayed on another schedule"
            )

    @property
    def view(self) -> PrimView:
        """Return the function that is scheduled, in tensor form."""
        return self._view

    def may_repeat(self, loop: str) -> bool:
        """Return whether tiles of a loop may overlap, as aligned ones do: no element depends on what was there."""
        return block_that_runs_once(self._root.find_loop(loop)) is None

    @property
    def buffers_of_tree(self) -> list[ScheduleBuffer]:
        """Return the parameters, intermediate values and copies."""
        return list(self._root.buffers)

    @cached_property
    def _view(self) -> PrimView:
        return self._function if isinstance(self._function, PrimView) else PrimView(self._function)

    @cached_property
    def _root(self) -> Root:
        # Built for the first primitive that needs it: rules also schedule functions whose loops have dynamic sizes.
        self.require_open()
        root = build(self._view)
        root.target = tree_target(self.target)
        return root

    def blocks(self, loop: str | None = None) -> list[str]:
        """Return the names of the blocks, in order; of those in a loop if it is named."""
        return [leaf.name for leaf in leaves_of(self._root if loop is None else self._root.find_loop(loop))]

    def change_points(self, loop: str) -> list[int]:
        """Return the iterations of a loop at which a condition on an index changes, for `partition`.

        Such conditions are those of elements beyond edges, and of the bodies of blocks.
        """
        return change_points(self._root.find_loop(loop))

    def loops(self, block: str) -> list[str]:
        """Return the names of the loops around a block, outermost first."""
        return [loop.name for loop in around(self._root.find_leaf(block))]

    def extent(self, loop: str) -> Dim:
        """Return the number of iterations of a loop; a dim if only the run time knows it."""
        return self._root.find_loop(loop).extent

    def kinds(self, block: str) -> dict[str, str]:
        """Return for each loop around a block whether it is a `spatial` or a `reduce` loop of the block."""
        leaf = self._root.find_leaf(block)
        reduced = leaf.reduce_loops()
        return {loop.name: "reduce" if loop.name in reduced else "spatial" for loop in around(leaf)}

    def contiguous_loops(self, block: str, last: str | None = None) -> list[str]:
        """Return the innermost loops of a block that are contiguous together in all accesses, outermost first.

        `fuse` makes one loop of them without divisions. There are none if the innermost loop skips elements. With
        `last`, they end with that loop, and may skip elements evenly.
        """
        innermost = None if last is None else self._root.find_loop(last)
        return [loop.name for loop in contiguous_loops(self._root.find_leaf(block), innermost)]

    def memory_order(self, block: str) -> list[str]:
        """Return the loops around a block in the order of its result in memory, then those of its reduction."""
        return [loop.name for loop in memory_order(self._root.find_leaf(block))]

    def strides(self, block: str, loop: str) -> tuple[list[Dim | None], list[Dim | None]]:
        """Return by how many elements the reads and the writes of a block move in memory along a loop.

        None where that is not the same in each iteration. Operands that the body reads by itself are left out, and so
        are results that are not stored.
        """
        return strides(self._root.find_leaf(block), loop)

    def beyond_edges(self, block: str) -> dict[str, list[int]]:
        """Return the dims of buffers along which a block reads beyond their edges."""
        leaf = self._root.find_leaf(block)
        dims = {
            access.buffer.name: [dim for dim in range(len(access.at)) if is_beyond_edge(access, dim, leaf)]
            for access in leaf.reads
            if access.outside is not None
        }
        return {name: beyond for name, beyond in dims.items() if beyond}

    def divisors(self, block: str, uneven: bool = False) -> dict[str, int]:
        """Return loops that indices of a block divide evenly, and the divisors, by which to split them."""
        return divisors(self._root.find_leaf(block), uneven)

    def instances(self, block: str) -> list[BlockInstance]:
        """Return the bodies that a block computes, as expressions of the loops, for the analyses of rules."""
        return instances_of(self._root.find_leaf(block))

    def block_of(self, block: BlockView) -> str:
        """Return the name of a block of the prim function, also of one that is computed with another one."""
        leaves = [each for leaf in leaves_of(self._root) for each in (leaf, *leaf.epilogue)]
        return next(leaf.name for leaf in leaves if leaf.view is not None and leaf.view.op == block.op)

    def is_limited(self, block: str) -> bool:
        """Return whether iterations of the loops around a block are past the end of a loop, for `clamp`."""
        return bool(self._root.find_leaf(block).guards)

    def reads(self, block: str) -> list[str]:
        """Return the names of the buffers that a block reads, in the order of its operands."""
        return [access.buffer.name for access in self._root.find_leaf(block).reads]

    def buffer_of(self, value: ir.Value) -> str:
        """Return the name of the buffer of a tensor value of the prim function."""
        return next(buffer.name for buffer in self._root.buffers if buffer.value == value)

    def buffers(self) -> list[str]:
        """Return the names of all buffers."""
        return [buffer.name for buffer in self._root.buffers]
