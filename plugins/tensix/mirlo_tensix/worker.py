"""The process that simulates: a device of wolfpine, whose memories are written and read, and on which programs run."""

from __future__ import annotations

import io
import os
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mirlo.extend.process import Function, Result

CONFIGURATION = 0xFFEF0000
RESET_PC, RESET_PC_ENABLE = 158, 161
"""Words of configuration that say where the cores of the threads begin."""
STALL = 4000
"""Cycles without progress that are a deadlock."""
UNITS = {"UNPACKER": "unpackers", "MATRIX": "matrix", "SFPU": "vector", "PACKER": "packers"}
"""Units by their names in the simulator."""
Place = Sequence[int]


class Device:
    """A device with some cores; records the activity of its units."""

    def start(self, content: bytes, *, cores: Sequence[Place]) -> Result:
        """Begin with a new device."""
        from framework.device.tt_device import Wormhole
        from framework.trace.bus import get_bus

        self.report = sys.stderr = io.StringIO()
        self.cores, self.bus = [tuple(place) for place in cores], get_bus()
        self.device = Wormhole(tensix_coords=self.cores)
        self.device.reset()  # the RISC-V cores are off until then
        return Result()

    def write(self, content: bytes, *, place: Place, at: int) -> Result:
        self.device.write(tuple(place), at, content)
        return Result()

    def read(self, content: bytes, *, place: Place, at: int, size: int) -> Result:
        return Result({}, bytes(self.device.read(tuple(place), at, size)))

    def launch(
        self, content: bytes, *, entries: Sequence[tuple[Place, str, int]], flag: int, durations: Mapping[str, int]
    ) -> Result:
        """Start RISC-V cores at addresses; with `durations`, which the simulator does not report, record the units."""
        from framework.pe.rv.babyriscv import BabyRISCVCoreType
        from framework.trace.events import EventCategory

        self.flag, self.durations, self.spans = flag, durations, dict[str, list[tuple[int, int]]]()
        self.bus.reset()
        if durations:
            self.bus.subscribe(EventCategory.COMPUTE, self._record)
            for category in EventCategory:
                self.bus.set_category_enabled(category, category is EventCategory.COMPUTE)
            self.bus.enabled = True
        self.open = list(dict.fromkeys(tuple(place) for place, _, _ in entries))
        for place in self.open:
            self.device.write(place, flag, bytes(4))
        for place, name, _ in entries:
            self.device.assert_soft_reset(tuple(place), BabyRISCVCoreType[name])
        self.device.run(8)  # a core takes its reset when it is clocked
        for place, name, entry in entries:
            if name != "BRISC":  # which begins at 0
                at = CONFIGURATION + 4 * (RESET_PC + int(name[-1]))
                self.device.write(tuple(place), at, struct.pack("<I", entry))
                self.device.write(tuple(place), CONFIGURATION + 4 * RESET_PC_ENABLE, struct.pack("<I", 7))
            self.device.deassert_soft_reset(tuple(place), BabyRISCVCoreType[name])
        self.first = self.device.clocks[0].clock_tick_num
        return Result()

    def advance(self, content: bytes, *, limit: int, lasting: float) -> Result:
        """Run for a number of cycles or until all cores are done; return the cycles since the launch and failures."""
        clock, until = self.device.clocks[0], time.monotonic() + lasting
        while True:
            cycles = clock.clock_tick_num - self.first
            self.open = [place for place in self.open if not any(self.device.read(place, self.flag, 4))]
            if not self.open or time.monotonic() > until:
                spans = [(unit, *span) for unit in sorted(self.spans, key=_row) for span in self.spans[unit]]
                return Result({"cycles": cycles, "done": not self.open, "spans": [] if self.open else spans})
            failure = f"did not end within {limit} cycles" if cycles > limit else ""
            if self.report.tell():
                self.report.seek(0), self.report.truncate()
                failure = f"deadlock in cycle {cycles}"
            if failure and (self._stuck() or cycles > limit):
                return Result({"cycles": cycles, "failure": failure, "stuck": self._stuck(), "units": self._units()})
            try:
                self.device.run(8)
            except Exception as error:
                failure = f"{type(error).__name__} in cycle {cycles}: {error}"
                return Result({"cycles": cycles, "failure": failure, "stuck": [], "units": []})

    def _record(self, event: Any) -> None:
        """Add what a unit did to its spans; instructions that follow one another are one span."""
        _, _, column, name = event.unit_id
        if name not in UNITS:
            return
        unit = UNITS[name] if len(self.cores) == 1 else f"{UNITS[name]} {column}"
        first = event.cycle - self.first
        last = first + max(self.durations.get(event.op, event.duration), 1)
        if (former := self.spans.get(unit)) and first <= former[-1][1] + 1:
            former[-1] = former[-1][0], max(last, former[-1][1])
        else:
            self.spans.setdefault(unit, []).append((first, last))

    def _stuck(self) -> list[tuple[int, int, int]]:
        """Return the threads with instructions that wait: number, the program's counter, how many instructions."""
        found = list[tuple[int, int, int]]()
        for tile in map(self.device.tile_directory.get, self.cores):
            for number, thread in enumerate(tile.tensix_coprocessor.threads):
                if waiting := thread.inflight_count():
                    core = (tile.trisc0, tile.trisc1, tile.trisc2)[number]
                    found.append((number, int.from_bytes(core.register_file["pc"].read(), "little"), waiting))
        return found

    def _units(self) -> list[str]:
        """Return what unpackers wait for."""
        tiles = map(self.device.tile_directory.get, self.cores)
        units = [unit for tile in tiles for unit in tile.tensix_coprocessor.getBackend().unpacker_units]
        blocked = ((unit.unpacker_id, unit.blocked_on()) for unit in units)
        return [f"unpacker {number} waits for bank {each[3]} of {each[2]}" for number, each in blocked if each]


def _row(unit: str) -> tuple[str, int]:
    """Return the order of units in a picture: by core, then as data passes through them."""
    name, _, column = unit.partition(" ")
    return column, [*UNITS.values()].index(name)


def open(content: bytes, **settings: object) -> dict[str, Function]:  # noqa: A001
    """Return the functions of a device; output of the simulator is discarded."""
    os.environ["TT_SIM_COST_MODEL"] = "1"  # these are read when a device is made
    os.environ["TT_SIM_DEADLOCK_THRESHOLD"] = str(STALL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    device = Device()
    return {name: getattr(device, name) for name in ("start", "write", "read", "launch", "advance")}
