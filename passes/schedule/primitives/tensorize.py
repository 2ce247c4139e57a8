"""Tensor intrinsics: hardware instructions that compute a block of fixed size.

Tiles of buffers stand for the parameters of an intrinsic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.dims import Dim, static_dim
from mirlo.dialects.core.index_expr import IndexExpr, contiguous_strides, loop_index
from mirlo.dialects.core.surgery import attributes_of
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.value import Value, create
from mirlo.dialects.tir.buffers import element_bytes
from mirlo.dialects.tir.own_intrinsics import OWN
from mirlo.dialects.tir.view import BlockView, PrimTemplate, PrimView, is_tensor_form
from mirlo.passes.schedule.primitives.index import LoopValues
from mirlo.passes.schedule.primitives.memory import Placed, PlacedBuffers
from mirlo.passes.schedule.primitives.regions import split_by
from mirlo.passes.schedule.primitives.tree import (
    Accumulation,
    BlockLeaf,
    BufferAccess,
    Loop,
    LoopIntrinsic,
    Root,
    ScheduleBuffer,
    ScheduleError,
    around,
    build,
    leaves_of,
    loops_of,
)
from mirlo.runtime.errors import nearest
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


class ScriptParameter(Protocol):
    """A parameter of a prim function in script."""

    @property
    def name(self) -> str: ...

    @property
    def is_output(self) -> bool: ...

    @property
    def shape(self) -> Sequence[Any]: ...

    @property
    def dtype(self) -> Any: ...


class PrimScript(PrimTemplate, Protocol):
    """A `@mirlo.prim_func`."""

    @property
    def parameters(self) -> Sequence[ScriptParameter]: ...

    @property
    def is_template(self) -> bool: ...

    @property
    def numbers(self) -> tuple[str, ...]: ...

    def build(
        self, symbols: Mapping[str, int], name: str, strides: Mapping[str, Sequence[int]] | None = None
    ) -> ir.OpView: ...

    def why_loops(self, *inputs: TensorType) -> str | None: ...


class Instruction(LoopIntrinsic):
    """The replacement of a loop: a tensor intrinsic, or an instruction of a command stream."""

    means: PrimScript

    def match(self, loop: Loop) -> object:
        """Match a loop to the description; raise `ScheduleError` if it computes something else."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class TensorIntrin(Instruction):
    """The description and implementation of a hardware instruction.

    `means` is a `@mirlo.prim_func` of one block: its body is the description. `does` is one of loops over buffers
    with the same parameters, inputs then outputs; it replaces loops that match `means`. A reduction adds to the
    value of the outputs: it replaces an update, not an initialization.
    """

    name: str
    means: PrimScript = field(repr=False)
    does: PrimScript = field(repr=False)

    def _match(self, means: ir.OpView, loop: Loop) -> dict[int, BufferTile]:
        """Match each parameter of `means` to a tile of a buffer."""
        tree = build(PrimView(means))
        pattern, leaf = find_blocks(self, tree, loop)
        inner = [loop, *loops_of(loop)]
        shape, block = [other.extent for other in inner], [other.extent for other in around(pattern)]
        if shape != block:
            raise ScheduleError(f"tensorize: the loops are {shape}, '{self.name}' computes {block}")
        if leaf.guards:
            raise ScheduleError(
                f"tensorize: '{leaf.name}' leaves out points that '{self.name}' would compute; extend its axes to "
                "multiples of the tile (pad_einsum) before they are split"
            )
        is_begun = leaf.is_whole or isinstance(leaf.form, Accumulation)
        if is_begun and leaf.is_reduction or leaf.is_start:
            raise ScheduleError(f"tensorize: decompose the reduction '{leaf.name}' first, outside of '{loop.name}'")
        _require_same_body(self.name, pattern, leaf)
        names = {ours.name: theirs.name for ours, theirs in zip(inner, around(pattern), strict=True)}
        require_same_reduction(pattern, leaf, names)
        for axis, _ in leaf.body.indices:
            if leaf.at[axis].replace(_indices(names)) != pattern.at[axis]:
                raise ScheduleError(
                    f"tensorize: '{leaf.name}' computes with its index {leaf.at[axis]}, '{self.name}' with "
                    f"{pattern.at[axis]}"
                )
        tiles: dict[int, BufferTile] = {}
        pairs = list(zip([*pattern.reads, *pattern.writes], [*leaf.reads, *leaf.writes], strict=True))
        for meant, access in pairs:
            position = tree.buffers.index(meant.buffer)
            _require_plain(self.name, leaf, meant, access)
            start, dims = self._fit(pattern.place(meant), leaf.place(access), names, access)
            tile = BufferTile(access.buffer, start, dims, meant.buffer.shape)
            if tiles.setdefault(position, tile) != tile:
                raise ScheduleError(
                    f"tensorize: '{self.name}' reads '{meant.buffer.name}' several times, '{leaf.name}' "
                    f"{tiles[position]} and {tile}"
                )
        return tiles

    def _fit(
        self, theirs: list[IndexExpr], ours: list[IndexExpr], names: dict[str, str], access: BufferAccess
    ) -> tuple[list[IndexExpr], list[int]]:
        """Return where the tile begins, and the dims that the intrinsic's parameter has."""
        start: list[IndexExpr] = []
        moving: list[int] = []
        for dim, index in enumerate(ours):
            parts = split_by(index, _outer(index, names))
            if parts is None:
                raise ScheduleError(f"tensorize: {index} of '{access.buffer.name}' mixes loops inside and outside")
            start.append(parts[0] + parts[1].constant)
            if parts[1].terms:
                moving.append(dim)
        inside = [_renamed(split_by(ours[dim], _outer(ours[dim], names)), names) for dim in moving]
        if [str(index) for index in inside] != [str(index) for index in theirs]:
            raise ScheduleError(
                f"tensorize: '{self.name}' reads {', '.join(map(str, theirs))}, "
                f"the loops {', '.join(map(str, inside))} of '{access.buffer.name}'"
            )
        return start, moving

    def match(self, loop: Loop) -> dict[int, BufferTile]:
        """Return the tile for each parameter, as the loop and those around it are now."""
        module = ir.Module.create(ir.Location.unknown())
        with ir.InsertionPoint(module.body), ir.Location.unknown():
            means = self.means.build({}, f"{self.name}_means")
            module.body.append(means.operation)
            if not is_tensor_form(means):
                inputs = [TensorType(tuple(p.shape), p.dtype) for p in self.means.parameters if not p.is_output]
                reason = self.means.why_loops(*inputs) or "it is loops over buffers"
                raise ScheduleError(
                    f"tensorize: '{self.means.name}', which describes '{self.name}', is not one block: {reason}"
                )
        return self._match(means, loop)

    def emit(self, loop: Loop, values: LoopValues, placed: PlacedBuffers) -> None:
        """Emit the operations of the implementation, in place of a loop, on the buffers of the schedule."""
        tiles, strides = {}, {}
        for position, tile in self.match(loop).items():
            memory = placed[tile.buffer]
            if not all(isinstance(size, int) for size in memory.shape[1:]):
                is_result = self.does.parameters[position].is_output
                raise ScheduleError(
                    f"tensorize: '{tile.buffer.name}' is {' x '.join(map(str, memory.shape))} elements: '{self.name}' "
                    "takes tiles whose strides are known; "
                    + (
                        "write a copy (cache_write, or pad_einsum) in a loop outside (reverse_compute_at)"
                        if is_result
                        else "read a copy (cache_read, or pad_einsum) in a loop outside (compute_at)"
                    )
                )
            tile.check_packed(memory, self.name)
            origin: list[ir.Value] = [values.emit(index) for index in memory.at(tile.start)]
            argument = tiles[position] = TileArgument(memory.value, origin, tile.places(), memory.shape, memory.is_flat)
            strides[self.does.parameters[position].name] = argument.strides
        module = ir.Module.create(ir.Location.unknown())
        with ir.InsertionPoint(module.body), ir.Location.unknown():
            does = self.does.build({}, f"{self.name}_does", strides)
            module.body.append(does.operation)
        if is_tensor_form(does):
            raise ScheduleError(
                f"tensorize: '{self.does.name}', which implements '{self.name}', is blocks, expected loops: "
                "@mirlo.prim_func(buffers=True)"
            )
        entry = does.operation.regions[0].blocks[0]
        arguments: dict[ir.Value, TileArgument] = {
            argument: tiles[i] for i, argument in enumerate(entry.arguments) if i in tiles
        }
        clone_on_tiles(self.name, entry, arguments, {})


