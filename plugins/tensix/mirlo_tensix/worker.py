"""The process that simulates: it reads a job from standard input, and writes cycles and bytes of L1."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from dataclasses import dataclass

CONFIGURATION = 0xFFEF0000
RESET_PC, RESET_PC_ENABLE = 158, 161
"""Words of configuration that say where the cores of the threads begin."""
CORE = (18, 18)


@dataclass(frozen=True)
class Job:
    """What to write to L1, where the threads begin, what to wait for and what to read."""

    content: tuple[tuple[int, bytes], ...]
    entries: tuple[int, ...]
    flag: int
    result: tuple[int, int]
    """Address and bytes of the result."""
    limit: int
    """The most cycles."""


def simulate(job: Job) -> tuple[int, bytes]:
    """Run the threads of a core until it sets the flag; return the cycles and the result."""
    os.environ["TT_SIM_COST_MODEL"] = "1"  # read when the device is made
    from framework.device.tt_device import Wormhole
    from framework.pe.rv.babyriscv import BabyRISCVCoreType

    device = Wormhole(tensix_coords=[CORE])
    device.reset()  # the RISC-V cores are off until then
    device.write(CORE, job.flag, bytes(4))
    for at, content in job.content:
        device.write(CORE, at, content)
    for i, entry in enumerate(job.entries):
        device.write(CORE, CONFIGURATION + 4 * (RESET_PC + i), struct.pack("<I", entry))
    device.write(CORE, CONFIGURATION + 4 * RESET_PC_ENABLE, struct.pack("<I", 7))
    for name in ("TRISC0", "TRISC1", "TRISC2"):
        device.deassert_soft_reset(CORE, BabyRISCVCoreType[name])
    clock = device.clocks[0]
    first = clock.clock_tick_num
    while bytes(device.read(CORE, job.flag, 4)) == bytes(4):
        if clock.clock_tick_num - first > job.limit:
            raise TimeoutError(f"its threads did not end within {job.limit} cycles")
        device.run(8)
    return clock.clock_tick_num - first, bytes(device.read(CORE, *job.result))


def main() -> None:
    """Answer one job; what the simulator prints goes to standard error."""
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        cycles, result = simulate(Job(*pickle.load(sys.stdin.buffer)))
        answer.write(struct.pack("<q", cycles) + result)


if __name__ == "__main__":
    main()
