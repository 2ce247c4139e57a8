"""Converts a function of a plan to steps: primitives on values in layouts that the library chooses.

A value stays in the layout in which it was computed; `in_layout` reorders it once for readers that need another one.
Constants are reordered while building, so that steps read them in their layout.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo_onednn.native import api
from mirlo_onednn.native.desc import Desc, bytes_of_primitive, of_primitive, row_major, strided
from mirlo_onednn.native.storage import PrimitiveValue, Storage, aligned
from mirlo_onednn.plan import PlanTensor, PrimitiveNode, PrimitiveRegion


@dataclass
class PrimitiveCall:
    """A call of the library."""

    primitive: api.Owned
    arguments: list[tuple[int, PrimitiveValue]]
    scratchpad: int
    scratchpad_desc: Desc
    node: str
    implementation: str


@dataclass
class Memories:
    """State shared by the functions of an artifact: constants in the layouts of primitives, and the math mode."""

    params: Mapping[str, np.ndarray]
    fpmath: str = "strict"
    """Allowed rounding of the operands of contractions."""
    packed: dict[str, list[PrimitiveValue]] = field(default_factory=dict)

    def value(self, key: str, array: np.ndarray, tensor: PlanTensor) -> PrimitiveValue:
        """Return the constant in the layout of the model."""
        known = self.packed.setdefault(key, [])
        if not known:
            array = np.ascontiguousarray(array)
            desc = row_major(tensor.shape, tensor.dtype)
            known.append(PrimitiveValue(desc, Storage("constant", desc.bytes, array=array)))
        return known[0]


class PrimitiveBuilder:
    """Builds the steps of one function."""

    def __init__(self, function: PrimitiveRegion, memories: Memories) -> None:
        self.function = function
        self.memories = memories
        self.steps: list[PrimitiveCall] = []
        self.storages: list[Storage] = []
        self.values: dict[str, PrimitiveValue] = {}
        self.node = ""
        self._last_use = _last_uses(function)
        self._number = 0
        self._preferred = preferred_layouts(function)
        self._outputs: dict[str, Storage] = {}
        for index, name in enumerate((*function.inputs, *function.outputs)):
            desc = row_major(function.tensors[name].shape, function.tensors[name].dtype)
            storage = Storage("boundary", desc.bytes, boundary=index)
            if index < len(function.inputs):
                self.values[name] = PrimitiveValue(desc, storage)
            else:
                self._outputs[name] = storage
        for name, param in function.params.items():
            self.values[name] = memories.value(param, memories.params[param], function.tensors[name])
        for name, array in function.literals.items():
            self.values[name] = memories.value(f"{function.name}/{name}", array, function.tensors[name])

    def build(self, makers: Mapping[str, Callable[[PrimitiveBuilder, PrimitiveNode], PrimitiveValue]]) -> None:
        """Build the steps of all nodes, then those that put the results into the caller's layout."""
        for number, node in enumerate(self.function.nodes):
            self._number, self.node = number, node.op
            self.values[node.result] = makers[node.op](self, node)
        self.node = "result"
        for name, storage in self._outputs.items():
            value = self.values[name]
            tensor = self.function.tensors[name]
            desc = row_major(tensor.shape, tensor.dtype)
            if value.storage is not storage or value.desc != desc:
                self._reorder(value, PrimitiveValue(desc, storage))

    # What makers ask.

    def tensor(self, name: str) -> PlanTensor:
        """Return the type of a value."""
        return self.function.tensors[name]

    def preferred(self, name: str) -> Desc:
        """Return the layout that the readers of a value prefer, if it is not blocked."""
        return self._preferred[name][0]

    def is_last_use(self, name: str) -> bool:
        """Return whether no later node reads the memory of this value."""
        return self._last_use[name] <= self._number

    def in_layout(self, value: PrimitiveValue, desc: Desc) -> PrimitiveValue:
        """Return the value in this layout, reordered if needed."""
        if value.desc == desc:
            return value
        for known in value.converted:
            if known.desc == desc:
                return known
        result = self._converted(value, desc)
        value.converted.append(result)
        return result

    def in_row_major(self, value: PrimitiveValue) -> PrimitiveValue:
        """Return the value in row-major layout."""
        return self.in_layout(value, row_major(value.desc.shape, value.desc.dtype))

    def reshaped(self, value: PrimitiveValue, shape: Sequence[int]) -> PrimitiveValue:
        """Return the value with another shape; reorder it first if its layout does not allow a view."""
        shape = tuple(shape) or (1,)
        if shape == value.desc.shape:
            return value
        desc = value.desc.reshaped(shape)
        if desc is None:
            value = self.in_row_major(value)
            desc = value.desc.reshaped(shape)
            assert desc is not None, "row-major memory can take any shape"
        return self._view(value, desc)

    def sliced(
        self, value: PrimitiveValue, begin: Sequence[int], steps: Sequence[int], shape: Sequence[int]
    ) -> PrimitiveValue:
        """Return a slice; nothing is copied unless the layout is blocked."""
        if value.desc.strides is None:
            value = self.in_row_major(value)
        strides = value.desc.strides
        assert strides is not None, "row-major memory has no blocks"
        first = sum(stride * place for stride, place in zip(strides, begin, strict=True))
        desc = strided(shape, value.desc.dtype, [s * step for s, step in zip(strides, steps, strict=True)])
        return self._view(value, desc, value.offset + first * ITEM_BYTES)

    def dense(self, value: PrimitiveValue) -> PrimitiveValue:
        """Return the value without gaps between its elements: elementwise primitives do not expect gaps."""
        return value if value.desc.is_dense else self.in_row_major(value)

    def permuted(self, value: PrimitiveValue, axes: Sequence[int]) -> PrimitiveValue:
        """Return the value with its axes in another order; nothing is copied."""
        return self._view(value, value.desc.permuted(axes))

    def result(self, name: str, desc: Desc, over: PrimitiveValue | None = None) -> PrimitiveValue:
        """Return memory for a result in this layout: the caller's if possible, else `over`, else the arena's."""
        wanted, output = self._preferred[name]
        if output and desc.shape == wanted.shape and desc == wanted and output in self._outputs:
            return PrimitiveValue(desc, self._outputs[output])
        if over is not None and over.storage.kind == "arena" and over.desc.bytes >= desc.bytes:
            return over.view_as(desc)
        return self.scratch(desc)

    def scratch(self, desc: Desc) -> PrimitiveValue:
        """Return memory of the arena."""
        storage = Storage("arena", desc.bytes)
        self.storages.append(storage)
        return PrimitiveValue(desc, storage)

    def emit(self, primitive_desc: api.Owned, arguments: Mapping[int, PrimitiveValue]) -> None:
        """Add a step."""
        primitive = api.create_object("primitive_create", "primitive_destroy", primitive_desc.pointer)
        scratchpad = of_primitive(primitive_desc.pointer, api.QUERY_SCRATCHPAD, 0, (), "ui8")
        number = len(self.steps)
        for value in arguments.values():
            value.storage.used_by(number)
        name = implementation(primitive_desc)
        self.steps.append(
            PrimitiveCall(primitive, list(arguments.items()), scratchpad.bytes, scratchpad, self.node, name)
        )

    # What is after it.

    def _view(self, value: PrimitiveValue, desc: Desc, offset: int | None = None) -> PrimitiveValue:
        if value.desc is desc:
            return value
        offset = value.offset if offset is None else offset
        # Whoever asks for the same view gets the same value, and with it the layouts that it was brought to.
        for known in value.views:
            if known.offset == offset and known.desc.shape == desc.shape and known.desc == desc:
                return known
        result = PrimitiveValue(desc, value.storage, offset)
        value.views.append(result)
        return result

    def _converted(self, value: PrimitiveValue, desc: Desc) -> PrimitiveValue:
        if value.storage.kind == "constant":
            result = PrimitiveValue(desc, Storage("constant", desc.bytes, array=aligned(desc.bytes)))
            reorder_now(value, result)
            return result
        result = self.scratch(desc)
        self._reorder(value, result)
        return result

    def _reorder(self, source: PrimitiveValue, target: PrimitiveValue) -> None:
        before, self.node = self.node, f"{self.node} (reorder)"
        self.emit(reorder_desc(source.desc, target.desc), {api.SRC: source, api.DST: target})
        self.node = before


