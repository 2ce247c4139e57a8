"""Loads and stores, of every space: section 9.7.9 of the PTX manual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.moves import WINDOWS
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Step
from mirlo.testing.ptx.text import Address, Operand, PtxInstruction, PtxSymbol
from mirlo.testing.ptx.types import BITS, TYPES, Array

SPACES = ("param", "global", "shared", "shared::cta", "shared::cluster", "local", "const")
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_HINTS = ("nc", "relaxed", "acquire", "release", "weak", "volatile", "gpu", "cta", "cluster", "sys", "ca", "cg", "cs",
          "cv", "lu", "wb", "wt", "L1::no_allocate", "L1::evict_last", "L1::evict_first", "L1::evict_normal",
          "L2::cache_hint", "L2::128B", "L2::64B", "L2::256B")  # fmt: skip

Load = Callable[[Group, Array, int], Array]
Store = Callable[[Group, Array, Array, int], None]


def _load_global(group: Group, addresses: Array, size: int) -> Array:
    return group.batch.memory.load(addresses, size)


def _load_shared(group: Group, addresses: Array, size: int) -> Array:
    return group.batch.load_shared(group, group.batch.block_of(group), addresses, size)


def _load_local(group: Group, addresses: Array, size: int) -> Array:
    return group.batch.local.load(group.tids, addresses, size)


def _load_cluster(group: Group, addresses: Array, size: int) -> Array:
    blocks, offsets = group.batch.in_cluster(group, addresses)
    return group.batch.load_shared(group, blocks, offsets, size)


def _load_generic(group: Group, addresses: Array, size: int) -> Array:
    spaces = addresses >> np.uint64(32)
    for name, base in WINDOWS.items():
        inside = spaces == np.uint64(base >> 32)
        if inside.all():
            return LOADS[name](group, addresses - np.uint64(base), size)
        if inside.any():
            raise KernelError("threads read different kinds of memory in one instruction")
    return _load_global(group, addresses, size)


def _store_global(group: Group, addresses: Array, values: Array, size: int) -> None:
    group.batch.memory.store(addresses, values, size)


def _store_shared(group: Group, addresses: Array, values: Array, size: int) -> None:
    group.batch.store_shared(group, group.batch.block_of(group), addresses, values, size)


def _store_local(group: Group, addresses: Array, values: Array, size: int) -> None:
    group.batch.local.store(group.tids, addresses, values, size)


def _store_cluster(group: Group, addresses: Array, values: Array, size: int) -> None:
    blocks, offsets = group.batch.in_cluster(group, addresses)
    group.batch.store_shared(group, blocks, offsets, values, size)


def _store_generic(group: Group, addresses: Array, values: Array, size: int) -> None:
    spaces = addresses >> np.uint64(32)
    for name, base in WINDOWS.items():
        inside = spaces == np.uint64(base >> 32)
        if inside.all():
            STORES[name](group, addresses - np.uint64(base), values, size)
            return
        if inside.any():
            raise KernelError("threads write different kinds of memory in one instruction")
    _store_global(group, addresses, values, size)


LOADS: dict[str, Load] = {
    "global": _load_global, "const": _load_global, "shared": _load_shared, "shared::cta": _load_shared,
    "shared::cluster": _load_cluster, "local": _load_local, "generic": _load_generic,
}  # fmt: skip
STORES: dict[str, Store] = {
    "global": _store_global, "shared": _store_shared, "shared::cta": _store_shared, "shared::cluster": _store_cluster,
    "local": _store_local, "generic": _store_generic,
}  # fmt: skip


def space_of(i: PtxInstruction) -> str:
    """Return the memory space of an instruction."""
    return next((m for m in i.modifiers if m in SPACES), "generic")


def _shape(i: PtxInstruction) -> tuple[int, int]:
    """Return the number of elements, and the bytes of one."""
    for modifier in i.modifiers[:-1]:
        if modifier not in SPACES and modifier not in _VECTORS and modifier not in _HINTS:
            raise PtxError(f".{modifier} of {i.name} is not known")
    count = next((_VECTORS[m] for m in i.modifiers if m in _VECTORS), 1)
    size = TYPES[i.kind].itemsize
    if count * size > 16:
        raise PtxError("more than 16 bytes in one access are not known")
    return count, size


def _ld(p: KernelPreparation, i: PtxInstruction) -> Step:
    space = space_of(i)
    if space == "param":
        return _ld_param(p, i)
    count, size = _shape(i)
    load, address, kind = LOADS[space], p.address(i.operands[1]), TYPES[i.kind]
    writes = [p.write(part) for part in p.parts(i.operands[0])]
    if count == 1:
        (write,) = writes
        return lambda group: write(group, load(group, address(group), size).view(kind))

    def step(group: Group) -> None:
        whole = load(group, address(group), count * size)
        parts = whole.view(BITS[size]).reshape(-1, count)
        for n, write in enumerate(writes):
            write(group, np.ascontiguousarray(parts[:, n]).view(kind))

    return step


def _ld_param(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Load a parameter, equal in all threads."""
    count, size = _shape(i)
    writes, kind = [p.write(part) for part in p.parts(i.operands[0])], TYPES[i.kind]
    operand = i.operands[1]
    if isinstance(operand, Address) and isinstance(operand.base, PtxSymbol):
        at = p.symbols[operand.base.name] + operand.offset
        if at % size:
            raise PtxError(f"line {i.line}: the parameter is not aligned")

        def step(group: Group) -> None:
            parameters = group.batch.params
            if at + size * count > len(parameters):
                raise KernelError(f"{size * count} bytes at {at} of {len(parameters)} bytes of parameters are read")
            parts = np.frombuffer(parameters, np.uint8, size * count, at).copy().view(kind)
            for n, write in enumerate(writes):
                write(group, parts[n : n + 1])

        return step
    # By an address that threads have computed: of a parameter that is an array.
    address = p.address(operand)

    def gather(group: Group) -> None:
        parameters = np.frombuffer(group.batch.params, np.uint8)
        places = address(group).astype(np.int64)
        if int(places.max()) + size * count > len(parameters) or (places % size).any():
            raise KernelError("the parameters are read beyond their end, or not aligned")
        for n, write in enumerate(writes):
            bytes_ = parameters[places[:, None] + n * size + np.arange(size)]
            write(group, np.ascontiguousarray(bytes_).view(kind).reshape(-1))

    return gather


