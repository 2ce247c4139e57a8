"""Schedule primitives on buffers: the memory that they are in, and the order of their elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.index_expr import floor_divide, modulo
from mirlo.passes.schedule.primitives.kernels import require_scope
from mirlo.passes.schedule.primitives.loops import MAX_ITERATIONS
from mirlo.passes.schedule.primitives.memory import memory_accesses
from mirlo.passes.schedule.primitives.tree import (
    BlockLeaf,
    BufferAccess,
    Root,
    ScheduleBuffer,
    ScheduleError,
    axis_name,
)
from mirlo.passes.schedule.stored import PackedOrder

MAX_COPIES = 256
"""Most copies of a buffer."""


def set_scope(root: Root, buffer: str, scope: str) -> None:
    """Set the memory of a buffer."""
    target = _own_buffer(root, "set_scope", buffer, "set the scope of a copy of it (cache_write)")
    require_scope(root, "set_scope", buffer, scope)
    target.scope = scope


def pack(root: Root, buffer: str, order: Sequence[int], tiles: Sequence[Sequence[int]]) -> None:
    """Set the order of the dims of a buffer in memory, with tiled dims."""
    target = root.find_buffer(buffer)
    own = enumerate(() if target.value is None else root.view.arguments)
    argument = next((at for at, value in own if value == target.value), None)
    stored = next((each for each in root.stored if each.argument == argument), None)
    if stored is not None:
        # A pass before this has stored it: its dims are those of that memory.
        wanted = tuple(order) or tuple(sorted(stored.order)), tuple(map(tuple, tiles))
        if wanted != (stored.order, stored.tiles):
            raise ScheduleError(f"pack: '{buffer}' is stored in order {stored.order} with tiles {stored.tiles} already")
        return
    if argument is None:
        target = _own_buffer(root, "pack", buffer, "pack a copy of it (cache_read)")
    _require_affine_reads(root, "pack", target)
    rank = len(target.shape)
    if order and sorted(order) != list(range(rank)):
        raise ScheduleError(f"pack: expected an order of the {rank} dims of '{buffer}', found {list(order)}")
    if any(len(tile) != 2 or not 0 <= tile[0] < rank or tile[1] < 1 for tile in tiles):
        raise ScheduleError(f"pack: expected tiles as (dim, size), found {list(tiles)}")
    if any(size > MAX_ITERATIONS for _, size in tiles):
        raise ScheduleError(f"pack: expected tiles of at most {MAX_ITERATIONS} elements, found {list(tiles)}")
    if target.padding is not None:
        raise ScheduleError(f"pack: the rows of '{buffer}' are padded (storage_align), which comes after pack")
    if argument is not None:
        _store_packed(root, argument, target, tuple(order) or target.order, {dim: size for dim, size in tiles})
        return
    target.order = tuple(order) or target.order
    target.tiles = {dim: size for dim, size in tiles}


def _store_packed(
    root: Root, argument: int, buffer: ScheduleBuffer, order: Sequence[int], tiles: Mapping[int, int]
) -> None:
    """Make blocks read a parameter as it is stored, with the dims of that memory."""
    _require_no_rule(root, "pack", buffer)
    if buffer.packed is not None:
        raise ScheduleError(f"pack: '{buffer.name}' is packed already")
    reads = [(block, access) for leaf in root.leaves() for block, access in _accesses(leaf) if access.buffer is buffer]
    if any(access.outside is not None for _, access in reads):
        raise ScheduleError(f"pack: '{buffer.name}' is read beyond its edges; pack a copy of it (cache_read)")
    if not all(isinstance(size, int) for size in buffer.shape):
        raise ScheduleError(f"pack: '{buffer.name}' is a parameter of a size that only the run time knows")
    tiled = [dim for dim in order if dim in tiles]
    for block, access in reads:
        at, extents = access.at, {axis_name(axis): extent for axis, extent in enumerate(block.domain)}
        outer = [floor_divide(at[dim], tiles[dim], extents) if dim in tiles else at[dim] for dim in order]
        access.at = outer + [modulo(at[dim], tiles[dim], extents) for dim in tiled]
    buffer.packed = PackedOrder(argument, tuple(order), tuple(tiles.items()))
    buffer.shape = tuple(D.ceildiv(buffer.shape[dim], tiles.get(dim, 1)) for dim in order)
    buffer.shape += tuple(tiles[dim] for dim in tiled)
    buffer.order = tuple(range(len(buffer.shape)))


def _accesses(block: BlockLeaf) -> Iterator[tuple[BlockLeaf, BufferAccess]]:
    """Yield the reads of a block, of those inlined in it, and of those computed on its results, with their blocks."""
    for access in block.reads:
        if access.inlined is None:
            yield block, access
        else:
            yield from _accesses(access.inlined)
    for after in block.epilogue:
        yield from _accesses(after)


def storage_align(root: Root, buffer: str, dim: int, factor: int, offset: int) -> None:
    """Pad the rows of a buffer, so that the stride of a dim is a multiple of a factor, plus an offset."""
    target = _own_buffer(root, "storage_align", buffer, "align a copy of it (cache_read)")
    _require_affine_reads(root, "storage_align", target)
    rank = len(target.shape)
    if target.tiles or rank < 2 or dim != target.order[-2]:
        expected = (
            f"dim {target.order[-2]} of '{buffer}'" if rank > 1 and not target.tiles else "two dims without tiles"
        )
        raise ScheduleError(f"storage_align: expected {expected}, whose rows are next to one another, found dim {dim}")
    if factor < 1 or not 0 <= offset < factor:
        raise ScheduleError(
            f"storage_align: expected a factor of 1 or more and an offset below it, found {factor} and {offset}"
        )
    if factor > MAX_ITERATIONS:
        raise ScheduleError(f"storage_align: expected a factor of at most {MAX_ITERATIONS}, found {factor}")
    target.padding = (factor, offset)


def double_buffer(root: Root, buffer: str, copies: int) -> None:
    """Set how many tiles of a buffer an accelerator holds at a time."""
    target = _own_buffer(root, "double_buffer", buffer, "keep copies of tiles of it (cache_read)")
    if not 1 <= copies <= MAX_COPIES:
        raise ScheduleError(f"double_buffer: expected 1 to {MAX_COPIES} copies of '{buffer}', found {copies}")
    target.copies = copies


def _require_affine_reads(root: Root, word: str, buffer: ScheduleBuffer) -> None:
    """Require that no block computes the indices of its reads of a buffer, which assume row-major order."""
    for leaf in root.leaves():
        if any(access.buffer is buffer and access.is_opaque for access in memory_accesses(leaf)):
            raise ScheduleError(
                f"{word}: '{leaf.name}' reads '{buffer.name}' at indices from data, which are those of row-major "
                f"order; {word} a copy that only other blocks read (cache_read)"
            )


def _own_buffer(root: Root, word: str, name: str, instead: str) -> ScheduleBuffer:
    """Return a buffer whose memory primitives may choose: no parameter, and of no rule."""
    target = root.find_buffer(name)
    if target.is_parameter:
        raise ScheduleError(f"{word}: '{name}' is a parameter; {instead}")
    _require_no_rule(root, word, target)
    return target


def _require_no_rule(root: Root, word: str, buffer: ScheduleBuffer) -> None:
    """Require that no rule of the target schedules a block that uses a buffer."""
    ruled = [leaf for leaf in root.leaves() if leaf.rule and leaf.touches(buffer)]
    if ruled:
        raise ScheduleError(f"{word}: rule '{ruled[0].rule}' schedules '{ruled[0].name}', which uses '{buffer.name}'")
