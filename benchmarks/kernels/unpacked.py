"""Products with weights of 4 bits that primitives unpack: `python -m benchmarks.kernels.unpacked [--rows M...]`.

The schedule unpacks blocks of K of a panel to memory, and multiplies them in a register tile. It takes turns with the
kernel for packed weights that `pack-nbits` makes; the table shows the least CPU time of each, and the ratio.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import mirlo
from mirlo import R, Schedule, T
from mirlo.benchmarks.kernels.by_hand import turns
from mirlo.benchmarks.kernels.nbits import model

DEPTH = COLUMNS = 2048
SUB, LANES, PAIR = 32, 16, 2
"""Rows of K with a scale, columns of a panel, and panels that a tile reads."""
FIELDS, WORDS, BYTES = 2, 4, 4
"""Weights of a byte, words of a column in a block of K with a scale, and bytes of a word."""
PANELS, SUBS = COLUMNS // (PAIR * LANES), DEPTH // SUB
M = T.dims("M")


@mirlo.prim_func
def product(
    x: T.Buffer[(M, SUBS, FIELDS, WORDS, BYTES), T.f32],
    words: T.Buffer[(PANELS, PAIR, SUBS, WORDS, LANES), T.i32],
    scale: T.Buffer[(PANELS, PAIR, SUBS, LANES), T.f32],
    y: T.Out[(M, PANELS, PAIR, LANES), T.f32],
):
    w = T.alloc((PANELS, SUBS, FIELDS, WORDS, BYTES, PAIR, LANES), T.f32)
    for p, s, f, j, i, q, c in T.grid(PANELS, SUBS, FIELDS, WORDS, BYTES, PAIR, LANES):
        with T.block("unpack"):
            vp, vs, vf, vj, vi, vq, vc = T.axes("SSSSSSS", p, s, f, j, i, q, c)
            w[vp, vs, vf, vj, vi, vq, vc] = (
                ((words[vp, vq, vs, vj, vc] >> (vi * 8 + vf * 4).cast("i32")) & 15) - 8
            ).cast("f32") * scale[vp, vq, vs, vc]
    for m, p, q, c, s, f, j, i in T.grid(M, PANELS, PAIR, LANES, SUBS, FIELDS, WORDS, BYTES):
        with T.block("matmul"):
            vm, vp, vq, vc, vs, vf, vj, vi = T.axes("SSSSRRRR", m, p, q, c, s, f, j, i)
            with T.init():
                y[vm, vp, vq, vc] = 0.0
            y[vm, vp, vq, vc] += x[vm, vs, vf, vj, vi] * w[vp, vs, vf, vj, vi, vq, vc]


@mirlo.script
def graph(
    x: R.Tensor[("rows", SUBS, FIELDS, WORDS, BYTES), R.f32],  # noqa: F821, UP037
    words: R.Tensor[(PANELS, PAIR, SUBS, WORDS, LANES), R.i32],
    scale: R.Tensor[(PANELS, PAIR, SUBS, LANES), R.f32],
):
    return R.call_tir(product, x, words, scale)


def by_primitives(s: Schedule, block: int, rows: int) -> None:
    """Unpack blocks of K of a pair of panels, and multiply them with tiles of rows."""
    m, pair, panel, lane, sub, field, word, byte = s.loops("matmul")
    block_of_k, sub = s.split(sub, (None, block // SUB))
    tiles, row = s.split(m, (None, rows))
    s.reorder(pair, block_of_k, tiles, sub, field, word, byte, row, panel, lane)
    step = s.fuse(sub, field, word, byte)
    s.compute_at("unpack", block_of_k)
    *_, sub, field, word, byte, panel_of_copy, lane_of_copy = s.loops("unpack")
    s.vectorize(lane_of_copy)
    s.reorder(sub, word, panel_of_copy, field, byte)  # a word is loaded once
    s.unroll(field)
    s.unroll(byte)
    s.register_tile("matmul", (row, panel, lane), (step,), "fma")
    s.parallel(pair)


def pack(codes: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the words and the scales of codes [columns, K], scales [columns, blocks]."""
    split = codes.reshape(PANELS, PAIR, LANES, SUBS, FIELDS, WORDS, BYTES).astype(np.uint32)
    shifts = 8 * np.arange(BYTES, dtype=np.uint32) + 4 * np.arange(FIELDS, dtype=np.uint32)[:, None, None]
    words = np.bitwise_or.reduce(split << shifts, axis=(4, 6))
    by_panel = scales.reshape(PANELS, PAIR, LANES, SUBS).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(words.transpose(0, 1, 3, 4, 2)).view(np.int32), np.ascontiguousarray(by_panel)


def measure(rows: int, block: int, tile: int, rounds: int) -> None:
    """Print the times of a product with this many rows."""
    options = {"threads": 1, "cache": False, "tune": False}
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, DEPTH)).astype(np.float32)
    packed = mirlo.compile(model(COLUMNS, DEPTH, 4, SUB, 0, count=1), **options)
    codes, scales = random.integers(0, 16, (COLUMNS, DEPTH)), random.uniform(0.005, 0.015, (COLUMNS, SUBS))
    words, scale = pack(codes, scales.astype(np.float32))
    schedule = partial(by_primitives, block=block, rows=min(rows, tile))
    executable = mirlo.compile(graph, dims={"rows": rows}, schedules={"product": schedule}, **options)
    split = x.reshape(rows, SUBS, FIELDS, WORDS, BYTES)
    result = executable(split, words, scale).reshape(rows, COLUMNS)
    expected = x.astype(np.float64) @ ((codes - 8) * scales.repeat(SUB, 1)).T
    np.testing.assert_allclose(result, expected, atol=1e-5 * np.abs(expected).max())
    functions: list[Callable[[], Any]] = [partial(packed, x), partial(executable, split, words, scale)]
    kernel, primitives = (1e6 * min(seconds) for seconds in turns(functions, rounds))
    print(f"{rows:5} {kernel:12.0f} {primitives:12.0f} {primitives / kernel:8.2f}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.unpacked", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 64, 256], help="numbers of rows")
    parser.add_argument("--block", type=int, default=512, help="rows of K that are unpacked at a time (default: 512)")
    parser.add_argument("--tile", type=int, default=8, help="rows of a tile (default: 8)")
    parser.add_argument("--rounds", type=int, default=30, help="calls of each (default: 30)")
    arguments = parser.parse_args()
    print(f"{'rows':>5} {'kernel, us':>12} {'by hand, us':>12} {'ratio':>8}")
    for rows in arguments.rows:
        measure(rows, arguments.block, arguments.tile, arguments.rounds)


if __name__ == "__main__":
    main()
