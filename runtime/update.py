"""Repeated calls that update the same arrays in place: the parts that do not change are prepared once.

The general path of a call checks every array and compares all of them with each other, which takes longer than one
step of a small model that is called in a loop.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping

import numpy as np

from mirlo.runtime import interrupts, threads
from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.container import empty_aligned
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.errors import InputError
from mirlo.runtime.inputs import check_output, check_shape, convert
from mirlo.runtime.loaders import LoadedCode
from mirlo.runtime.records import dataclass
from mirlo.runtime.sizes import RecordWords, Sizes


@dataclass(frozen=True)
class CallParts:
    """The parts of a call of an executable."""

    artifact: Artifact
    sizes: Sizes
    code: LoadedCode
    params: ctypes.Array[ctypes.c_void_p]
    arenas: ArenaPool
    measure: Callable[[RecordWords], None]
    """Checks the sizes of a call record, and computes the others."""
    polls: bool


def can_prepare(parts: CallParts) -> bool:
    """Return whether calls can be prepared: all memory is known before a call, and no Python function is called."""
    artifact = parts.artifact
    late = set(artifact.late)
    is_known = not any(late.intersection(map(str, spec.shape)) for spec in artifact.outputs)
    is_plain = parts.code.device is None and not parts.code.has_memory and not artifact.packed
    return is_plain and is_known and not artifact.metadata.get("allocates")


class UpdatingCall:
    """Calls with these arrays as inputs, and as the outputs that update them."""

    def __init__(
        self,
        parts: CallParts,
        arrays: Mapping[str, np.ndarray],
        outputs: Mapping[str, str],
        constants: Mapping[str, np.ndarray],
    ) -> None:
        """Check the arrays, by names of inputs; `outputs` are the names of the outputs that update them.

        `constants` are inputs that stay the same in all calls.
        """
        self._parts = parts
        self._dims: dict[str, int] = {}
        specs = parts.artifact.inputs
        self._arrays = dict(arrays)  # keeps them alive
        self._ranges = self._checked_ranges()
        self._constants = {s.name: convert(s, constants[s.name], self._dims) for s in specs if s.name in constants}
        for name, array in self._constants.items():
            self._require_apart(name, array)
        fixed = {**self._arrays, **self._constants}
        updated = {output: arrays[name] for name, output in outputs.items()}
        self._inputs = [(i, spec) for i, spec in enumerate(specs) if spec.name not in fixed]
        self._outputs = [
            (len(specs) + i, spec, numpy_dtype(spec.dtype))
            for i, spec in enumerate(parts.artifact.outputs)
            if spec.name not in updated
        ]
        # Caches of all layers have one shape.
        self._shapes = {(s.shape, updated[s.name].shape): s for s in parts.artifact.outputs if s.name in updated}
        self._addresses = [
            *(_start(fixed[spec.name]) if spec.name in fixed else 0 for spec in specs),
            *(_start(updated[s.name]) if s.name in updated else 0 for s in parts.artifact.outputs),
            0,
        ]
        self._type = ctypes.c_void_p * len(self._addresses)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model on its other inputs; return its other outputs."""
        parts = self._parts
        if parts.artifact.threads > 1:
            threads.revive(parts.artifact.threads)
        if len(inputs) != len(self._inputs):
            raise self._wrong_names(inputs)
        dims, addresses, kept = dict(self._dims), list(self._addresses), []
        for position, spec in self._inputs:
            if spec.name not in inputs:
                raise self._wrong_names(inputs)
            array = convert(spec, inputs[spec.name], dims)
            addresses[position] = self._require_apart(spec.name, array)
            kept.append(array)
        record = parts.sizes.record(dims)
        parts.measure(record)
        for (dims_of, shape), spec in self._shapes.items():
            actual = parts.sizes.shape(dims_of, record)
            if actual != shape:
                raise InputError(f"output '{spec.name}': it would be {actual}, the array that it updates is {shape}")
        results = {}
        for position, spec, dtype in self._outputs:
            result = results[spec.name] = empty_aligned(dtype, self._shape(spec, record))
            addresses[position] = _start(result)
        addresses[-1] = ctypes.addressof(record)
        tensors = self._type(*addresses)
        nbytes = parts.sizes.arena_bytes(record) if parts.sizes.is_dynamic else parts.artifact.arena_bytes
        with parts.arenas.arena(nbytes) as arena:
            parts.code.entry(tensors, parts.params, arena, None)
        if parts.polls:
            interrupts.raise_pending()
        parts.sizes.require(record)
        return results

    def _checked_ranges(self) -> tuple[list[int], list[int]]:
        """Return where the updated arrays begin, in order, and where they end; they must fit, and must not overlap."""
        before: list[np.ndarray] = []
        for spec in self._parts.artifact.inputs:
            if spec.name in self._arrays:
                array = self._arrays[spec.name]
                check_shape(spec, array.shape, self._dims)
                check_output(spec, array.shape, array, before)
                before.append(array)
        ranges = sorted(_range(array) for array in before if array.nbytes)
        return [start for start, _ in ranges], [end for _, end in ranges]

    def _require_apart(self, name: str, array: np.ndarray) -> int:
        """Return the address of an input, which must not overlap the arrays that calls update."""
        start, end = _range(array)
        starts, ends = self._ranges
        if bisect_left(starts, end) > bisect_right(ends, start):  # more begin before its end than end before it
            raise InputError(f"input '{name}' shares memory with an array that the call updates: pass a copy")
        return start

    def _shape(self, spec: TensorSpec, record: RecordWords) -> tuple[int, ...]:
        shape = self._parts.sizes.shape(spec.shape, record)
        if min(shape, default=0) < 0:
            raise InputError(f"output '{spec.name}': of these inputs it would have the dims {shape}")
        return shape

    def _wrong_names(self, inputs: Mapping[str, object]) -> InputError:
        expected = ", ".join(str(spec) for _, spec in self._inputs)
        return InputError(f"expected the inputs {expected}, found {', '.join(map(repr, inputs)) or 'none'}")


def _start(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _range(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses of the first byte of a contiguous array, and after its last one."""
    start = _start(array)
    return start, start + array.nbytes
