"""The simulator: a device with Tensix cores of wolfpine, in a process of its own, within limits of cycles and time."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import itertools
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirlo.extend.process import BoundedFailure, BoundedWorker, Bounds
from mirlo.extend.target import rv32
from mirlo_tensix.cores import MOST, SLOTS, SharedProduct
from mirlo_tensix.products import ROWS
from mirlo_tensix.riscv import ADDRESS, FLAG, Program, program_of
from mirlo_tensix.unit import DTYPES, Bits
from mirlo_tensix.work import PACK, Threads, Work

MEGAHERTZ = 1000
L1_BYTES = 1464 * 1024
PROGRAMS = 1 << 20
"""Where programs begin: unpackers reach the first MiB, which is for tensors."""
FIRST = 0x20000
"""Where tensors begin."""
L1_TENSORS = PROGRAMS - FIRST
SECONDS = 1800.0
"""The time limit of a piece of work."""
CORE = (18, 18)
UNITS = ("unpackers", "matrix and vector units", "packers")
"""What each thread gives instructions to."""
WORKER = BoundedWorker("mirlo_tensix.worker", bounds=Bounds(seconds=600, memory=1 << 36, is_background=False))
Span = tuple[str, int, int]
"""A unit, the first cycle and the one after the last in which it worked."""


class SimulatorError(RuntimeError):
    """Work that did not end on the simulator."""


@dataclass(frozen=True)
class Cycles:
    """The cycles of a piece of work."""

    simulated: int
    floor: int
    """What moving its bytes takes at least, which the simulator does not charge."""
    busy: dict[str, int]
    """The cycles in which each unit works."""
    spans: tuple[Span, ...] = ()
    """When the units worked, if that was asked for."""

    @property
    def bound(self) -> int:
        """Return a lower bound of the cycles on the hardware."""
        return max(self.simulated, self.floor)


def missing() -> str | None:
    """Return what to install; None if the simulator is installed."""
    return None if importlib.util.find_spec("framework") else "pip install 'mirlo-tensix[simulator]'"


def version() -> str:
    return "" if missing() else f"wolfpine {importlib.metadata.version('wolfpine')}"


def places_of(work: Work) -> tuple[int, ...]:
    """Return the places in L1 of the tensors of a piece of work that runs alone."""
    *places, end = itertools.accumulate(work.tensor_bytes, initial=FIRST)
    if end > PROGRAMS:
        raise SimulatorError(f"{work}: its tensors take {end - FIRST} bytes of L1, of which {L1_TENSORS} are for them")
    return tuple(places)


_lock = threading.RLock()


class Machine:
    """A device, whose L1 keeps its contents until the next device is started."""

    def __init__(
        self, cores: int = 1, seconds: float = SECONDS, progress: Callable[[str], None] | None = None,
        spans: bool = False,
    ) -> None:  # fmt: skip
        if (install := missing()) is not None:
            raise SimulatorError(f"a Tensix core is simulated by wolfpine: {install}")
        self.seconds, self.progress, self.spans = seconds, progress, spans
        self.cores = [(CORE[0] + i, CORE[1]) for i in range(cores)]

    def __enter__(self) -> Machine:
        _lock.acquire()
        self._call("start", cores=self.cores)
        return self

    def __exit__(self, *error: object) -> None:
        _lock.release()

    def _call(self, name: str, content: bytes = b"", /, **arguments: Any) -> Any:
        try:
            return WORKER.call(name, content, **arguments)
        except BoundedFailure as error:
            raise SimulatorError(f"the process of the simulator: {error}") from error

    def write(self, at: int, bits: Bits | bytes, place: Sequence[int] = CORE) -> None:
        self._call("write", bytes(bits), place=place, at=at)

    def read(self, at: int, size: int, place: Sequence[int] = CORE) -> bytes:
        content: bytes = self._call("read", place=place, at=at, size=size).content
        return content

    def run(self, work: Work, places: Sequence[int]) -> Cycles:
        """Run work on tensors in L1."""
        return self._run(str(work), work.limit, work.threads(places), [CORE], [])

    def run_shared(self, work: SharedProduct, left: Bits, right: Bits, ones: Bits | None) -> tuple[bytes, Cycles]:
        """Run a product on several cores, whose operands are in DRAM; return the result."""
        places, part = places_of(work.part), work.part
        for place, at, content in work.content(bytes(left), bytes(right)):
            self.write(at, content, place)
        movers = list[tuple[Sequence[int], str, int]]()
        for place, mover in zip(work.places, work.movers(places), strict=True):
            at = places[-1] + part.tensor_bytes[-1]
            for to, code in ((at, mover), (0, rv32.jump_to(at, ADDRESS))):
                self.write(to, struct.pack(f"<{len(code)}I", *code), place)
            self.write(ROWS, bytes(SLOTS + 16 * MOST - ROWS), place)
            if ones is not None:
                self.write(places[2], ones, place)
            movers.append((place, "BRISC", 0))
        cycles = self._run(str(work), work.limit, part.threads(places), work.places, movers)
        return b"".join(self.read(places[-1], part.tensor_bytes[-1], place) for place in work.places), cycles

    def _run(
        self, name: str, limit: int, code: Threads, cores: Sequence[Sequence[int]], entries: Sequence[Any]
    ) -> Cycles:
        programs = [program_of(words, i == PACK) for i, words in enumerate(code.words)]
        begins = list(itertools.accumulate((-(-len(each.code) // 64) * 64 for each in programs), initial=PROGRAMS))
        if begins[-1] > L1_BYTES:
            raise SimulatorError(f"{name}: its programs take {begins[-1] - PROGRAMS} bytes of L1")
        for place in cores:
            for at, program in zip(begins, programs, strict=False):
                self.write(at, program.code, place)
        started = [(place, f"TRISC{i}", begins[i]) for place in cores for i in range(3)]
        durations = code.durations if self.spans else {}
        self._call("launch", entries=[*started, *entries], flag=FLAG, durations=durations)
        ends = time.monotonic() + self.seconds
        while True:
            lasting = min(1.0, max(0.0, ends - time.monotonic()))
            answer = self._call("advance", limit=limit, lasting=lasting).value
            if answer.get("failure"):
                waits = [*answer["units"], *_waits(answer["stuck"], begins, programs)]
                raise SimulatorError("; ".join([f"{name}: {answer['failure']}", *waits]))
            if answer["done"]:
                spans = tuple((unit, first, last) for unit, first, last in answer["spans"])
                return Cycles(answer["cycles"], code.floor, code.busy, spans)
            if time.monotonic() > ends:
                raise SimulatorError(f"{name}: took more than {self.seconds:g} seconds")
            if self.progress is not None:
                self.progress(f"{name}: {answer['cycles']} cycles")


def _waits(stuck: Sequence[Sequence[int]], begins: Sequence[int], programs: Sequence[Program]) -> Iterator[str]:
    """Yield the commands at which threads wait: those of the words that were pushed before the ones that wait."""
    for thread, counter, waiting in stuck:
        program = programs[thread]
        pushed = min((counter - begins[thread]) // 4, program.words)
        yield f"the {UNITS[thread]} wait in '{program.command_at(pushed - waiting)}'"


def execute(work: Work, *operands: Bits, machine: Machine | None = None) -> tuple[Bits, Cycles]:
    """Run a piece of work alone on a new device; return the result, and the cycles."""
    places = places_of(work)
    with machine or Machine() as device:
        for at, bits in zip(places, operands, strict=False):
            device.write(at, bits)
        cycles = device.run(work, places)
        result = device.read(places[-1], work.tensor_bytes[-1])
    return np.frombuffer(result, DTYPES[work.format]), cycles


@functools.lru_cache(maxsize=256)
def measure(work: Work) -> Cycles:
    """Return the cycles of a piece of work, which do not depend on its data."""
    return execute(work, *(np.zeros(size // 2, np.uint16) for size in work.tensor_bytes[:-1]))[1]
