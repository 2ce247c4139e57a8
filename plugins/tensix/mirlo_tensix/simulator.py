"""The simulator: work on a Tensix core of wolfpine, in a process of its own, within limits of cycles and time."""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import importlib.util
import itertools
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mirlo_tensix.cores import MOST, SLOTS, SharedProduct
from mirlo_tensix.instructions import DONE, TILE, Instructions, Loop, Mark, Riscv
from mirlo_tensix.kernels import VectorWork
from mirlo_tensix.products import ROWS, Product
from mirlo_tensix.riscv import jump, jump_to
from mirlo_tensix.unit import Bits
from mirlo_tensix.worker import Answer, Job, Span, Stuck, fields

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
"""The time limit of a piece of work."""
CORE = (18, 18)
UNITS = ("unpackers", "matrix and vector units", "packers")
"""What each thread gives instructions to."""


class SimulatorError(RuntimeError):
    """Work that did not end on the simulator."""


@dataclass(frozen=True)
class Cycles:
    """What a piece of work took."""

    simulated: int
    floor: int
    """What moving its bytes takes at least, which the simulator does not charge."""
    busy: dict[str, int]
    """The cycles in which each unit works."""
    spans: tuple[Span, ...] = ()
    """When the units worked, if that was asked for."""

    @property
    def bound(self) -> int:
        """Return the cycles that the hardware takes at least."""
        return max(self.simulated, self.floor)


def missing() -> str | None:
    """Return what to install, None if the simulator is there."""
    return None if importlib.util.find_spec("framework") else "pip install 'mirlo-tensix[simulator]'"


def version() -> str:
    return "" if missing() else f"wolfpine {importlib.metadata.version('wolfpine')}"


Work = Product | VectorWork | SharedProduct


@dataclass(frozen=True)
class Memory:
    """Where the tensors and the programs of a piece of work are in L1."""

    tensors: tuple[int, ...]
    programs: tuple[int, ...]
    end: int


