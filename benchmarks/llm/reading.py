"""The reading probe: how long cores take to read weights and caches of a step, and do nothing with them."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = """
#include <stdint.h>
#include <stddef.h>
typedef uint64_t vector __attribute__((vector_size(64), aligned(64)));
uint64_t read_all(const char *from, size_t bytes) {
  vector sums[8] = {0};
  const char *end = from + bytes / 512 * 512;
  for (; from < end; from += 512)
    for (int i = 0; i < 8; i++) sums[i] ^= *(const vector *)(from + 64 * i);
  uint64_t total = 0;
  for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) total ^= sums[i][j];
  return total;
}
"""


def reader(arrays: Sequence[np.ndarray], threads: int = 1) -> Callable[[], Any]:
    """Return a call that reads these arrays where they are, once, on several threads; it needs a C compiler."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "reading.c", Path(folder) / "reading.so"
        source.write_text(SOURCE, encoding="utf-8")
        command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        read = ctypes.CDLL(str(library)).read_all
    read.argtypes, read.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_uint64
    ranges = [_parts(array, threads) for array in arrays]

    def read_part(number: int) -> None:
        for parts in ranges:
            read(*parts[number])

    if threads == 1:
        return lambda: (read_part(0), arrays)[0]
    pool = ThreadPoolExecutor(threads)
    return lambda: (list(pool.map(read_part, range(threads))), arrays)[0]


def _parts(array: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return addresses and sizes of equal parts of an array, in whole cache lines."""
    size = -(-array.nbytes // count) // 64 * 64
    starts = range(0, size * count, size) if size else [0] * count
    return [(array.ctypes.data + start, min(size, array.nbytes - start)) for start in starts]


def weights_of_a_token(executable: Any) -> list[np.ndarray]:
    """Return the weights that a decoding step reads whole: all but tables from which it takes rows."""
    tables = ("embedding", "cos", "sin")
    names = [spec.name for spec in executable.artifact.params]
    return [executable.weight(name) for name in names if not name.startswith(tables)]
