"""Execution of models on boards emulated by QEMU, with the compiler `arm-none-eabi-gcc`.

The emulator counts instructions, not cycles: counts are exact and reproducible, but do not include wait states of
memory. `missing_tools` lists what to install.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirlo_cortex_m import FLAGS

COMPILER, EMULATOR, SIZE = "arm-none-eabi-gcc", "qemu-system-arm", "arm-none-eabi-size"
PACKAGES = {COMPILER: "gcc-arm-none-eabi", SIZE: "gcc-arm-none-eabi", EMULATOR: "qemu-system-arm"}
"""Debian packages of the tools; the headers and the C library are in libnewlib-arm-none-eabi."""
FILES = Path(__file__).parent / "board"
WARM_UP = 1000
SPINS = 1_000_000
"""Rounds of a loop of two instructions, which measures the instructions per clock tick."""


class BoardError(Exception):
    """A program that cannot be built, or that fails."""


@dataclass(frozen=True)
class Board:
    """A machine of QEMU."""

    machine: str
    flash: int
    ram: int
    flash_bytes: int = 4 << 20
    ram_bytes: int = 2 << 20
    constants: str = "flash"
    """The memory region of constants: `flash`, or `constants` on a board with a flash that is too small."""


BOARDS = {
    "cortex-m0plus": Board("mps2-an385", 0, 0x20000000),
    "cortex-m4": Board("mps2-an386", 0, 0x20000000),
    "cortex-m7": Board("mps2-an500", 0, 0x20000000),
    "cortex-m33": Board("mps2-an505", 0x10000000, 0x38000000),
    "cortex-m55": Board("mps3-an547", 0x10000000, 0x30000000, 512 << 10, 512 << 10, "constants"),
}
"""The board of each processor; code for an M0+ runs on a Cortex-M3, as no M0+ board has enough memory."""


@dataclass(frozen=True)
class Run:
    """A call of a model on a board."""

    outputs: tuple[np.ndarray, ...]
    instructions: int
    stack: int
    """Bytes of stack that the call used."""
    stack_bound: int
    """Upper bound of the stack in bytes: frames on the longest call path, without those of the C library."""
    flash: int
    """Bytes of the model's object file in flash: code and constants."""
    ram: int
    """Bytes of static memory: the arena."""


def missing_tools() -> list[str]:
    """Return the missing Debian packages."""
    return sorted({package for tool, package in PACKAGES.items() if shutil.which(tool) is None})


