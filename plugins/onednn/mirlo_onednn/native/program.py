"""The functions of an artifact, ready to be called.

Functions of fixed shapes are compiled when the artifact is loaded. A function with dynamic dims is compiled for each
combination of sizes of its calls; the last ones are kept.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Mapping

import numpy as np

from mirlo.extend.runtime import DLTensor, available_cores
from mirlo_onednn.native.builder import Memories
from mirlo_onednn.native.compiled import Compiled, RegionReport
from mirlo_onednn.native.trampoline import Miss, Trampoline, _State, _Table, key_array, native_table
from mirlo_onednn.plan import OneDnnPlan, PrimitiveRegion

MAX_CONTEXTS = 8
"""Most concurrent calls of regions with fixed shapes; others wait."""
CACHED_FUNCTIONS = 16
"""Number of size combinations for which a function is kept."""


class OneDnnProgram:
    """Native functions for a plan; the memory that they use lives as long as this object."""

    def __init__(
        self, plan: OneDnnPlan, params: Mapping[str, np.ndarray], threads: int = 1, fpmath: str = "strict"
    ) -> None:
        memories = Memories(params, fpmath)
        contexts = max(1, min(available_cores() // threads, MAX_CONTEXTS))
        fixed = [function for function in plan.functions if not function.dynamic_dims]
        self._compiled = Compiled(fixed, memories, threads, contexts)
        self._dynamic = {f.name: DynamicFunction(f, memories, threads) for f in plan.functions if f.dynamic_dims}
        self._trampoline = Trampoline(threads, contexts)
        for function in plan.functions:
            count = len(function.boundary)
            opened = self._dynamic.get(function.name)
            if opened is None:
                self._trampoline.add(function.name, count, self._compiled.tables[function.name])
            else:
                state = self._trampoline.add_dynamic(function.name, count, function.dynamic_dims, opened.callback)
                opened.state = state
        self.functions = self._trampoline.bind()
        """By name, `int fn(DLTensor** tensors, int64_t count)`."""

    @property
    def reports(self) -> dict[str, RegionReport]:
        """Return the report of each function; with dynamic dims, for the last new sizes."""
        newest = {name: opened.report for name, opened in self._dynamic.items() if opened.report is not None}
        return {**self._compiled.reports, **newest}

    def failure(self, function: str) -> str:
        """Return why a function could not be compiled for the sizes of a call."""
        return self._dynamic[function].failure if function in self._dynamic else ""


class DynamicFunction:
    """A function with dims that the call determines."""

    def __init__(self, function: PrimitiveRegion, memories: Memories, threads: int) -> None:
        self.function = function
        self.failure = ""
        self.report: RegionReport | None = None
        self.state: _State | None = None
        self.callback = Miss(self._miss)
        self._memories = memories
        self._threads = threads
        self._known: deque[tuple[ctypes.Array[ctypes.c_int64], _Table, Compiled]] = deque(maxlen=CACHED_FUNCTIONS)
        """Sizes, table and what it is made of; calls take turns, so that what is dropped is not in use."""

    def _miss(self, tensors: int) -> int | None:
        """Build the table for new sizes when native code requests it; return its address, or None."""
        try:
            shapes = ctypes.cast(tensors, ctypes.POINTER(ctypes.POINTER(DLTensor)))
            values = [shapes[number].contents.shape[axis] for number, axis, _ in self.function.dynamic_dims]
            compiled = Compiled([self.function.for_sizes(values)], self._memories, self._threads)
            table = native_table(compiled.tables[self.function.name][0])
        except Exception as problem:  # no exception can pass through native code: it comes out of the call as this text
            self.failure = str(problem) or type(problem).__name__
            return None
        self._known.append((key_array(values), table, compiled))
        assert self.state is not None
        self.state.set_entries([(keys, table) for keys, table, _ in self._known])
        self.report = compiled.reports[self.function.name]
        return ctypes.addressof(table)
