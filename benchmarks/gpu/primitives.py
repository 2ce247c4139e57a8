"""Schedule primitives beside the rules of target nvvm: `python -m benchmarks.gpu.primitives [NAME...] [--chip sm_80]`.

Each case of `memory_bound` that is one kernel is compiled by its rule and by schedules of primitives for the same
threads, and assembled by NVIDIA's ptxas if it is installed. The table shows for each the instructions of the PTX, the
elements of the result that a thread computes, loads, those of 16 bytes, shuffles, registers, and the least CPU time of
five passes from tensors to launches. No GPU is needed.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mirlo
from benchmarks.kernels.memory_bound import CASES, Case, make_model
from benchmarks.kernels.schedules import compute_rows, element_loop, inline_into_last, kernel_of, reason_of
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.ptxas import find_ptxas, run_ptxas

THREADS = 128
WIDTH = 4
"""Elements of f32 in an access of 16 bytes."""
RUNS = (1, 2, 4)
ROW_STEPS = (2, 4, 8)
"""Accesses of a thread to a row: as many threads per row as that leaves work for."""
EDGES, TILE_THREADS = (64, 32), 256
"""Extents of tiles that are transposed, and the threads of a block that does."""
UserSchedule = Callable[[Any], None]


def elementwise(s: Any, runs: int) -> None:
    """Compute all blocks in the loops of the last one; a thread has several accesses in flight."""
    block = inline_into_last(s)
    loops = s.loops(block)
    loop = s.fuse(*loops) if len(loops) > 1 else loops[0]
    # Whole vectors first: tails are as long as vectors then.
    rest, lanes = s.split(loop, (None, WIDTH))
    blocks, run, thread = s.split(rest, (None, runs, THREADS))
    s.reorder(blocks, thread, run, lanes)
    s.bind(blocks, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    s.unroll(run)
    s.vectorize(lanes)


def rows(s: Any, steps: int, width: int) -> None:
    """Compute a row in consecutive threads, which keep its elements, and as many rows in a block as it has room for."""
    blocks = s.blocks()
    row = s.loops(blocks[-1])[0]
    copies = _copy_inputs(s) if len(blocks) > 1 else []
    compute_rows(s, row, [*copies, *blocks])
    for block in blocks[:-1]:
        s.set_scope(block, "local")
    inner = {block: element_loop(s, block) for block in (*copies, *blocks)}
    longest = max(s.extent(loop) for loop in inner.values())
    threads = min(THREADS, 1 << (max(longest // (steps * width), 8) - 1).bit_length())
    for loop in inner.values():
        if loop == row or s.extent(loop) == 1:
            continue
        step, lanes = s.split(loop, (None, width))
        step, thread = s.split(step, (None, threads))
        s.unroll(step)
        s.bind(thread, "threadIdx.x")
        s.vectorize(lanes)
    if threads < THREADS:
        row, own = s.split(row, (None, THREADS // threads))
        s.bind(own, "threadIdx.y")
    s.bind(row, "blockIdx.x")


def _copy_inputs(s: Any) -> list[str]:
    """Share the elements that a thread has loaded among the blocks that read them."""
    readers: dict[str, list[str]] = {}
    for block in s.blocks():
        for buffer in s.reads(block):
            readers.setdefault(buffer, []).append(block)
    computed = set(s.blocks())
    shared = {buffer: blocks for buffer, blocks in readers.items() if buffer not in computed and len(blocks) > 1}
    return [s.cache_read(blocks, buffer, "local") for buffer, blocks in shared.items()]


def transposed(s: Any, perm: Sequence[int], edge: int) -> None:
    """Read tiles along the memory of the operand into shared memory, and write them along that of the result."""
    (block,) = s.blocks()
    loops = s.loops(block)
    s.tile((loops[perm.index(len(perm) - 1)], loops[-1]), (edge, edge))
    *outer, line, lane = s.loops(block)
    copy = s.cache_read(block, 0, "shared")
    s.storage_align(copy, len(perm) - 2, 32, 1)  # a column is in different banks
    s.compute_at(copy, outer[-1])
    own = s.loops(copy)[len(outer) :]
    for row, element in ((line, lane), (own[perm[-1]], own[-1])):
        step, thread = s.split(row, (None, TILE_THREADS // edge))
        s.reorder(thread, element, step)  # threads wait for one another after a loop over threads: once
        s.bind(thread, "threadIdx.y")
        s.bind(element, "threadIdx.x")
        s.unroll(step)
    blocks = s.fuse(*outer) if len(outer) > 1 else outer[0]
    s.bind(blocks, "blockIdx.x")


def schedules(rule: str, case: Case) -> Iterator[tuple[str, UserSchedule]]:
    """Return the schedules that are compared with a rule, with their names."""
    perm = case.attributes.get("perm")
    if perm is not None and perm[-1] != len(perm) - 1:
        for edge in EDGES:
            yield f"{edge} x {edge}", partial(transposed, perm=perm, edge=edge)
        return
    if rule == "wide_points":
        for runs in RUNS:
            yield f"{runs} runs", partial(elementwise, runs=runs)
        return
    for width in (WIDTH, 1):
        for steps in ROW_STEPS:
            yield f"{steps} x {width}", partial(rows, steps=steps, width=width)


@dataclass(frozen=True)
class Figures:
    """What became of a kernel."""

    instructions: int
    per_thread: float
    loads: int
    wide: int
    shuffles: int
    registers: int | None
    seconds: float

    def __str__(self) -> str:
        registers = "-" if self.registers is None else str(self.registers)
        return (
            f"{self.instructions:6} {self.per_thread:8.1f} {self.loads:5} {self.wide:5} {self.shuffles:5} "
            f"{registers:>5} {1000 * self.seconds:7.1f}"
        )


def figures(path: Path, elements: int, chip: str, schedules_by_name: dict[str, UserSchedule] | None = None) -> Figures:
    """Compile a case for a chip and count."""
    target, seconds = f"nvvm{{chip={chip}}}", []
    for _ in range(5):
        start = time.thread_time()
        compiled = mirlo.compile(path, target, schedules=schedules_by_name, cache=False, tune=False)
        seconds.append(time.thread_time() - start)
    artifact = compiled.artifact
    kernels = artifact.metadata["kernels"].values()
    code = "".join(artifact.code[at : at + size].decode() for at, size in {tuple(kernel["code"]) for kernel in kernels})
    lines = [line.strip() for line in code.splitlines()]
    instructions = [line for line in lines if line.endswith(";") and not line.startswith(".")]
    block = prod(
        map(int, re.findall(r"\d+", next(line for line in lines if line.startswith((".maxntid", ".reqntid")))))
    )
    grids = [prod(words[:3]) for _, *words in artifact.metadata["program"]["commands"]]
    loads = [line for line in instructions if "ld.global" in line]
    return Figures(
        len(instructions), elements / (sum(grids) * block), len(loads), sum(".v4" in line for line in loads),
        sum("shfl" in line for line in instructions),
        run_ptxas(code, find_chip(chip)).registers if find_ptxas() else None, min(seconds),
    )  # fmt: skip


def measure(case: Case, folder: Path, chip: str) -> Iterator[str]:
    """Yield the rows of a case."""
    path = folder / "case.onnx"
    model = make_model(case)
    path.write_bytes(model.SerializeToString())
    kernel = kernel_of(path, f"nvvm{{chip={chip}}}", ("wide_points", "warp_rows"))
    if kernel is None:
        yield f"{case.name:38} {'-':12} several kernels, or another rule"
        return
    kernel_name, rule = kernel
    elements = prod(max((shape for shape, _ in case.inputs), key=prod))
    yield f"{case.name:38} {rule:12} {figures(path, elements, chip)}"
    for name, arranged in schedules(rule, case):
        try:
            yield f"{'':38} {name:12} {figures(path, elements, chip, {kernel_name: arranged})}"
        except mirlo.MirloError as error:
            yield f"{'':38} {name:12} {reason_of(error)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose names contain one of these")
    parser.add_argument("--chip", default="sm_80")
    arguments = parser.parse_args()
    columns = f"{'instr.':>6} {'elements':>8} {'loads':>5} {'wide':>5} {'shfl':>5} {'regs':>5} {'ms':>7}"
    print(f"{'case':38} {'by':12} {columns}")
    with TemporaryDirectory() as folder:
        for case in CASES:
            if not arguments.names or any(name in case.name for name in arguments.names):
                for row in measure(case, Path(folder), arguments.chip):
                    print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