def run_on_board(
    folder: Path, name: str, processor: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> Run:
    """Build a model that `mirlo compile --emit source` wrote, call it once with inputs, and return what it computed.

    `outputs` are arrays of the types and shapes of the results.
    """
    board, flags = BOARDS[processor], ["-std=c99", "-O2", "-ffunction-sections", *FLAGS[processor]]
    usage = ["-fcallgraph-info=su"]
    program, scripts = folder / "main.c", folder / "link.ld"
    program.write_text(_main(name, inputs, outputs))
    script = (FILES / "link.ld.in").read_text()
    for word in ("flash", "ram", "flash_bytes", "ram_bytes", "constants"):
        script = script.replace(f"@{word.upper()}@", str(getattr(board, word)))
    scripts.write_text(script)
    model, elf = folder / f"{name}.o", folder / f"{name}.elf"
    _call(COMPILER, *flags, *usage, "-Wall", "-Wextra", "-Werror", "-c", folder / f"{name}.c", "-o", model)
    _call(
        COMPILER, *flags, f"-I{FILES}", f"-I{folder}", program, FILES / "start.c", model, "-nostartfiles", "-T",
        scripts, "-Wl,--gc-sections", "-o", elf, "-lm", "--specs=nosys.specs", "-Wl,--no-warn-rwx-segments",
    )  # fmt: skip
    text, data, bss = map(int, _call(SIZE, model).splitlines()[1].split()[:3])
    printed = _call(
        EMULATOR, "-M", board.machine, "-nographic", "-monitor", "none", "-serial", "none", "-semihosting-config",
        "enable=on,target=native", "-icount", "shift=0", "-kernel", elf,
    )  # fmt: skip
    found = dict(re.findall(r"^(\w+)=(\w*)$", printed, re.MULTILINE))
    if "stack" not in found:
        raise BoardError(f"{name} did not end on {board.machine}: {printed[-400:]!r}")
    per_tick = 2 * SPINS / int(found["spin"])
    results = tuple(
        np.frombuffer(bytes.fromhex(found[f"output{i}"]), each.dtype).reshape(each.shape)
        for i, each in enumerate(outputs)
    )
    bound = stack_bound(model.with_suffix(".ci").read_text(), f"{name}_run")
    return Run(results, round(int(found["ticks"]) * per_tick), int(found["stack"]), bound, text, data + bss)


def stack_bound(graph: str, entry: str) -> int:
    """Return the bytes of the longest path of calls from a function, in the graph that GCC wrote.

    A function without a frame in the graph, one of a library, counts 0. A frame of a size that is not known, or
    recursion, is an error.
    """
    sizes: dict[str, int] = {}
    for title, label in re.findall(r'node: \{ title: "([^"]+)" label: "([^"]*)"', graph):
        frame = re.search(r"(\d+) bytes \((\w+)", label)
        if frame is not None and frame[2] != "static":
            raise BoardError(f"the frame of {title} has no size that is known: {frame[0]})")
        sizes[title] = int(frame[1]) if frame is not None else 0
    calls: dict[str, set[str]] = {}
    for source, target in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', graph):
        calls.setdefault(source, set()).add(target)

    def longest(function: str, above: tuple[str, ...]) -> int:
        if function in above:
            raise BoardError(f"{function} calls itself: its stack has no bound")
        below = (longest(each, (*above, function)) for each in calls.get(function, ()))
        return sizes.get(function, 0) + max(below, default=0)

    return longest(next(title for title in sizes if title.rpartition(":")[2] == entry), ())


def _call(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise BoardError(
            f"'{command[0]}' failed with code {done.returncode}:\n{done.stderr[-2000:]}{done.stdout[-400:]}"
        )
    return done.stdout + done.stderr  # semihosting writes to either


def _main(name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
    """Return a C program that calls a model once; arrays consist of words, so that they are aligned."""
    lines = ['#include "board.h"', f'#include "{name}.h"', ""]
    for i, array in enumerate(inputs):
        words = np.frombuffer(array.tobytes() + bytes(-array.nbytes % 8), np.uint64)
        listed = ", ".join(f"{word}ull" for word in words)
        lines.append(f"static const uint64_t input{i}[] = {{{listed}}};")
    lines += [f"static uint64_t output{i}[{-(-array.nbytes // 8)}];" for i, array in enumerate(outputs)]
    arguments = [f"(const void *)input{i}" for i in range(len(inputs))]
    arguments += [f"(void *)output{i}" for i in range(len(outputs))]
    lines += [
        "int main(void) {",
        "  uint64_t before, after, spun;",
        "  uint32_t stack;",
        "  board_start_clock();",
        f"  board_spin({WARM_UP});",
        "  before = board_clock();",
        f"  board_spin({SPINS});",
        "  spun = board_clock() - before;",
        "  board_paint_stack();",
        "  before = board_clock();",
        f"  {name}_run({', '.join(arguments)});",
        "  after = board_clock();",
        "  stack = board_stack_used();",
        '  board_write_number("spin=", spun);',
        '  board_write_number("ticks=", after - before);',
        *(f'  board_write_bytes("output{i}=", output{i}, {array.nbytes});' for i, array in enumerate(outputs)),
        '  board_write_number("stack=", stack);',
        "  return 0;",
        "}",
    ]
    return "\n".join(lines) + "\n"
