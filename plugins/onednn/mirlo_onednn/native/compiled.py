"""Functions of fixed shapes as tables of primitives and memories, which native code executes.

The functions share an arena and a scratchpad. Each context has its own tables, arena and scratchpad, so that as many
calls as contexts can run at the same time; primitives and constants are shared.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import Memories, PrimitiveBuilder, PrimitiveCall
from mirlo_onednn.native.library import OneDnnError, threads_set
from mirlo_onednn.native.makers import makers
from mirlo_onednn.native.storage import PrimitiveValue, aligned, plan_arena
from mirlo_onednn.native.trampoline import CallTable
from mirlo_onednn.plan import PrimitiveRegion


@dataclass(frozen=True)
class StepInfo:
    """A step: the operation of the plan, and the library's name of the implementation."""

    operation: str
    implementation: str


@dataclass(frozen=True)
class RegionReport:
    """What a function was compiled to."""

    steps: tuple[StepInfo, ...]
    arena_bytes: int
    packed_bytes: int

    @property
    def reorders(self) -> int:
        """Return the number of steps that only change a layout."""
        return sum(step.operation.endswith("(reorder)") for step in self.steps)


class Context:
    """The state of one call at a time; memory of the arena that is never written is never mapped."""

    def __init__(self, arena: np.ndarray, scratchpad: np.ndarray) -> None:
        self.arena = arena
        self.scratchpad = scratchpad
        self.stream = api.create_object("stream_create", "stream_destroy", api.engine(), 1)


class Compiled:
    """Tables for functions; the memory that they point to lives as long as this object."""

    def __init__(
        self, functions: Sequence[PrimitiveRegion], memories: Memories, threads: int, contexts: int = 1
    ) -> None:
        with threads_set(threads):
            builders = [_built(function, memories) for function in functions]
        arenas = [plan_arena(builder.storages) for builder in builders]
        scratchpad = max((step.scratchpad for b in builders for step in b.steps), default=0)
        self._keep: list[object] = []
        self.tables: dict[str, list[CallTable]] = {b.function.name: [] for b in builders}
        """By function, a table for each context."""
        for _ in range(contexts):
            context = Context(aligned(max(arenas, default=0)), aligned(scratchpad))
            self._keep.append(context)
            for builder in builders:
                self.tables[builder.function.name].append(self._table(builder, context))
        self.reports = {
            b.function.name: RegionReport(
                tuple(StepInfo(step.node, step.implementation) for step in b.steps), size, _packed_bytes(b.steps)
            )
            for b, size in zip(builders, arenas, strict=True)
        }

    def _table(self, builder: PrimitiveBuilder, context: Context) -> CallTable:
        """Return the steps in the form that native code reads."""
        owned: dict[int, api.Owned] = {}
        boundary: list[tuple[int, int, int]] = []

        def memory(value: PrimitiveValue) -> int:
            known = owned.get(id(value))
            if known is None:
                storage = value.storage
                data: int | None = None
                if storage.kind == "constant":
                    assert storage.array is not None
                    data = storage.array.ctypes.data + value.offset
                elif storage.kind == "arena":
                    data = context.arena.ctypes.data + storage.offset + value.offset
                known = api.create_object("memory_create", "memory_destroy", value.desc.pointer, api.engine(), data)
                owned[id(value)] = known
                if storage.kind == "boundary":
                    boundary.append((storage.boundary, value.offset, known.pointer))
            return known.pointer

        rows = []
        for step in builder.steps:
            arguments = [(role, memory(value)) for role, value in step.arguments]
            if step.scratchpad:
                scratch = api.create_object(
                    "memory_create", "memory_destroy", step.scratchpad_desc.pointer, api.engine(),
                    context.scratchpad.ctypes.data,
                )  # fmt: skip
                self._keep.append(scratch)
                arguments.append((api.SCRATCHPAD, scratch.pointer))
            array = (api.ExecArg * len(arguments))(*[api.ExecArg(role, pointer) for role, pointer in arguments])
            self._keep.append(array)
            rows.append((step.primitive.pointer, len(arguments), ctypes.addressof(array)))
        self._keep.extend([owned, builder.steps, builder.values])
        return CallTable(context.stream.pointer, tuple(boundary), tuple(rows))


def _built(function: PrimitiveRegion, memories: Memories) -> PrimitiveBuilder:
    builder = PrimitiveBuilder(function, memories)
    if all(0 in function.tensors[name].shape for name in function.outputs):
        return builder  # there is nothing to compute
    try:
        builder.build(makers())
    except api.Refused as problem:
        raise OneDnnError(f"oneDNN cannot compute '{builder.node}' of region '{function.name}': {problem}") from None
    return builder


def _packed_bytes(steps: list[PrimitiveCall]) -> int:
    constants = {
        id(value.storage): value.storage.bytes
        for step in steps
        for _, value in step.arguments
        if value.storage.kind == "constant"
    }
    return sum(constants.values())
