"""BERT's feed-forward layer on a simulated matrix unit: packed weights, a tensorized product, a driver in C.

The unit multiplies tiles of 16 x 16: `npu_mma` adds a product to an accumulator, all of them at addresses with a
stride from row to row. The schedule cuts the products into such tiles, packs the weights so that each tile is
contiguous, and hands the tiles to the unit.

python examples/npu_feed_forward.py
"""

import ctypes
import tempfile
from pathlib import Path

import numpy as np

import mirlo
from mirlo import R, T
from mirlo.extend.schedules import tensor_intrin
from mirlo.runtime.object_loader import define_symbol
from mirlo.runtime.system import LIBRARY_SUFFIX
from mirlo.targets.c.compiler import compile_shared, find_compiler

TILE = 16
DRIVER = """
#include <stdint.h>
static int64_t calls;
int64_t npu_calls(void) { return calls; }
void npu_mma(const float *a, int64_t a_row, const float *b, int64_t b_row, float *c, int64_t c_row) {
  ++calls;
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 16; ++j) c[i * c_row + j] += a[i * a_row + k] * b[k * b_row + j];
}
"""


def start_unit(folder):
    """Compile the driver, and load it so that compiled models call it."""
    path = Path(folder) / f"npu{LIBRARY_SUFFIX}"
    path.write_bytes(compile_shared(DRIVER, find_compiler()))
    driver = ctypes.CDLL(str(path))
    define_symbol("npu_mma", ctypes.cast(driver.npu_mma, ctypes.c_void_p).value)
    driver.npu_calls.restype = ctypes.c_int64
    return driver


@mirlo.prim_func
def means(
    a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]
):  # what the unit computes
    for i, j, k in T.grid(TILE, TILE, TILE):
        with T.block("mma"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@mirlo.prim_func(buffers=True)
def does(
    a: T.Buffer[(TILE, TILE), T.f32], b: T.Buffer[(TILE, TILE), T.f32], c: T.Out[(TILE, TILE), T.f32]
):  # what the driver gets: addresses of tiles, and their strides
    T.call_extern("npu_mma", a, T.stride(a, 0), b, T.stride(b, 0), c, T.stride(c, 0))


tensor_intrin("npu.mma", means, does)


def on_the_unit(s):
    """Schedule a product and what follows it."""
    product = s.blocks()[0]
    i, j, k = s.loops(product)
    io, jo, ko, ii, ji, ki = s.tile((i, j, k), (TILE, TILE, TILE))
    weights = s.cache_read(product, 1)
    s.pack(weights, tiles=((0, TILE), (1, TILE)))  # each tile is 1024 bytes in a row
    s.parallel(s.loops(weights)[0])
    s.decompose_reduction(product, ko)
    s.tensorize(ii, "npu.mma")
    s.parallel(io)


HIDDEN, INNER, TOKENS = 768, 3072, 128


@mirlo.script
def layer(
    x: R.Tensor[(TOKENS, HIDDEN), R.f32],
    w1: R.Tensor[(HIDDEN, INNER), R.f32],
    b1: R.Tensor[(INNER,), R.f32],
    w2: R.Tensor[(INNER, HIDDEN), R.f32],
    b2: R.Tensor[(HIDDEN,), R.f32],
):
    y = R.gelu(R.matmul(x, w1) + b1)
    return R.matmul(y, w2) + b2 + x


PRODUCTS = ("fused_matmul_add_gelu", "fused_matmul_0_add_1_add_2")


def compile_layer():
    """Compile the layer with both products on the unit."""
    return mirlo.compile(layer, schedules=dict.fromkeys(PRODUCTS, on_the_unit))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        unit = start_unit(folder)
        executable = compile_layer()
        x, *weights = executable.random_inputs().values()
        operands = [x, *(array / 30 for array in weights)]
        error = np.abs(executable(*operands) - mirlo.compile(layer)(*operands)).max()
        print(f"{unit.npu_calls()} tiles on the unit, largest difference to target llvm {error:.1e}")