INTRINSICS: dict[str, Instruction] = {}
"""What `tensorize` knows, by name."""


def tensor_intrin(name: str, means: PrimScript, does: PrimScript) -> TensorIntrin:
    """Register a hardware instruction under a name, for `Schedule.tensorize`.

    `means` and `does` are `@mirlo.prim_func`s with the same parameters, of static shapes. `means` is the
    description: one block, whose loops and body the scheduled loops must match. `does` is the implementation, with
    `buffers=True`; if `means` is a reduction, it adds to its output.
    """
    _require_same_parameters(name, means, does)
    intrin = TensorIntrin(name, means, does)
    register_intrinsic(name, intrin, does)
    return intrin


def register_intrinsic(name: str, intrin: Instruction, function: PrimScript) -> None:
    """Register what `function` defines under a name; a module that is loaded again replaces what it defined."""
    known = INTRINSICS.get(name)
    if known is not None and _definition(getattr(known, "does", known.means)) != _definition(function):
        raise ScheduleError(f"there is a tensor intrinsic '{name}' already")
    INTRINSICS[name] = intrin


def _require_same_parameters(name: str, means: PrimScript, does: PrimScript) -> None:
    """Require that the implementation accesses tiles of the sizes and types that the description has."""
    for function in (means, does):
        if not hasattr(function, "parameters"):
            raise ScheduleError(f"tensor intrinsic '{name}': expected a @mirlo.prim_func, found {function!r}")
        if function.is_template:
            raise ScheduleError(
                f"tensor intrinsic '{name}': expected sizes and types that are known, "
                f"found {listed_parameters(function)}"
            )
    if [_kind(each) for each in means.parameters] != [_kind(each) for each in does.parameters]:
        raise ScheduleError(
            f"tensor intrinsic '{name}': expected an implementation with the parameters of its description, "
            f"{listed_parameters(means)}, found {listed_parameters(does)}"
        )