def attributes(post_ops: api.Owned | None = None) -> api.Owned:
    """Create the attributes of a primitive: a scratchpad that the caller owns, and the post-ops."""
    result = api.create_object("primitive_attr_create", "primitive_attr_destroy")
    api.call("primitive_attr_set_scratchpad_mode", result.pointer, api.SCRATCHPAD_USER)
    if post_ops is not None:
        api.call("primitive_attr_set_post_ops", result.pointer, post_ops.pointer)
    return result


def primitive_desc(kind: str, *arguments: object) -> api.Owned:
    """Create a primitive descriptor of the library."""
    return api.create_object(f"{kind}_primitive_desc_create", "primitive_desc_destroy", *arguments)


def reorder_desc(source: Desc, target: Desc) -> api.Owned:
    """Create the descriptor of a reorder from one layout to another."""
    attr = attributes()
    engine = api.engine()
    return primitive_desc("reorder", source.pointer, engine, target.pointer, engine, attr.pointer)


def implementation(descriptor: api.Owned) -> str:
    """Return the library's name of the implementation that it chose."""
    text = ctypes.c_char_p()
    api.call("primitive_desc_query", descriptor.pointer, api.QUERY_IMPL_INFO, 0, ctypes.byref(text))
    return (text.value or b"").decode()


