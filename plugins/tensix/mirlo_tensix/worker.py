"""The process that simulates: it answers jobs from standard input, one after the other, on a device of wolfpine."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

CONFIGURATION = 0xFFEF0000
RESET_PC, RESET_PC_ENABLE = 158, 161
"""Words of configuration that say where the cores of the threads begin."""
STALL = 4000
"""Cycles without progress that are a deadlock."""
PROGRESS_SECONDS = 1.0
Place = tuple[int, int]
Span = tuple[str, int, int]
"""A unit, the first cycle and the one after the last in which it worked."""
UNITS = {"UNPACKER": "unpackers", "MATRIX": "matrix", "SFPU": "vector", "PACKER": "packers"}
"""Units by their names in the simulator."""


@dataclass(frozen=True)
class Job:
    """What to write, which RISC-V cores to start, what to wait for and what to read."""

    cores: tuple[Place, ...]
    content: tuple[tuple[Place, int, bytes], ...]
    entries: tuple[tuple[Place, str, int], ...]
    """Where each RISC-V core begins: the core's place, its name, and the address of its program."""
    flag: int
    """Where in L1 a core stores that it is done."""
    results: tuple[tuple[Place, int, int], ...]
    """The places, addresses and bytes of results."""
    limit: int
    """The most cycles."""
    durations: tuple[tuple[str, int], ...] = ()
    """If it is traced: instructions whose cycles the simulator does not charge, and how many they take."""


@dataclass(frozen=True)
class Stuck:
    """A thread that waits: its core, its number, the counter of its program, and its instructions that wait."""

    place: Place
    thread: int
    counter: int
    waiting: int


@dataclass(frozen=True)
class Answer:
    """What became of a job."""

    cycles: int = 0
    results: tuple[bytes, ...] = ()
    spans: tuple[Span, ...] = ()
    failure: str = ""
    stuck: tuple[Stuck, ...] = ()
    units: tuple[str, ...] = ()
    """What the units that wait need."""


class Device:
    """A device with the cores of a job, and what its units do."""

    def __init__(self, job: Job) -> None:
        from framework.device.tt_device import Wormhole
        from framework.pe.rv.babyriscv import BabyRISCVCoreType

        self.job, self.spans, self.durations = job, dict[str, list[tuple[int, int]]](), dict(job.durations)
        self.device = Wormhole(tensix_coords=list(job.cores))
        self.device.reset()  # the RISC-V cores are off until then
        for place in job.cores:
            self.device.write(place, job.flag, bytes(4))
        for place, at, content in job.content:
            self.device.write(place, at, content)
        for place, name, entry in job.entries:
            if name == "BRISC":  # which begins at 0
                continue
            self.device.write(place, CONFIGURATION + 4 * (RESET_PC + int(name[-1])), struct.pack("<I", entry))
            self.device.write(place, CONFIGURATION + 4 * RESET_PC_ENABLE, struct.pack("<I", 7))
        for place, name, _ in job.entries:
            self.device.deassert_soft_reset(place, BabyRISCVCoreType[name])
        self.first = self.device.clocks[0].clock_tick_num

    def run(self) -> Iterator[int]:
        """Run until all cores are done; yield the cycles so far."""
        clock, job = self.device.clocks[0], self.job
        open_cores = list(job.cores)
        while True:
            open_cores = [each for each in open_cores if bytes(self.device.read(each, job.flag, 4)) == bytes(4)]
            yield clock.clock_tick_num - self.first
            if not open_cores:
                return
            self.device.run(8)

    def record(self, event: Any) -> None:
        """Add what a unit did to its spans; instructions that follow one another are one span."""
        _, _, column, name = event.unit_id
        if name not in UNITS:
            return
        unit = UNITS[name] if len(self.job.cores) == 1 else f"{UNITS[name]} {column}"
        first = event.cycle - self.first
        last = first + max(self.durations.get(event.op, event.duration), 1)
        if (former := self.spans.get(unit)) and first <= former[-1][1] + 1:
            former[-1] = former[-1][0], max(last, former[-1][1])
        else:
            self.spans.setdefault(unit, []).append((first, last))

    def stuck(self) -> tuple[tuple[Stuck, ...], tuple[str, ...]]:
        """Return the threads with instructions that wait, and what unpackers wait for."""
        threads, units = list[Stuck](), list[str]()
        for place in self.job.cores:
            tile = self.device.tile_directory[place]
            for number, thread in enumerate(tile.tensix_coprocessor.threads):
                if waiting := thread.inflight_count():
                    core = (tile.trisc0, tile.trisc1, tile.trisc2)[number]
                    counter = int.from_bytes(core.register_file["pc"].read(), "little")
                    threads.append(Stuck(place, number, counter, waiting))
            for unpacker in tile.tensix_coprocessor.getBackend().unpacker_units:
                if (blocked := unpacker.blocked_on()) is not None:
                    units.append(f"unpacker {unpacker.unpacker_id} waits for bank {blocked[3]} of {blocked[2]}")
        return tuple(threads), tuple(units)


def simulate(job: Job, progress: Any = None) -> Answer:
    """Run a job on a new device."""
    from framework.trace.bus import get_bus
    from framework.trace.events import EventCategory

    sys.stderr = report = io.StringIO()
    device, bus = Device(job), get_bus()
    bus.reset()
    if job.durations:
        bus.subscribe(EventCategory.COMPUTE, device.record)
        for category in EventCategory:
            bus.set_category_enabled(category, category is EventCategory.COMPUTE)
        bus.enabled = True
    cycles, last = 0, time.monotonic()
    try:
        for cycles in device.run():
            if cycles > job.limit:
                return Answer(cycles, (), (), f"did not end within {job.limit} cycles", *device.stuck())
            if report.tell():
                report.seek(0), report.truncate()
                threads, units = device.stuck()
                if threads or units:
                    return Answer(cycles, (), (), f"deadlock in cycle {cycles}", threads, units)
            if progress is not None and time.monotonic() - last > PROGRESS_SECONDS:
                last = time.monotonic()
                progress(cycles)
    except Exception as error:
        return Answer(cycles, failure=f"{type(error).__name__} in cycle {cycles}: {error}")
    results = tuple(bytes(device.device.read(place, at, size)) for place, at, size in job.results)
    spans = tuple((unit, first, last) for unit in sorted(device.spans, key=_row) for first, last in device.spans[unit])
    return Answer(cycles, results, spans)


def _row(unit: str) -> tuple[str, int]:
    """Return the order of units in a picture: by core, then as data passes through them."""
    name, _, column = unit.partition(" ")
    return column, [*UNITS.values()].index(name)


def send(stream: BinaryIO, content: object) -> None:
    data = pickle.dumps(content)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def fields(record: Any) -> tuple[Any, ...]:
    """Return the fields of a record, which both processes know by different names of its module."""
    return tuple(getattr(record, name) for name in record.__dataclass_fields__)


def main() -> None:
    """Answer jobs until standard input ends; what the simulator prints is left out."""
    os.environ["TT_SIM_COST_MODEL"] = "1"  # these are read when a device is made
    os.environ["TT_SIM_DEADLOCK_THRESHOLD"] = str(STALL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while size := sys.stdin.buffer.read(8):
        job = Job(*pickle.loads(sys.stdin.buffer.read(*struct.unpack("<q", size))))
        answer = simulate(job, lambda cycles: send(answers, cycles))
        send(answers, [*fields(answer)[:4], [fields(each) for each in answer.stuck], answer.units])


if __name__ == "__main__":
    main()
