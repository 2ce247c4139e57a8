"""Kernels as files of an artifact: what emitters write and loaders read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KernelCode:
    """The code of one kernel, or of a module with several."""

    name: str
    """As the steps of the program call it."""
    entry: str
    code: bytes
    features: tuple[str, ...] = ()
    """What the device must be able to do."""
    shared: int = 0
    """Bytes of a block's shared memory that launches must ask for."""
    binary: bytes = b""
    """The same code as one chip runs it, where it was assembled."""


def pack(kernels: list[KernelCode], constants: list[bytes]) -> tuple[bytes, dict[str, Any]]:
    """Code and constants as one run of bytes, and where in it they are; equal code is there once."""
    parts: list[bytes] = []
    known: dict[bytes, list[int]] = {}
    size = 0

    def place(data: bytes) -> list[int]:
        nonlocal size
        if data not in known:
            known[data] = [size, len(data)]
            parts.append(data)
            size += len(data)
        return known[data]

    table: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        table[kernel.name] = {"entry": kernel.entry, "code": place(kernel.code)}
        if kernel.binary:
            table[kernel.name]["binary"] = place(kernel.binary)
        if kernel.shared:
            table[kernel.name]["shared"] = kernel.shared
    features = sorted({feature for kernel in kernels for feature in kernel.features})
    places = [place(data) for data in constants]
    return b"".join(parts), {"kernels": table, "constants": places, "features": features}
