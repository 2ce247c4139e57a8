"""Launches: a kernel on all blocks of a grid, by the bytes of its parameters or by Python's values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.kernel import PtxKernel
from mirlo.testing.ptx.machine import MOST_SHARED, MOST_THREADS, Batch
from mirlo.testing.ptx.memory import GlobalMemory
from mirlo.testing.ptx.parse import parse

RACED = 4
"""Blocks that races are looked for in, where they are: the others do the same."""
Sizes = tuple[int, int, int]


def launch(
    kernel: PtxKernel,
    memory: GlobalMemory,
    grid: Sizes,
    block: Sizes,
    params: bytes,
    shared: int = 0,
    races: bool = False,
) -> None:
    """Execute a kernel; `shared`: bytes of shared memory that the launch asks for."""
    _check(kernel, grid, block, params)
    for constant in kernel.constants:
        memory.add_array(*constant)
    cluster = kernel.function.directives.get("reqnctapercluster", (1,))[0]
    if grid[0] % cluster:
        raise KernelError(f"kernel '{kernel.name}': {grid[0]} blocks are no whole number of clusters of {cluster}")
    size = int(np.prod(block))
    each = kernel.shared_size + shared
    most = min(MOST_THREADS // size, MOST_SHARED // max(each, 1))
    step = max(most // cluster * cluster, cluster)
    total = int(np.prod(grid))
    raced = min(-(-RACED // cluster) * cluster, total) if races and each else 0
    starts = [*range(0, raced, cluster), *range(raced, total, step)]
    with np.errstate(all="ignore"):
        for first, end in zip(starts, [*starts[1:], total], strict=True):
            Batch(kernel, memory, grid, block, params, shared, np.arange(first, end), cluster, first < raced).run()


def _check(kernel: PtxKernel, grid: Sizes, block: Sizes, params: bytes) -> None:
    size = int(np.prod(block))
    directives = kernel.function.directives
    for name in ("maxntid", "reqntid"):
        most = directives.get(name)
        if most is None:
            continue
        if size > int(np.prod(most)) or (name == "reqntid" and tuple(block[: len(most)]) != most):
            raise KernelError(f"kernel '{kernel.name}' is for blocks of {most} threads, launched with {block}")
    if not 0 < size <= 1024 or min(grid) < 1 or grid[1] > 65535 or grid[2] > 65535:
        raise KernelError(f"kernel '{kernel.name}': blocks of {block} in a grid of {grid} are not allowed")
    if len(params) < kernel.params_size:
        raise KernelError(f"kernel '{kernel.name}' takes {kernel.params_size} bytes of parameters, found {len(params)}")


def packed(kernel: PtxKernel, values: Sequence[Any]) -> bytes:
    """Return parameters as bytes: addresses and numbers, or bytes that are passed unchanged."""
    result = bytearray(kernel.params_size)
    parameters = kernel.function.params
    if len(values) != len(parameters):
        raise KernelError(f"kernel '{kernel.name}' takes {len(parameters)} parameters, found {len(values)}")
    for value, parameter in zip(values, parameters, strict=True):
        if isinstance(value, (int, np.integer)):
            value = struct.pack("<q" if value < 0 else "<Q", int(value))[: parameter.size]
        elif isinstance(value, float):
            value = struct.pack({2: "<e", 4: "<f", 8: "<d"}[parameter.size], value)
        if len(value) != parameter.size:
            raise KernelError(f"kernel '{kernel.name}': {len(value)} bytes for a parameter of {parameter.size}")
        result[parameter.offset : parameter.offset + parameter.size] = value
    return bytes(result)


def run_kernel(
    ptx: str, name: str, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], shared: int = 0
) -> None:
    """Execute a kernel of a text of PTX on numpy arrays, which it works on in place, and on numbers.

    Each array is a range of memory of its own: what a kernel reads or writes beside it is an error.
    """
    memory = GlobalMemory()
    values = []
    for number, value in enumerate(args):
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise ValueError(f"argument {number} is not contiguous")
            address = int(value.__array_interface__["data"][0])
            memory.add(address, value.nbytes, f"argument {number}")
            value = address
        values.append(value)
    kernel = PtxKernel(parse(ptx), name)
    launch(kernel, memory, sizes(grid), sizes(block), packed(kernel, values), shared)


def sizes(extents: int | Sequence[int]) -> Sizes:
    """Three sizes, of up to three."""
    listed = [extents] if isinstance(extents, int) else list(extents)
    x, y, z = (*listed, 1, 1, 1)[:3]
    return x, y, z
