"""Functions of the run time in a model, one in Python and one in C: `python examples/packed_function.py`."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import mirlo
from mirlo import R
from mirlo.extend.runtime import packed
from mirlo.runtime.packed import register

C_SOURCE = r"""
#include <stdint.h>
typedef struct { void *data; int32_t device_type, device_id, ndim; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t byte_offset; } DLTensor;
int row_sums(DLTensor **tensors, int64_t count) { /* inputs, then outputs, which are written; 0 is success */
  float *x = tensors[0]->data, *y = tensors[1]->data;
  for (int64_t i = 0; i < tensors[0]->shape[0]; ++i) {
    y[i] = 0;
    for (int64_t j = 0; j < tensors[0]->shape[1]; ++j) y[i] += x[i * tensors[0]->shape[1] + j];
  }
  return 0;
}
"""


@packed("example.rank")
def rank(x: np.ndarray, y: np.ndarray) -> None:
    """Write the rank of each element in its row; the arrays are views of the model's memory."""
    y[:] = np.argsort(np.argsort(x, axis=1), axis=1)


@packed("example.row_sums")
def row_sums(x: np.ndarray, y: np.ndarray) -> None:
    """Compute in Python, for machines without a C compiler."""
    y[:] = x.sum(axis=1)


def use_c(folder: str) -> None:
    """Use a function of a shared library in place of the one in Python."""
    source, library = Path(folder) / "sums.c", Path(folder) / "sums.so"
    source.write_text(C_SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    register("example.row_sums", ctypes.CDLL(str(library)).row_sums, override=True)


@mirlo.script
def model(x: R.Tensor[(4, 6), R.f32]):
    indices = R.call_dps_packed("example.rank", R.tanh(x), out=R.Tensor[(4, 6), R.i64])
    sums = R.call_dps_packed("example.row_sums", R.cast(indices, dtype="f32") * x, out=R.Tensor[(4,), R.f32])
    return indices, sums


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if shutil.which("cc"):
            use_c(folder)
        executable = mirlo.compile(model)
        x = np.random.default_rng(0).standard_normal((4, 6), dtype=np.float32)
        ranks, sums = executable(x)
    np.testing.assert_array_equal(ranks, np.argsort(np.argsort(x, axis=1), axis=1))
    np.testing.assert_allclose(sums, (ranks * x).sum(axis=1), rtol=1e-5)
    print(f"the model calls {' and '.join(executable.artifact.packed)}")


if __name__ == "__main__":
    main()
