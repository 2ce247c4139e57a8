"""The short way of a call: numpy arrays that are exactly what the entry function reads.

For small models what surrounds the call takes longer than the model. A call whose inputs are arrays of the right type
and shape, contiguous and aligned, with new arrays for the results, needs no conversion and few Python objects: what
the entry function is given is kept from call to call. Every other call goes the long way, which explains what is wrong.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.runtime.arena import ArenaPool
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.container import ALIGNMENT
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.loaders import EntryFunction

_KEPT = 2
"""Arrays of addresses that wait for a call; more are made when more calls go on at once."""
_READABLE = 0x101
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""
_WRITEABLE = 0x400


class DirectCall:
    """The short way of calls of an artifact whose shapes are all known, and that calls no Python functions."""

    def __init__(self, artifact: Artifact, entry: Any, params: Any, arenas: ArenaPool) -> None:
        self.entry = entry
        self.params = params
        self.arenas = arenas
        self.inputs = []
        for spec in artifact.inputs:
            dtype = numpy_dtype(spec.dtype)
            # The buffer protocol has no letter for bf16 and other types that NumPy was taught.
            self.inputs.append((dtype, spec.static_shape, dtype.isbuiltin == 1))
        self.outputs: list[tuple[np.dtype, tuple[int, ...], int]] = []
        for spec in artifact.outputs:
            dtype = numpy_dtype(spec.dtype)
            count = int(np.prod(spec.static_shape, dtype=np.int64))
            self.outputs.append((dtype, spec.static_shape, count * dtype.itemsize + ALIGNMENT))
        count = len(self.inputs) + len(self.outputs)
        self.pointers = struct.Struct(f"{count}P")
        # Numbers are passed to C faster than arrays are.
        self.params_address = ctypes.addressof(params)
        self.idle: deque[tuple[Any, int]] = deque(maxlen=_KEPT)

    @staticmethod
    def fits(artifact: Artifact, entry: Any) -> bool:
        """Whether calls of this artifact may go the short way; an entry that is no C function takes no numbers."""
        is_fixed = not artifact.symbols and "sizes" not in artifact.metadata
        return is_fixed and not artifact.packed and isinstance(entry, EntryFunction)

    def run(self, values: Sequence[Any]) -> list[np.ndarray] | None:
        """The results; None if a value is not exactly what is wanted."""
        addressof: Any = ctypes.addressof
        first_byte: Any = ctypes.c_char.from_buffer
        addresses = []
        for (dtype, shape, has_letter), value in zip(self.inputs, values, strict=True):
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                return None
            flags = value.flags.num
            if flags & _READABLE != _READABLE:
                return None
            # The buffer protocol tells the address sooner than NumPy does, of what may be written.
            if has_letter and flags & _WRITEABLE and value.size:
                addresses.append(addressof(first_byte(value)))
            else:
                addresses.append(value.__array_interface__["data"][0])
        results = []
        for dtype, shape, nbytes in self.outputs:
            memory = np.empty(nbytes, np.uint8)
            address = addressof(first_byte(memory))
            offset = -address % ALIGNMENT
            results.append(np.ndarray(shape, dtype, memory, offset))
            addresses.append(address + offset)
        try:
            kept = self.idle.pop()
        except IndexError:
            # The record of failures, the last pointer, is for calls of Python functions.
            tensors = (ctypes.c_void_p * (len(addresses) + 1))()
            kept = tensors, ctypes.addressof(tensors)
        self.pointers.pack_into(kept[0], 0, *addresses)
        arena = self.arenas.take()
        self.entry(kept[1], self.params_address, arena.address, None)
        self.arenas.give_back(arena)
        self.idle.append(kept)
        return results