def place(work: Product | VectorWork, programs: Sequence[bytes] = ()) -> Memory:
    """Return where the tensors of a piece of work are in L1, and where its programs."""
    sizes = [*work.tensor_bytes, *(-(-len(program) // 64) * 64 for program in programs)]
    begins = list(itertools.accumulate(sizes, initial=FIRST))
    count = len(work.tensor_bytes)
    return Memory(tuple(begins[:count]), tuple(begins[count:-1]), begins[-1])


def why_too_large(work: Work) -> str | None:
    """Return why a piece of work does not fit into L1, None if it does."""
    end = place(work.part if isinstance(work, SharedProduct) else work).end
    if end > ADDRESSABLE:
        return f"its operands and result take {end - FIRST} bytes of L1, of which {L1_TENSORS} are for tensors"
    return None  # programs of work whose tensors fit take less than what is left behind them


class Process:
    """The process of the simulator: it is started by the first job, and answers the next ones too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def answer(self, job: Job, seconds: float, progress: Callable[[int], None] | None = None) -> Answer:
        """Return what became of a job; `progress` gets its cycles from time to time."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            ends = time.monotonic() + seconds
            _send(process.stdin, fields(job))
            try:
                while isinstance(content := _receive(process.stdout, ends), int):
                    if progress is not None:
                        progress(content)
            except (TimeoutError, EOFError) as error:
                self.stop()
                return Answer(failure=str(error) or f"took more than {seconds:g} seconds")
            *start, stuck, units = content
            return Answer(*start, tuple(Stuck(*each) for each in stuck), units)

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the process, a new one in a fork of the one that started it."""
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._process

    def stop(self) -> None:
        """End the process, unless it is that of the process that forked this one."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None


PROCESS = Process()
atexit.register(PROCESS.stop)


def _send(stream: Any, content: object) -> None:
    data = pickle.dumps(content)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def _receive(stream: Any, ends: float) -> Any:
    """Return the next content; TimeoutError if it does not come in time, EOFError if the process ended."""
    return pickle.loads(_bytes(stream, struct.unpack("<q", _bytes(stream, 8, ends))[0], ends))


def _bytes(stream: Any, size: int, ends: float) -> bytes:
    data = b""
    while len(data) < size:
        if not select.select([stream], [], [], max(0.0, ends - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(stream.fileno(), size - len(data))
        if not part:
            raise EOFError("the process of the simulator ended")
        data += part
    return data


@dataclass(frozen=True)
class Trace:
    """What a caller wants to know of work while it runs: progress in cycles, and when units work."""

    progress: Callable[[int], None] | None = None
    spans: bool = False


def execute(work: Work, *operands: Bits, seconds: float = SECONDS, trace: Trace = Trace()) -> tuple[Bits, Cycles]:
    """Run a piece of work on tiles on the simulator; return the tiles of the result, and the cycles."""
    if (install := missing()) is not None:
        raise SimulatorError(f"a Tensix core is simulated by wolfpine: {install}")
    part, cores = (work.part, work.places) if isinstance(work, SharedProduct) else (work, [CORE])
    code = work.threads(place(part).tensors)
    programs = [program_of(words, i == 2) for i, words in enumerate(code.words)]
    memory = place(part, [each.code for each in programs])
    entries = [(core, f"TRISC{i}", at) for core in cores for i, at in enumerate(memory.programs)]
    content = [(core, at, each.code) for core in cores for at, each in zip(memory.programs, programs, strict=True)]
    if isinstance(work, SharedProduct):
        content += work.content(*(each.tobytes() for each in operands))
        for core, mover in zip(cores, work.movers(memory.tensors), strict=True):
            content += [(core, memory.end, struct.pack(f"<{len(mover)}I", *mover))]
            content += [
                (core, 0, struct.pack("<2I", *jump_to(memory.end))),
                (core, ROWS, bytes(SLOTS + 16 * MOST - ROWS)),
            ]
            entries.append((core, "BRISC", 0))
    else:
        content += [(CORE, at, each.tobytes()) for at, each in zip(memory.tensors, operands, strict=False)]
    results = tuple((core, memory.tensors[-1], part.tensor_bytes[-1]) for core in cores)
    durations = code.durations if trace.spans else ()
    job = Job(tuple(cores), tuple(content), tuple(entries), FLAG, results, work.limit, durations)
    answer = PROCESS.answer(job, seconds, trace.progress)
    if answer.failure:
        waits = [*answer.units, *_waits(answer, entries, programs)]
        raise SimulatorError("; ".join([f"{work}: {answer.failure}", *waits]))
    dtype = np.uint16 if work.kind.bytes == 2 else np.uint32
    tiles = np.frombuffer(b"".join(answer.results), dtype).reshape(*work.result_shape, 2, 2, TILE // 2, TILE // 2)
    return tiles, Cycles(answer.cycles, code.floor, code.busy, answer.spans)


def _waits(answer: Answer, entries: Sequence[tuple[Any, str, int]], programs: Sequence[Program]) -> Iterator[str]:
    """Yield the commands at which threads wait: those of the words that were pushed before the ones that wait."""
    for stuck in answer.stuck:
        program = programs[stuck.thread]
        pushed = min((stuck.counter - entries[stuck.thread][2]) // 4, program.words)
        yield f"the {UNITS[stuck.thread]} wait in '{program.command_at(pushed - stuck.waiting)}'"


@functools.lru_cache(maxsize=256)
def measure(work: Work) -> Cycles:
    """Return the cycles of a piece of work, which do not depend on its data."""
    return execute(work, *(np.zeros(size // 2, np.uint16) for size in work.tensor_bytes[:-1]))[1]


@dataclass
class Program:
    """The program of a thread's core, and where its commands begin."""

    code: bytes = b""
    marks: list[tuple[int, str]] = field(default_factory=list)
    words: int = 0
    """How many of its instructions are words or loops of words, which come first."""

    def command_at(self, word: int) -> str:
        """Return the command that a word belongs to."""
        found = bisect_right(self.marks, word, key=lambda mark: mark[0])
        return self.marks[found - 1][1] if found else "configuration"


def _rv32(words: Instructions, marks: list[tuple[int, str]], first: int = 0, depth: int = 0) -> list[int]:
    """Return the instructions of a thread's core: a word is an instruction if it is rotated by two bits."""
    code = list[int]()
    for word in words:
        if isinstance(word, Mark):
            marks.append((first + len(code), word.command))
        elif isinstance(word, Riscv):
            code += word.code
        elif isinstance(word, Loop):
            register, body = 8 + depth, _rv32([*word.body], marks, first + len(code) + 1, depth + 1)
            code += [
                word.count << 20 | register << 7 | 0x13,  # addi register, x0, count
                *body,
                0xFFF << 20 | register << 15 | register << 7 | 0x13,  # addi register, register, -1
                0x0463 | register << 15,  # beq register, x0, 8
                jump(-4 * (len(body) + 2)),
            ]
        else:
            code.append((word << 2 | word >> 30) & 0xFFFFFFFF)
    return code


def program_of(words: Instructions, is_last: bool) -> Program:
    """Return the program of a thread's core; the last one then waits for the semaphore of the end and stores a flag."""
    wait = [
        0xFFE80000 | 5 << 7 | 0x37, (0x20 + 4 * DONE) << 20 | 5 << 15 | 2 << 12 | 6 << 7 | 0x03, 0xFE030EE3,
        1 << 20 | 6 << 7 | 0x13, FLAG >> 5 << 25 | 6 << 20 | 2 << 12 | (FLAG & 31) << 7 | 0x23,
    ]  # fmt: skip
    marks = list[tuple[int, str]]()
    pushed = _rv32(words, marks)
    every = [*pushed, *(wait if is_last else []), 0x6F]
    return Program(struct.pack(f"<{len(every)}I", *every), marks, len(pushed))