def _kind(parameter: ScriptParameter) -> tuple[bool, TensorType]:
    return parameter.is_output, TensorType(tuple(parameter.shape), parameter.dtype)


def listed_parameters(function: PrimScript) -> str:
    words = {False: "Buffer", True: "Out"}
    shown = [f"{p.name}: {words[p.is_output]}[{p.shape}, {p.dtype}]" for p in function.parameters]
    return f"{function.name}({', '.join(shown)})"


def find_tensor_intrin(name: str) -> Instruction:
    """Return the tensor intrinsic of a name."""
    intrin = INTRINSICS.get(name)
    if intrin is None:
        raise ScheduleError(f"tensorize: there is no intrinsic '{name}'{nearest(name, INTRINSICS)}")
    return intrin


def _definition(function: object) -> tuple[object, object]:
    """Return where a prim function is defined: its file and its name."""
    return getattr(getattr(function, "source", None), "file", None), getattr(function, "name", None)


def _outer(index: IndexExpr, names: dict[str, str]) -> set[str]:
    return index.variables() - set(names)


def _renamed(parts: tuple[IndexExpr, IndexExpr] | None, names: dict[str, str]) -> IndexExpr:
    assert parts is not None
    inside = parts[1] - parts[1].constant
    result: IndexExpr = inside.replace(_indices(names))
    return result


def _indices(names: dict[str, str]) -> dict[str, IndexExpr]:
    return {ours: loop_index(theirs) for ours, theirs in names.items()}


def find_blocks(intrin: Instruction, tree: Root, loop: Loop) -> tuple[BlockLeaf, BlockLeaf]:
    """Return the one block of an instruction's description, and that of a loop."""
    wanted, leaves = tree.leaves(), leaves_of(loop)
    if len(wanted) != 1:
        raise ScheduleError(
            f"tensorize: '{intrin.means.name}', which describes '{intrin.name}', has {len(wanted)} blocks, expected one"
        )
    if len(leaves) != 1:
        raise ScheduleError(f"tensorize: '{intrin.name}' is for one block; '{loop.name}' has {len(leaves)}")
    return wanted[0], leaves[0]


def require_same_reduction(pattern: BlockLeaf, leaf: BlockLeaf, names: Mapping[str, str]) -> None:
    """Require that loops of a block reduce where those of the description do; `names` pairs them."""
    for ours, theirs in names.items():
        if (ours in leaf.reduce_loops()) != (theirs in pattern.reduce_loops()):
            raise ScheduleError(f"tensorize: only one of '{ours}' and '{theirs}' is a loop of the reduction")


def _require_plain(name: str, leaf: BlockLeaf, meant: BufferAccess, access: BufferAccess) -> None:
    """Require that all elements of a tile are in memory, with the type that the intrinsic reads."""
    buffer = access.buffer
    if access.inlined is not None:
        raise ScheduleError(
            f"tensorize: '{leaf.name}' computes elements of '{buffer.name}', which is inlined: '{name}' reads them "
            "from memory"
        )
    if access.outside is not None:
        raise ScheduleError(
            f"tensorize: '{leaf.name}' reads '{buffer.name}' beyond its edges, where '{name}' would read other memory; "
            "let it read a copy with a border (pad)"
        )
    if buffer.element != meant.buffer.element:
        raise ScheduleError(
            f"tensorize: '{buffer.name}' is {buffer.element}, expected the {meant.buffer.element} of '{name}'"
        )


def _require_same_body(name: str, pattern: BlockLeaf, leaf: BlockLeaf) -> None:
    if leaf.view is None:
        raise ScheduleError(f"tensorize: '{leaf.name}' is a copy: '{name}' is for blocks of the function")
    if pattern.view is None or _body(pattern.view) != _body(leaf.view):
        raise ScheduleError(f"tensorize: '{leaf.name}' does not compute what '{name}' means")


def _body(view: BlockView) -> list[tuple[str | tuple[str, ...], ...]]:
    """Return the body with numbered values: equal for blocks with the same computation."""
    numbers: dict[ir.Value, str] = {value: f"axis {i}" for i, value in enumerate(view.index_arguments)}
    numbers.update({value: f"read {i}" for i, value in enumerate(view.input_arguments)})
    numbers.update({value: f"total {i}" for i, value in enumerate(view.accumulators)})
    body: list[tuple[str | tuple[str, ...], ...]] = []
    for op in view.body.operations:
        operation = op.operation
        keys = tuple(numbers[value] for value in operation.operands)
        attributes = tuple(sorted(str(operation.attributes[i]) for i in range(len(operation.attributes))))
        body.append((operation.name, keys, attributes, tuple(str(result.type) for result in operation.results)))
        for result in operation.results:
            numbers[result] = f"value {len(body)}"
    return body
