"""Memory: ranges of bytes by their addresses. An access outside of all of them, or not aligned, is an error."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.types import BITS, Array


class AddressRange:
    """Bytes at an address."""

    def __init__(self, address: int, data: Array, name: str, size: int) -> None:
        self.address = address
        self.end = address + size
        self.readable = address + len(data)
        """Where what may be read ends, not before the end."""
        self.name = name
        self._data = data
        self._views: dict[int, Array] = {1: data}

    def view(self, size: int) -> Array:
        """Return the range as elements of this size in bytes, at each multiple of the size."""
        allocation = self._views.get(size)
        if allocation is None:
            if self.address % size:
                raise KernelError(f"{self.name} is at {self.address:#x}, which no {size} bytes are aligned to")
            whole = len(self._data) // size * size
            allocation = self._views[size] = self._data[:whole].view(BITS[size])
        return allocation


class GlobalMemory:
    """The memory of a GPU that a kernel may use."""

    def __init__(self) -> None:
        self._ranges: list[AddressRange] = []
        self._starts: list[int] = []

    def add(self, address: int, size: int, name: str, granule: int = 1) -> None:
        """Map memory of this process for kernels; reads may go on to the end of a granule.

        LLVM reads neighbours together where their alignment says that the bytes after them exist.
        """
        if size <= 0:
            return
        whole: Any = (ctypes.c_char * (-(-size // granule) * granule)).from_address(address)
        data = np.frombuffer(whole, np.uint8)
        self.add_array(address, data, name, size)

    def add_array(self, address: int, data: Array, name: str, size: int | None = None) -> None:
        """Map the bytes of an array for kernels, at an address of its own."""
        at = bisect_right(self._starts, address)
        self._starts.insert(at, address)
        self._ranges.insert(at, AddressRange(address, data, name, len(data) if size is None else size))

    def find(self, addresses: Array, size: int, writes: bool) -> AddressRange | None:
        """Return the range of all elements, None if there are several; raise an error if one has none."""
        low, high = int(addresses.min()), int(addresses.max())
        if self._fits(low, high + size, writes):
            return self._ranges[bisect_right(self._starts, low) - 1]
        for address in (low, high, *map(int, addresses)):
            if not self._fits(address, address + size, writes):
                raise KernelError(self._outside(address, size))
        return None

    def _fits(self, address: int, end: int, writes: bool) -> bool:
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and end <= (self._ranges[at].end if writes else self._ranges[at].readable)

    def _outside(self, address: int, size: int) -> str:
        at = bisect_right(self._starts, address) - 1
        near = []
        if at >= 0:
            near.append(f"{address + size - self._ranges[at].end} bytes beyond the end of {self._ranges[at].name}")
        if at + 1 < len(self._ranges):
            near.append(f"{self._ranges[at + 1].address - address} bytes before {self._ranges[at + 1].name}")
        return f"{size} bytes at {address:#x} are outside of all memory: {', '.join(near)}"

    def load(self, addresses: Array, size: int) -> Array:
        """Return elements of this size in bytes."""
        check_alignment(addresses, size)
        allocation = self.find(addresses, size, writes=False)
        if allocation is not None:
            return allocation.view(size)[
                ((addresses - np.uint64(allocation.address)) // np.uint64(size)).view(np.int64)
            ]
        result = np.empty(len(addresses), BITS[size])
        for mask, part in self._parts(addresses):
            result[mask] = self.load(part, size)
        return result

    def store(self, addresses: Array, values: Array, size: int) -> None:
        """Write elements."""
        check_alignment(addresses, size)
        allocation = self.find(addresses, size, writes=True)
        if allocation is not None:
            at = ((addresses - np.uint64(allocation.address)) // np.uint64(size)).view(np.int64)
            allocation.view(size)[at] = values
            return
        for mask, part in self._parts(addresses):
            self.store(part, values[mask] if len(values) > 1 else values, size)

    def _parts(self, addresses: Array) -> list[tuple[Array, Array]]:
        """Split accesses to several ranges by range."""
        which = np.searchsorted(np.array(self._starts, np.uint64), addresses, side="right")
        return [(which == one, addresses[which == one]) for one in np.unique(which)]


def check_alignment(addresses: Array, size: int) -> None:
    """Raise an error if an access is not at a multiple of its size."""
    if size > 1:
        off = addresses & addresses.dtype.type(size - 1)
        if off.any():
            raise KernelError(f"{size} bytes at {int(addresses[off != 0][0]):#x}, which is not aligned to them")


UNWRITTEN, WRITTEN, UNDER_WAY, BY_COPY = 0, 1, 2, 3
"""What is known of a byte of shared or local memory; `UNDER_WAY`: an asynchronous copy has not been waited for;
`BY_COPY`: the matrix units may read it, which what threads write must be fenced for.
"""
UNDEFINED = 0xFF
"""The byte of values that were never written: NaN in all formats, no address.