def _st(p: KernelPreparation, i: PtxInstruction) -> Step:
    space = space_of(i)
    count, size = _shape(i)
    if space not in STORES:
        raise PtxError(f"stores to {space} memory are not known")
    store, address = STORES[space], p.address(i.operands[0])
    reads = [_stored(p, part, size) for part in p.parts(i.operands[1])]
    if count == 1:
        (read,) = reads
        return lambda group: store(group, address(group), read(group), size)

    def step(group: Group) -> None:
        values = np.broadcast_arrays(*(read(group) for read in reads))
        whole = np.stack(values, 1).reshape(-1).view(BITS[count * size])
        store(group, address(group), whole, count * size)

    return step


def _stored(p: KernelPreparation, part: Operand, size: int) -> Callable[[Group], Array]:
    return p.read(part, f"b{8 * size}")


def _nothing(p: KernelPreparation, i: PtxInstruction) -> Step:
    return lambda group: None


def _fence(p: KernelPreparation, i: PtxInstruction) -> Step:
    if not i.has("proxy"):
        return lambda group: None
    if p.version < (9, 0):
        raise PtxError("fence.proxy needs sm_90")
    return lambda group: group.batch.shared.fence(group.batch.block_of(group))


ACCESS: dict[str, Builder] = {"ld": _ld, "ldu": _ld, "st": _st, "prefetch": _nothing, "membar": _nothing,
                              "fence": _fence}  # fmt: skip