def chosen(descriptor: api.Owned, what: int, like: Desc, index: int = 0) -> Desc:
    """Return the layout that a primitive chose for the tensor `like`."""
    return of_primitive(descriptor.pointer, what, index, like.shape, like.dtype)


def reorder_now(source: PrimitiveValue, target: PrimitiveValue) -> None:
    """Reorder a constant."""
    descriptor = reorder_desc(source.desc, target.desc)
    primitive = api.create_object("primitive_create", "primitive_destroy", descriptor.pointer)
    scratchpad = aligned(bytes_of_primitive(descriptor.pointer, api.QUERY_SCRATCHPAD))
    engine = api.engine()
    assert source.storage.array is not None and target.storage.array is not None
    places = [
        (api.SRC, source.desc.pointer, source.storage.array.ctypes.data + source.offset),
        (api.DST, target.desc.pointer, target.storage.array.ctypes.data),
    ]
    memories = [
        (role, api.create_object("memory_create", "memory_destroy", desc, engine, data)) for role, desc, data in places
    ]
    if len(scratchpad):
        pointer = api.typed_library().dnnl_primitive_desc_query_md(descriptor.pointer, api.QUERY_SCRATCHPAD, 0)
        scratch = api.create_object("memory_create", "memory_destroy", pointer, engine, scratchpad.ctypes.data)
        memories.append((api.SCRATCHPAD, scratch))
    arguments = (api.ExecArg * len(memories))(*[api.ExecArg(role, memory.pointer) for role, memory in memories])
    stream = api.create_object("stream_create", "stream_destroy", engine, 1)
    api.call("primitive_execute", primitive.pointer, stream.pointer, len(arguments), arguments)
    api.call("stream_wait", stream.pointer)


VIEWS = ("reshape", "permute", "slice")
ITEM_BYTES = 4
"""The math mode of f32, in which everything is computed."""


def _last_uses(function: PrimitiveRegion) -> dict[str, int]:
    """Return, by value, the index of the last node that reads its memory, through views as well."""
    root: dict[str, str] = {}
    last: dict[str, int] = {}
    for number, node in enumerate(function.nodes):
        for name in node.reads:
            last[root.get(name, name)] = number
        if node.op in VIEWS:
            source = node.operands["x"]
            root[node.result] = root.get(source, source)
    for name in function.outputs:
        last[root.get(name, name)] = len(function.nodes)
    return {name: last.get(root.get(name, name), -1) for name in function.tensors}


def preferred_layouts(function: PrimitiveRegion) -> dict[str, tuple[Desc, str]]:
    """Return, by value, the layout from which its reader has it row-major, and the output that results.

    Usually that is row-major itself. If the only reader is a view, it is the layout that the view converts to
    row-major: the result of a matrix product that is permuted next is written in its final order.
    """
    readers: dict[str, list[PrimitiveNode]] = {}
    for node in function.nodes:
        for name in node.reads:
            readers.setdefault(name, []).append(node)
    wanted: dict[str, tuple[Desc, str]] = {}
    for name in reversed([*function.inputs, *(node.result for node in function.nodes)]):
        tensor = function.tensors[name]
        desc, output = row_major(tensor.shape, tensor.dtype), name if name in function.outputs else ""
        mine = readers.get(name, [])
        if not output and len(mine) == 1 and mine[0].op in ("reshape", "permute"):
            view = mine[0]
            after, output_after = wanted[view.result]
            if view.op == "permute":
                axes = view.attributes["axes"]
                before: Desc | None = after.permuted([axes.index(axis) for axis in range(len(axes))])
            else:
                before = after.reshaped(tensor.shape or (1,))
            if before is not None:
                desc, output = before, output_after
        wanted[name] = (desc, output)
    return wanted
