"""Kernels as files of an artifact, written by emitters and read by loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.buffers import buffer_bytes
from mirlo.passes.lower.calls import find
from mirlo.runtime.records import dataclass
from mirlo.targets.gpu.host_code import compile_host
from mirlo.targets.gpu.program import HostProgram

if TYPE_CHECKING:
    from mirlo.targets.gpu.device_layout import KernelEntry


@dataclass(frozen=True)
class KernelCode:
    """The code of one kernel, or of a module with several."""

    name: str
    """The name that the program's steps use."""
    entry: str
    code: bytes
    features: tuple[str, ...] = ()
    """Features that the device must have."""
    shared: int = 0
    """Bytes of shared memory that launches must request, or that a block of threads must have."""
    binary: bytes = b""
    """The code assembled for one chip, if it was."""
    reports: bool = False
    """Whether launches append the numbers of a report to the scalars."""


def kernel_launchers(module: ir.Module) -> dict[str, str]:
    """Return the function that launches the kernel of each `gpu.module`."""
    launchers = {}
    for function in module.body.operations:
        if function.operation.name != "func.func":
            continue
        name = symbol_name(function)
        for launch in find(function.operation, "gpu.launch_func"):
            launchers[ir.SymbolRefAttr(launch.attributes["kernel"]).value[0]] = name
    return launchers


def shared_bytes(kernel: ir.Operation) -> int:
    """Return the bytes of memory that the threads of a block share in a kernel, or in all kernels of a module."""
    return sum(buffer_bytes(alloc.results[0].type) for alloc in find(kernel, "memref.alloc"))


def pack(kernels: list[KernelCode], program: HostProgram) -> tuple[bytes, dict[str, object]]:
    """Concatenate code and constants, equal ones once; return the bytes and the metadata that locates them.

    The module of the program's host functions is consumed.
    """
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

    table: dict[str, KernelEntry] = {}
    for kernel in kernels:
        table[kernel.name] = {"entry": kernel.entry, "code": place(kernel.code)}
        if kernel.binary:
            table[kernel.name]["binary"] = place(kernel.binary)
        if kernel.shared:
            table[kernel.name]["shared"] = kernel.shared
        if kernel.reports:
            table[kernel.name]["reports"] = True
    features = sorted({feature for kernel in kernels for feature in kernel.features})
    places = [place(data) for data in program.constants]
    host = compile_host(program)
    metadata = {"program": program.as_json(place(host) if host else None)}
    return b"".join(parts), {**metadata, "kernels": table, "constants": places, "features": features}
