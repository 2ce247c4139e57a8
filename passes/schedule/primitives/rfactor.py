"""The schedule primitive `rfactor`: a reduction in two stages, of which the first has independent partial results."""

from __future__ import annotations

from dataclasses import replace as changed

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.index_expr import loop_index
from mirlo.dialects.tir.view import BlockView
from mirlo.passes.schedule.blocks.combine import KINDS
from mirlo.passes.schedule.primitives.blocks import insert_nest, nest_of
from mirlo.passes.schedule.primitives.loops import unique_loop_name
from mirlo.passes.schedule.primitives.tree import (
    BlockLeaf,
    BufferAccess,
    Loop,
    Root,
    ScheduleBuffer,
    ScheduleError,
    TreeBlock,
    around,
    axis_name,
    leaves_of,
    replace,
    set_children,
)

_BLOCK = """
func.func private @combine(%x: tensor<{whole}>) -> tensor<{result}> attributes {{tir.prim_func}} {{
  %y = "tir.block"(%x) ({{
  ^bb0({indices}, %value: {element}, %total: {element}):
    %next = {op} %total, %value : {element}
    "tir.yield"(%next) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : ({element}) -> ()
  }}) {{axes = [{axes}], domain = [{domain}], init = [{init}], name = "combine",
    maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({kept})>],
    operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
    resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : (tensor<{whole}>) -> tensor<{result}>
  return %y : tensor<{result}>
}}
"""


def rfactor(root: Root, leaf: BlockLeaf, loop: Loop) -> BlockLeaf:
    """Compute a partial result in each iteration of a loop of a reduction, and insert a block that combines them.

    Return the block with the partial results. The other one keeps the name.
    """
    sizes = [size for access in leaf.writes for size in (*access.buffer.shape, loop.extent)]
    if not all(isinstance(size, int) for size in sizes):
        raise ScheduleError(
            f"rfactor: '{leaf.name}' or '{loop.name}' has a size that only the run time knows; accumulate, with a loop "
            "of the reduction vectorized or unrolled, makes partial results in registers"
        )
    op = _combining(leaf)
    if loop not in around(leaf) or loop.name not in leaf.reduce_loops():
        raise ScheduleError(f"rfactor: '{loop.name}' is not a loop of the reduction '{leaf.name}'")
    (written,) = leaf.writes
    buffer, name = written.buffer, leaf.name
    nest = _require_room(leaf)
    shape = (*buffer.shape, loop.extent)
    partial = ScheduleBuffer(f"{buffer.name}_rf", shape, buffer.element, order=tuple(range(len(shape))))
    if any(other.name == partial.name for other in root.buffers):
        raise ScheduleError(f"rfactor: '{name}' has partial results already")
    root.buffers.append(partial)
    axes = [loop_index(axis_name(i)) for i in range(len(shape))]
    block = TreeBlock((*("spatial",) * len(buffer.shape), "reduce"), shape, _combine(root, leaf, op, shape))
    reads, writes = [BufferAccess(partial, list(axes))], [BufferAccess(buffer, axes[:-1])]
    combined = BlockLeaf(name, block, reads, writes, [])
    if nest is not None:
        _insert_after(leaf, nest, combined)
    leaf.name = f"{name}_rf"
    leaf.at = [*leaf.at, loop_index(loop.name)]
    leaf.block = TreeBlock((*leaf.kinds, "spatial"), (*leaf.domain, loop.extent), leaf.view)
    leaf.writes = [changed(written, buffer=partial, at=[*written.at, loop_index(axis_name(len(leaf.at) - 1))])]
    if nest is None:
        insert_nest(nest_of(root, combined), leaf)
    return leaf


def _require_room(leaf: BlockLeaf) -> Loop | None:
    """Return the outermost loop of a reduction that shares its loops with other blocks; None if it has its own.

    The others may use the result in the same iteration: partial results are combined right after that loop.
    """
    chain = around(leaf)
    if len(leaves_of(chain[0])) == 1:
        return None
    reduced = leaf.reduce_loops()
    first = next(i for i, other in enumerate(chain) if other.name in reduced)
    inside = [other for other in chain[first:] if other.name not in reduced]
    if inside or len(leaves_of(chain[first])) > 1:
        what = f"'{inside[0].name}'" if inside else "another block"
        raise ScheduleError(
            f"rfactor: {what} is in '{chain[first].name}', a loop of the reduction '{leaf.name}', which shares its "
            "nest with other blocks: apply rfactor before moving blocks together"
        )
    return chain[first]


def _insert_after(leaf: BlockLeaf, nest: Loop, combined: BlockLeaf) -> None:
    """Insert the combination of partial results after the loops of the reduction, at the elements of this iteration."""
    reduced = leaf.reduce_loops()
    new_loop = Loop(unique_loop_name(leaf, f"{leaf.name}_combine"), combined.domain[-1])
    combined.at = [*leaf.place(leaf.writes[0]), loop_index(new_loop.name)]
    combined.guards = [(index, bound) for index, bound in leaf.guards if not index.variables() & reduced]
    set_children(new_loop, [combined])
    replace(nest, [nest, new_loop])


def _combining(leaf: BlockLeaf) -> str:
    """Return the operation that combines partial results of a reduction."""
    view = leaf.view
    if view is None or not leaf.is_reduction or not leaf.is_whole or leaf.begin is not None:
        raise ScheduleError(f"rfactor: '{leaf.name}' is not a reduction, or is decomposed already")
    if len(leaf.writes) != 1:
        raise ScheduleError(f"rfactor: '{leaf.name}' has {len(leaf.writes)} results; this is for blocks with one")
    (total,), (value,) = view.accumulators, view.yielded
    op = value.owner if isinstance(value, ir.OpResult) else None
    if op is None or op.name not in KINDS or total not in op.operands or sum(1 for _ in total.uses) != 1:
        last_op = op.name if op is not None else "its operand"
        listed = ", ".join(sorted(name.removeprefix("arith.") for name in KINDS))
        raise ScheduleError(
            f"rfactor: '{leaf.name}' ends with {last_op}: expected one of {listed} of the former result"
        )
    init = getattr(view.init[0], "value", None)
    identity = KINDS[op.name].identity(value.type)
    if init != identity:
        raise ScheduleError(
            f"rfactor: '{leaf.name}' starts from {init}, which each partial result would count: expected {identity}"
        )
    return str(op.name)


def _combine(root: Root, leaf: BlockLeaf, op: str, shape: tuple[Dim, ...]) -> BlockView:
    """Return the block that combines partial results."""
    assert leaf.view is not None
    element, rank = leaf.writes[0].buffer.element, len(shape)
    dims = [f"d{i}" for i in range(rank)]
    text = _BLOCK.format(
        whole="x".join([*map(str, shape), str(element)]), result="x".join([*map(str, shape[:-1]), str(element)]),
        element=element, op=op, indices=", ".join(f"%i{i}: index" for i in range(rank)),
        axes=", ".join(['"spatial"'] * (rank - 1) + ['"reduce"']), domain=", ".join(map(str, shape)),
        init=leaf.view.init[0], dims=", ".join(dims), kept=", ".join(dims[:-1]),
    )  # fmt: skip
    module = ir.Module.parse(text, root.view.op.context)
    root.modules.append(module)
    entry = module.body.operations[0].operation.regions[0].blocks[0]
    return BlockView(entry.operations[0])
