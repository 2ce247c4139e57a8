"""Memory for translated functions: random elements, between guards of garbage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mirlo.dialects.core.dims import Dim, substitute
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import RESIDUE, Plane
from mirlo.passes.exact.reused_memory import empty_array, repeating_array
from mirlo.passes.exact.translator import GUARD_BYTES, Argument
from mirlo.runtime.cache import digest_of
from mirlo.runtime.records import dataclass

Array = npt.NDArray[Any]
_INTEGERS = {1: np.int8, 8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
MOST_BUFFER_ELEMENTS = 1 << 26
"""The most elements of a buffer, of which there are a few copies."""
CHUNK = 1 << 15
"""How many residues are drawn at once, which stay in the processor's cache."""
POOL = 9973
"""How many elements the contents of memory that is not written yet repeat after: a prime, as no stride of a kernel."""
DRAWN_INPUTS = 269 << 10
"""The same for inputs: no two elements that kernels confuse are at a distance that is a multiple of it.
They are whole pages of memory."""
KEPT_STREAMS = 16
"""How many streams of residues of inputs are kept: those of two rounds of a kernel of several inputs."""
DRAWN = 1021
"""The same for guards around integers."""
FORM = 1 << 20
"""Seeds of the memory of a definition; added to those of the scheduled form's, which has other contents."""


def number_of(dim: Dim, sizes: Mapping[str, int]) -> int:
    """Return a dim as a number."""
    value = dim if isinstance(dim, int) else substitute(dim, sizes)
    if not isinstance(value, int):
        raise OutsideError(f"the size {dim}")
    return value


