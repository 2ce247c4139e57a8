"""Tiles of buffers that stand for the parameters of a tensor intrinsic."""

from __future__ import annotations

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.index_expr import IndexExpr, contiguous_strides
from mirlo.dialects.core.surgery import attributes_of
from mirlo.dialects.core.value import Value, create
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.passes.schedule.primitives.memory import Placed
from mirlo.passes.schedule.primitives.tree import ScheduleBuffer, ScheduleError
from mirlo.runtime.records import dataclass

CALL = "tir.call_extern"


@dataclass(frozen=True)
class BufferTile:
    """The part of a buffer that stands for a parameter of an intrinsic."""

    buffer: ScheduleBuffer
    start: list[IndexExpr]
    """Where it begins, in the dims of the buffer."""
    dims: list[int]
    """The dims of the buffer that the parameter has."""
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(str, self.start))}]"

    def check_packed(self, memory: Placed, name: str) -> None:
        """Require that the elements of a packed buffer are where strides lead."""
        for dim, extent in zip(self.dims, self.shape, strict=True):
            packed = self.buffer.tiles.get(dim)
            if packed is None:
                continue
            first = self.start[dim] - memory.start[dim]
            whole = all(count % extent == 0 for count in (first.constant, *first.terms.values()))
            if packed % extent or not whole:
                raise ScheduleError(
                    f"tensorize: '{name}' takes {extent} elements of dim {dim} of '{self.buffer.name}', which is "
                    f"packed in tiles of {packed}: they would not be evenly spaced"
                )

    def places(self) -> list[int]:
        """Return the dim in memory for each dim of the parameter."""
        tiled = [dim for dim in self.buffer.order if dim in self.buffer.tiles]
        outer = list(self.buffer.order)
        return [len(outer) + tiled.index(dim) if dim in tiled else outer.index(dim) for dim in self.dims]


@dataclass(frozen=True)
class TileArgument:
    """A tile in memory."""

    buffer: ir.Value
    origin: list[ir.Value]
    """Where it begins, in the dims of the memory."""
    dims: list[int]
    shape: tuple[Dim, ...]
    """The dims of the memory; all but the slowest are numbers."""
    is_flat: bool = False
    """Whether the memory has one dim for all of these."""

    def at(self, indices: list[ir.Value]) -> list[ir.Value]:
        result = list(self.origin)
        for dim, index in zip(self.dims, indices, strict=True):
            result[dim] = Value(result[dim]) + index
        if not self.is_flat:
            return result
        *outer, last = [Value(index) * stride for index, stride in zip(result, self._all_strides, strict=True)]
        for part in outer:
            last = last + part
        return [last]

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the elements between neighbours in each dim of the parameter."""
        return tuple(self._all_strides[dim] for dim in self.dims)

    @property
    def _all_strides(self) -> list[int]:
        """Return the stride of each dim of the memory."""
        return [static_dim(stride) for stride in contiguous_strides(self.shape)]

    def pointer(self) -> ir.Value:
        """Emit the address of the first element."""
        place = Value(memref.ExtractAlignedPointerAsIndexOp(self.buffer).result)
        size = element_bytes(self.buffer.type.element_type)
        for index, stride in zip(self.origin, self._all_strides, strict=True):
            place = place + Value(index) * (stride * size)
        address = place.cast(ir.IntegerType.get_signless(64))
        return create("llvm.inttoptr", ir.Type.parse("!llvm.ptr"), address)


def clone_on_tiles(
    name: str, block: ir.Block, arguments: dict[ir.Value, TileArgument], env: dict[ir.Value, ir.Value]
) -> None:
    """Clone operations on tiles: loads and stores are redirected, calls take the addresses of tiles."""
    for op in [o.operation for o in block.operations]:
        if op.name == "func.return":
            continue
        touched = [value for value in op.operands if value in arguments]
        attributes = attributes_of(op)
        types = [result.type for result in op.results]
        if not touched:
            operands = [env.get(value, value) for value in op.operands]
        elif op.name == CALL or op.name in OWN:
            operands = [arguments[v].pointer() if v in arguments else env.get(v, v) for v in op.operands]
        else:
            at = 1 if op.name in ("memref.store", "vector.store") else 0
            if op.name not in ("memref.load", "memref.store", "vector.load", "vector.store"):
                raise ScheduleError(
                    f"tensorize: '{name}' hands a parameter to '{op.name}': tiles are for loads, stores, T.call_extern "
                    "and T.call_intrin"
                )
            argument = arguments[op.operands[at]]
            rest = [env.get(value, value) for value in list(op.operands)[at + 1 :]]
            stored = [env.get(op.operands[0], op.operands[0])] if at else []
            operands = [*stored, argument.buffer, *argument.at(rest)]
        new_op = ir.Operation.create(
            op.name, results=types, operands=operands, attributes=attributes, regions=len(op.regions)
        )
        env.update(zip(op.results, new_op.results, strict=True))
        for old, new in zip(op.regions, new_op.regions, strict=True):
            for inner in old.blocks:
                copy = new.blocks.append(*(argument.type for argument in inner.arguments))
                env.update(zip(inner.arguments, copy.arguments, strict=True))
                with ir.InsertionPoint(copy):
                    clone_on_tiles(name, inner, arguments, env)
