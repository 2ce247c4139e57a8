"""The simulator: products on a Tensix core of wolfpine, in a process of its own, within limits of cycles and time."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import itertools
import pickle
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo_tensix.instructions import DONE, TILE, Instructions, Word
from mirlo_tensix.kernels import VectorWork
from mirlo_tensix.products import Product
from mirlo_tensix.unit import Bits
from mirlo_tensix.worker import Job

MEGAHERTZ = 1000
L1_BYTES = 1464 * 1024
ADDRESSABLE = 1 << 20
"""Unpackers reach the first MiB."""
FIRST = 0x20000
"""Where tensors begin."""
L1_TENSORS = ADDRESSABLE - FIRST
FLAG = 0x40
"""Where the last thread says that it is done."""
WORKER = Path(__file__).with_name("worker.py")
SECONDS = 1800.0
"""The time limit of a product."""


class SimulatorError(RuntimeError):
    """A product that did not end on the simulator."""


@dataclass(frozen=True)
class Cycles:
    """What a product took."""

    simulated: int
    floor: int
    """What moving its bytes takes at least, which the simulator does not charge."""
    mvmul: int

    @property
    def bound(self) -> int:
        """Return the cycles that the hardware takes at least."""
        return max(self.simulated, self.floor)


def missing() -> str | None:
    """Return what to install, None if the simulator is there."""
    return None if importlib.util.find_spec("framework") else "pip install 'mirlo-tensix[simulator]'"


def version() -> str:
    return "" if missing() else f"wolfpine {importlib.metadata.version('wolfpine')}"


Work = Product | VectorWork


@dataclass(frozen=True)
class Memory:
    """Where the tensors and the programs of a piece of work are in L1."""

    tensors: tuple[int, ...]
    programs: tuple[int, ...]
    end: int


def place(work: Work, programs: Sequence[bytes] = ()) -> Memory:
    """Return where the tensors of a piece of work are in L1, and where its programs."""
    sizes = [*work.tensor_bytes, *(-(-len(program) // 64) * 64 for program in programs)]
    begins = list(itertools.accumulate(sizes, initial=FIRST))
    count = len(work.tensor_bytes)
    return Memory(tuple(begins[:count]), tuple(begins[count:-1]), begins[-1])


def why_too_large(work: Work) -> str | None:
    """Return why a piece of work does not fit into L1, None if it does."""
    end = place(work).end
    if end > ADDRESSABLE:
        return f"its operands and result take {end - FIRST} bytes of L1, of which {L1_TENSORS} are for tensors"
    return None  # programs of work whose tensors fit take less than what is left behind them


def execute(work: Work, *operands: Bits, seconds: float = SECONDS) -> tuple[Bits, Cycles]:
    """Run a piece of work on tiles on the simulator; return the tiles of the result, and the cycles."""
    if (install := missing()) is not None:
        raise SimulatorError(f"a Tensix core is simulated by wolfpine: {install}")
    code = work.threads(place(work).tensors)
    programs = [program_of(words, i == 2) for i, words in enumerate(code.words)]
    raw, cycles = _in_process(work, programs, [each.tobytes() for each in operands], seconds)
    tiles = np.frombuffer(raw, np.uint16).reshape(*work.result_shape, 2, 2, TILE // 2, TILE // 2)
    return tiles, Cycles(cycles, code.floor, work.mvmuls)


@functools.lru_cache(maxsize=256)
def measure(work: Work) -> Cycles:
    """Return the cycles of a piece of work, which do not depend on its data."""
    return execute(work, *(np.zeros(size // 2, np.uint16) for size in work.tensor_bytes[:-1]))[1]


def _in_process(work: Work, programs: Sequence[bytes], operands: Sequence[bytes], seconds: float) -> tuple[bytes, int]:
    """Run programs in a process that ends with them: the simulator has state of its own and reads the environment."""
    memory = place(work, programs)
    content = (*zip(memory.tensors, operands, strict=False), *zip(memory.programs, programs, strict=True))
    job = Job(content, memory.programs, FLAG, (memory.tensors[-1], work.tensor_bytes[-1]), work.limit)
    fields = tuple(getattr(job, each.name) for each in dataclasses.fields(job))
    try:
        done = subprocess.run(
            [sys.executable, WORKER], input=pickle.dumps(fields), capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise SimulatorError(f"{work} took more than {seconds:g} seconds") from error
    if done.returncode:
        report = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        stalls = [line.strip() for line in report if "DEADLOCK" in line]
        raise SimulatorError(f"{work}: {'; '.join([*stalls[:4], *report[-1:]])}")
    return done.stdout[8:], int.from_bytes(done.stdout[:8], "little")


def _rv32(words: Instructions, depth: int = 0) -> Iterator[int]:
    """Yield the instructions of a thread's core: a word is an instruction if it is rotated by two bits."""
    for word in words:
        if isinstance(word, Word):
            yield (word << 2 | word >> 30) & 0xFFFFFFFF
            continue
        register, body = 8 + depth, list(_rv32([*word.body], depth + 1))
        yield word.count << 20 | register << 7 | 0x13  # addi register, x0, count
        yield from body
        yield 0xFFF << 20 | register << 15 | register << 7 | 0x13  # addi register, register, -1
        yield 0x0463 | register << 15  # beq register, x0, 8
        back = -4 * (len(body) + 2)
        bits = back >> 20 & 1, back >> 1 & 0x3FF, back >> 11 & 1, back >> 12 & 0xFF
        yield bits[0] << 31 | bits[1] << 21 | bits[2] << 20 | bits[3] << 12 | 0x6F  # jal x0, back


def program_of(words: Instructions, is_last: bool) -> bytes:
    """Return the program of a thread's core; the last one then waits for the semaphore of the end and stores a flag."""
    wait = [
        0xFFE80000 | 5 << 7 | 0x37, (0x20 + 4 * DONE) << 20 | 5 << 15 | 2 << 12 | 6 << 7 | 0x03, 0xFE030EE3,
        1 << 20 | 6 << 7 | 0x13, FLAG >> 5 << 25 | 6 << 20 | 2 << 12 | (FLAG & 31) << 7 | 0x23,
    ]  # fmt: skip
    every = [*_rv32(words), *(wait if is_last else []), 0x6F]
    return struct.pack(f"<{len(every)}I", *every)