class GuardedBuffer:
    """The planes of a buffer, each with guards around it."""

    def __init__(self, wholes: list[Array], count: int):
        self._wholes = wholes
        self.count = count

    @property
    def wholes(self) -> list[Array]:
        """Return the elements of each plane, with the guards."""
        return self._wholes

    @cached_property
    def digest(self) -> str:
        """Return a text that buffers of other elements do not have."""
        parts = [f"{plane.dtype} {digest_of(plane.view(np.uint8).data)}" for plane in self.planes]
        return " ".join(parts)

    @staticmethod
    def of(planes: Sequence[Array]) -> GuardedBuffer:
        """Return planes between guards of zeros."""
        wholes = []
        for plane in planes:
            room = GUARD_BYTES // plane.itemsize
            wholes.append(np.pad(plane, room))
        return GuardedBuffer(wholes, len(planes[0]))

    @property
    def planes(self) -> list[Array]:
        """Return the elements between the guards."""
        return [whole[guard_of(whole) : guard_of(whole) + self.count] for whole in self.wholes]

    @property
    def words(self) -> list[int]:
        """Return the numbers that a function takes: the address of each plane, and the bytes of one."""
        planes = self.planes
        return [*(int(plane.ctypes.data) for plane in planes), self.count * self.wholes[0].itemsize]

    def checksum(self) -> list[int]:
        """Return numbers that differ after a write, except where several random elements were changed by 0 in all."""
        sums = []
        for whole in self.wholes:
            words = whole.view(np.uint8)[: whole.nbytes // 8 * 8].view(np.uint64)
            rest = whole.view(np.uint8)[whole.nbytes // 8 * 8 :]
            sums.append(int(words.sum(dtype=np.uint64)) + int(rest.sum()))
        return sums

    def guards(self) -> list[bytes]:
        """Return copies of the guards."""
        return [part.tobytes() for part in self._guards()]

    def has_guards(self, guards: Sequence[bytes]) -> bool:
        """Return whether the guards are unchanged."""
        return self.guards() == guards

    def _guards(self) -> list[Array]:
        return [
            part for whole in self.wholes for part in (whole[: guard_of(whole)], whole[guard_of(whole) + self.count :])
        ]


class NumberBuffer(GuardedBuffer):
    """Small integers under a name, whose residues are computed where they are read."""

    def __init__(self, numbers: Array, moduli: Sequence[Plane], name: str):
        super().__init__([], len(numbers))
        self.numbers = numbers
        self._moduli, self._name = moduli, name

    @cached_property
    def digest(self) -> str:
        return self._name

    @property
    def wholes(self) -> list[Array]:
        if not self._wholes:
            integers = self.numbers.astype(np.int64)
            planes = [(integers + (integers < 0) * plane.modulus).astype(RESIDUE) for plane in self._moduli]
            self._wholes = GuardedBuffer.of(planes).wholes
        return self._wholes


def guard_of(whole: Array) -> int:
    """Return how many elements are in each of the guards around a plane."""
    return GUARD_BYTES // int(whole.itemsize)


def copy_of_guards(whole: Array, count: int) -> Array:
    """Return other memory for a plane, with the same guards; its elements are not set."""
    copy, first = empty_array(len(whole), whole.dtype), guard_of(whole)
    copy[:first], copy[first + count :] = whole[:first], whole[first + count :]
    return copy


class RandomMemory:
    """Maker of buffers for an arithmetic."""

    def __init__(self, arithmetic: Arithmetic, seed: int, scale: float = 1.0):
        self.arithmetic, self.scale = arithmetic, scale
        self.rng = np.random.default_rng(seed)
        self._seed, self._form = seed, seed // FORM
        self._inputs = 0
        """How many inputs were filled with residues."""
        self._pools: dict[int, Array] = {}

    def buffer(
        self, argument: Argument, sizes: Mapping[str, int], values: IntegerInputs | None = None, is_kept: bool = False
    ) -> GuardedBuffer:
        """Return a buffer of random elements; integers are drawn from `values`, if any.

        Elements of an input that `is_kept` are those of other kernels, until `forget_inputs`: they are only read.
        """
        count = math.prod(number_of(dim, sizes) for dim in argument.shape)
        if count > MOST_BUFFER_ELEMENTS:
            raise OutsideError(f"a buffer of {count} elements, which is too large to be compared")
        if argument.kind == "f":
            fill = self._garbage if argument.role != "in" else self._kept_floats if is_kept else self._floats
            return GuardedBuffer([fill(count, plane) for plane in range(self.arithmetic.planes)], count)
        dtype = _INTEGERS.get(argument.bits)
        if dtype is None:
            raise OutsideError(f"a buffer of integers of {argument.bits} bits")
        room = GUARD_BYTES // np.dtype(dtype).itemsize
        planes = self.arithmetic.planes if argument.kind == "bytes" else 1
        info = np.iinfo(dtype)

        def draw(size: int) -> Array:
            if values is None:
                return self.rng.integers(info.min, info.max, size, dtype, endpoint=True)
            return values.draw(self.rng, size).astype(dtype)

        wholes = []
        for _ in range(planes):
            guard = np.resize(draw(min(room, DRAWN)), room)
            wholes.append(np.concatenate([guard, draw(count), guard]))
        return GuardedBuffer(wholes, count)

    def _garbage(self, count: int, plane: int) -> Array:
        """Return the content of a buffer before it is written: random residues, which repeat."""
        return self._repeated(count + 2 * GUARD_BYTES // self.arithmetic.bytes, plane)

    def _repeated(self, size: int, plane: int) -> Array:
        """Return random elements that repeat, from a random one on."""
        start = int(self.rng.integers(0, POOL))
        pool = self._pool(plane)[start : start + POOL]
        elements = empty_array(size, pool.dtype)
        whole = size - size % POOL
        elements[:whole].reshape(-1, POOL)[:] = pool
        elements[whole:] = pool[: size - whole]
        return elements

    def _pool(self, plane: int) -> Array:
        """Return the elements that repeat, twice."""
        if isinstance(self.arithmetic, FieldArithmetic):
            return _pool_of_residues(self.arithmetic.moduli[plane], self._form)
        if plane not in self._pools:
            self._pools[plane] = np.tile(self._drawn(POOL), 2)
        return self._pools[plane]

    def _kept_floats(self, count: int, plane: int) -> Array:
        """Return random elements between guards: the first ones of an array, of which the second guard is the next."""
        if not isinstance(self.arithmetic, FieldArithmetic):
            return self._floats(count, plane)
        key = self.arithmetic.moduli[plane].modulus, self._seed, self._inputs + 1
        size = count + 2 * GUARD_BYTES // self.arithmetic.bytes
        whole = _kept_inputs.pop(key, None)
        if whole is None or len(whole) < size:
            whole = self._floats(count, plane)
        else:
            self._inputs += 1
        _kept_inputs[key] = whole
        if len(_kept_inputs) > KEPT_STREAMS:
            del _kept_inputs[next(iter(_kept_inputs))]
        return whole[:size]

    def _floats(self, count: int, plane: int) -> Array:
        """Return random elements between guards, which repeat."""
        room = GUARD_BYTES // self.arithmetic.bytes
        guards = self._repeated(2 * room, plane)
        if isinstance(self.arithmetic, FieldArithmetic):
            self._inputs += 1
            stream = residue_stream(self.arithmetic.moduli[plane], self._seed, self._inputs)
            drawn = stream.first(min(count, DRAWN_INPUTS))
        else:
            drawn = self._drawn(min(count, DRAWN_INPUTS))
        whole = repeating_array(drawn, count, room)
        whole[:room], whole[room + count :] = guards[:room], guards[room:]
        return whole

    def _drawn(self, count: int) -> Array:
        """Return random 64-bit floats."""
        return self.rng.standard_normal(count) * self.scale


_kept_inputs: dict[tuple[int, int, int], Array] = {}
"""Inputs by modulus, seed and position, the last used one last."""


def forget_inputs() -> None:
    """Discard the inputs that kernels share: after a kernel wrote to one, or when no kernel is left."""
    _kept_inputs.clear()


class ResidueStream:
    """The random residues of an input of a round: the first ones of them are those of each kernel."""

    def __init__(self, plane: Plane, seed: int, position: int):
        self._plane, self._seed = plane, [seed, position, plane.modulus]
        self._residues: Array = np.empty(0, RESIDUE)

    def first(self, count: int) -> Array:
        """Return the first residues, which are only read."""
        if len(self._residues) < count:
            self._residues = np.empty(count, RESIDUE)
            _draw_residues(np.random.default_rng(self._seed), self._plane, self._residues)
            self._residues.flags.writeable = False
        return self._residues[:count]


@lru_cache(maxsize=KEPT_STREAMS)
def residue_stream(plane: Plane, seed: int, position: int) -> ResidueStream:
    """Return the residues of an input of a round by its position; those of the last few are kept."""
    return ResidueStream(plane, seed, position)


@cache
def _pool_of_residues(plane: Plane, form: int) -> Array:
    """Return the contents of memory that is not written yet, twice."""
    residues = np.empty(POOL, RESIDUE)
    _draw_residues(np.random.default_rng([POOL, form]), plane, residues)
    return np.tile(residues, 2)


def _draw_residues(rng: np.random.Generator, plane: Plane, residues: Array) -> None:
    """Fill memory with random residues: numbers of as many bits; the few from the modulus on are reduced."""
    for start in range(0, len(residues), CHUNK):
        part = residues[start : start + CHUNK]
        words = rng.bit_generator.random_raw((len(part) + 1) // 2).view(np.uint32)
        np.right_shift(words[: len(part)], 32 - plane.bits, out=part)
        if part.max() >= plane.modulus:
            part[part >= plane.modulus] -= plane.modulus


class UnsetMemory(RandomMemory):
    """Maker of buffers for results of which every element is written."""

    def _garbage(self, count: int, plane: int) -> Array:
        size = count + 2 * GUARD_BYTES // self.arithmetic.bytes
        return empty_array(size, RESIDUE if isinstance(self.arithmetic, FieldArithmetic) else np.float64)


class ZeroMemory(RandomMemory):
    """Maker of buffers of zeros, for results whose unwritten elements are not compared."""

    def _garbage(self, count: int, plane: int) -> Array:
        size = count + 2 * GUARD_BYTES // self.arithmetic.bytes
        return np.zeros(size, RESIDUE if isinstance(self.arithmetic, FieldArithmetic) else np.float64)


@dataclass(frozen=True)
class IntegerInputs:
    """The range of integers of an input: special numbers, others near them, zeros and ones."""

    special: Array
    is_bool: bool = False

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        if self.is_bool:
            return rng.integers(0, 2, size)
        kind = rng.random(size)
        near = rng.integers(self.special.min() - 2, self.special.max() + 3, size)
        values = np.where(kind < 0.35, rng.choice(self.special, size), near)
        return np.where(kind > 0.65, rng.integers(0, 2, size), values)
