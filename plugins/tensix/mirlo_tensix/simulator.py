"""The simulator: products on a Tensix core of wolfpine, in a process of its own, within limits of cycles and time."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import pickle
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo_tensix.instructions import DONE, TILE_BYTES, Word
from mirlo_tensix.products import Product, threads
from mirlo_tensix.unit import Bits
from mirlo_tensix.worker import Job

MEGAHERTZ = 1000
L1_BYTES = 1464 * 1024
ADDRESSABLE = 1 << 20
"""Unpackers reach the first MiB."""
FIRST = 0x20000
"""Where tensors begin."""
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


@dataclass(frozen=True)
class Memory:
    """Where the tensors and the programs of a product are in L1."""

    tensors: tuple[int, int, int]
    programs: tuple[int, int, int]
    end: int


def place(product: Product, words: tuple[int, int, int] | None = None) -> Memory:
    """Return where a product is in L1; with the words of the threads also where these are."""
    at, tensors = FIRST, []
    for size in product.tensor_bytes:
        tensors.append(at)
        at += size
    programs = []
    for count in words or (0, 0, 0):
        programs.append(at)
        at += -(-4 * (count + 8) // 64) * 64
    return Memory((tensors[0], tensors[1], tensors[2]), (programs[0], programs[1], programs[2]), at)


def why_too_large(product: Product) -> str | None:
    """Return why a product does not fit into L1, None if it does."""
    memory = place(product)
    tensors = memory.end - FIRST
    if memory.end > ADDRESSABLE:
        return f"its operands and result take {tensors} bytes of L1, of which {ADDRESSABLE - FIRST} are for tensors"
    return None  # programs of products whose tensors fit take less than what is left behind them


def execute(product: Product, left: Bits, right: Bits, seconds: float = SECONDS) -> tuple[Bits, Cycles]:
    """Run a product of tiles on the simulator; return the tiles of the result, and the cycles."""
    if (install := missing()) is not None:
        raise SimulatorError(f"a Tensix core is simulated by wolfpine: {install}")
    code = threads(product, place(product).tensors)
    memory = place(product, (len(code.words[0]), len(code.words[1]), len(code.words[2])))
    raw, cycles = _in_process(product, memory, code.words, (left.tobytes(), right.tobytes()), seconds)
    tiles = np.frombuffer(raw, np.uint16).reshape(product.m, product.n, *left.shape[2:])
    return tiles, Cycles(cycles, code.floor, product.mvmuls)


@functools.lru_cache(maxsize=256)
def measure(product: Product) -> Cycles:
    """Return the cycles of a product, which do not depend on its data."""
    a, b = (np.zeros((rows, columns, TILE_BYTES // 2), np.uint16) for rows, columns in _shapes(product))
    return execute(product, a, b)[1]


def _shapes(product: Product) -> tuple[tuple[int, int], tuple[int, int]]:
    return (product.m, product.k), (product.k, product.n)


def _in_process(
    product: Product, memory: Memory, words: tuple[list[Word], ...], operands: tuple[bytes, bytes], seconds: float
) -> tuple[bytes, int]:
    """Run a product in a process that ends with it: the simulator has state of its own and reads the environment."""
    programs = (program_of(each, i == 2) for i, each in enumerate(words))
    content = (*zip(memory.tensors, operands, strict=False), *zip(memory.programs, programs, strict=True))
    result = (memory.tensors[2], product.tensor_bytes[2])
    job = Job(content, memory.programs, FLAG, result, 20_000 + 40 * product.mvmuls)
    fields = tuple(getattr(job, each.name) for each in dataclasses.fields(job))
    what = f"a product of {product.m} x {product.k} and {product.k} x {product.n} tiles"
    try:
        done = subprocess.run(
            [sys.executable, WORKER], input=pickle.dumps(fields), capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise SimulatorError(f"{what} took more than {seconds:g} seconds") from error
    if done.returncode:
        report = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        stalls = [line.strip() for line in report if "DEADLOCK" in line]
        raise SimulatorError(f"{what}: {'; '.join([*stalls[:4], *report[-1:]])}")
    return done.stdout[8:], int.from_bytes(done.stdout[:8], "little")


def program_of(words: list[Word], is_last: bool) -> bytes:
    """Return the program of a thread's core: each word as an instruction, which is the word rotated by two bits.

    The last thread then waits for the semaphore of the end and stores a flag.
    """
    rotated = [(word << 2 | word >> 30) & 0xFFFFFFFF for word in words]
    wait = [
        0xFFE80000 | 5 << 7 | 0x37, (0x20 + 4 * DONE) << 20 | 5 << 15 | 2 << 12 | 6 << 7 | 0x03, 0xFE030EE3,
        1 << 20 | 6 << 7 | 0x13, FLAG >> 5 << 25 | 6 << 20 | 2 << 12 | (FLAG & 31) << 7 | 0x23,
    ]  # fmt: skip
    every = [*rotated, *(wait if is_last else []), 0x6F]
    return struct.pack(f"<{len(every)}I", *every)