LLVM loads from memory of a thread, and selects, before it tests whether the value is used.
"""
_ONES = {size: int.from_bytes(b"\1" * size, "little") for size in (1, 2, 4, 8)}


class Windows:
    """Memory that each block, or each thread, has of its own: as many windows of the same size.

    Bytes that were never written are known, as it is an error to read them, except in windows of `undefined` bytes.
    """

    def __init__(self, count: int, size: int, name: str, alignment: int = 128, undefined: bool = False) -> None:
        self.size = size
        self.name = name
        self.offsets: Callable[[Array, Array], Array] | None = None
        """Return the offsets of addresses in windows, if they are not these themselves."""
        self.stride = -(-max(size, 1) // alignment) * alignment
        self._data: dict[int, Array] = {1: np.zeros(count * self.stride, np.uint8)}
        self._known: dict[int, Array] = {1: np.zeros(count * self.stride, np.uint8)}
        for size_ in BITS:
            self._data[size_] = self._data[1].view(BITS[size_])
            if size_ < 16:
                self._known[size_] = self._known[1].view(BITS[size_])
        if undefined:
            self._data[1].fill(UNDEFINED)
            self._known[1].fill(WRITTEN)

    @property
    def bytes(self) -> Array:
        return self._data[1]

    @property
    def known(self) -> Array:
        return self._known[1]

    def places(self, windows: Array, addresses: Array, size: int) -> Array:
        """Return the places of elements, in units of their size from the first window on."""
        if self.offsets is not None:
            addresses = self.offsets(windows, addresses)
        check_alignment(addresses, size)
        if int(addresses.max()) + size > self.size:
            worst = int(addresses.max())
            raise KernelError(f"{size} bytes at {worst} are outside of the {self.size} bytes of {self.name} memory")
        return (windows * self.stride + addresses.astype(np.int64)) // size

    def load(self, windows: Array, addresses: Array, size: int) -> Array:
        """Return elements of this size in bytes."""
        at = self.places(windows, addresses, size)
        self._check(at, size)
        return self._data[size][at]

    def store(self, windows: Array, addresses: Array, values: Array, size: int) -> None:
        """Write elements."""
        self.put(self.places(windows, addresses, size), values, size)

    def put(self, at: Array, values: Array, size: int, state: int = WRITTEN) -> None:
        """Write elements whose places are known."""
        self._data[size][at] = values
        self.mark(at, size, state)

    def fence(self, windows: Array) -> None:
        """Execute `fence.proxy.async`: make the writes of the windows' threads visible to the matrix units."""
        for window in np.unique(windows):
            part = self.known[window * self.stride : (window + 1) * self.stride]
            part[part == WRITTEN] = BY_COPY

    def check_for_units(self, at: Array) -> None:
        """Raise an error if bytes are not there that the matrix units read."""
        known = self.known[at]
        if (known == BY_COPY).all():
            return
        state = int(known[known != BY_COPY][0])
        why = {UNWRITTEN: "were never written", WRITTEN: "were written by threads without fence.proxy.async behind",
               UNDER_WAY: "are still being copied to"}[state]  # fmt: skip
        place = int(at[known != BY_COPY][0]) % self.stride
        raise KernelError(f"the matrix units read byte {place} of {self.name} memory and others, which {why}")

    def mark(self, at: Array, size: int, state: int) -> None:
        """Record which bytes of elements are written."""
        part = min(size, 8)
        pattern = self._known[part].dtype.type(int.from_bytes(bytes([state]) * part, "little"))
        if size == part:
            self._known[part][at] = pattern
        else:
            self._known[part].reshape(-1, 2)[at] = pattern

    def _check(self, at: Array, size: int) -> None:
        part = min(size, 8)
        known = self._known[part][at] if size == part else self._known[part].reshape(-1, 2)[at]
        # The two states in which bytes may be read are those with the lowest bit.
        if (known & known.dtype.type(_ONES[part]) == known.dtype.type(_ONES[part])).all():
            return
        parts = known.reshape(-1).view(np.uint8).reshape(len(at), size)
        bad = np.flatnonzero((parts & 1 == 0).any(1))[0]
        place = int(at[bad]) * size % self.stride
        why = "are still being copied to" if (parts[bad] == UNDER_WAY).any() else "were never written"
        raise KernelError(f"{size} bytes at {place} of {self.name} memory are read, and {why}")
