"""A fake cuBLASLt in numpy, for a fake of CUDA's driver: it computes the products that its descriptors define."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

TYPES = {
    0: np.float32, 2: np.float16, 14: ml_dtypes.bfloat16, 1: np.float64, 3: np.int8, 10: np.int32,
    28: ml_dtypes.float8_e4m3fn, 29: ml_dtypes.float8_e5m2,
}  # fmt: skip
SIZES = {
    ("MatmulDesc", 3): 4, ("MatmulDesc", 4): 4, ("MatmulDesc", 7): 4, ("MatmulDesc", 8): 8, ("MatrixLayout", 5): 4,
    ("MatrixLayout", 6): 8, ("MatmulPreference", 1): 8, **{("MatmulPreference", a): 4 for a in (5, 6, 7, 8)},
}  # fmt: skip
"""Sizes of attributes in bytes, by the library's header."""


class FakeCublas:
    """The functions that the loader calls."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.made: dict[int, dict[Any, Any]] = {}
        self.products: list[dict[str, Any]] = []
        self.refuses = False

    def _make(self, out: Any, **fields: Any) -> int:
        number = 1 + max(self.made, default=0)
        self.made[number] = fields
        out._obj.value = number
        return 0

    def cublasLtCreate(self, out: Any) -> int:
        assert self.driver.context, "no GPU is entered"
        assert self.driver.recorded is None, "nothing is made while a graph is recorded"
        return self._make(out, handle=True)

    def cublasLtMatmulDescCreate(self, out: Any, compute: int, scale: int) -> int:
        return self._make(out, compute=compute, scale=scale)

    def cublasLtMatrixLayoutCreate(self, out: Any, kind: int, rows: Any, columns: Any, leading: Any) -> int:
        sizes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64]
        assert [type(value) for value in (rows, columns, leading)] == sizes
        assert leading.value >= rows.value
        return self._make(out, kind=kind, rows=rows.value, columns=columns.value, leading=leading.value)

    def cublasLtMatmulPreferenceCreate(self, out: Any) -> int:
        return self._make(out)

    def _set(self, what: str, descriptor: Any, attribute: int, value: Any, size: Any) -> int:
        assert size.value == ctypes.sizeof(value._obj) == SIZES[what, attribute]
        self.made[descriptor.value][attribute] = value._obj.value
        return 0

    def cublasLtMatmulDescSetAttribute(self, *given: Any) -> int:
        return self._set("MatmulDesc", *given)

    def cublasLtMatrixLayoutSetAttribute(self, *given: Any) -> int:
        return self._set("MatrixLayout", *given)

    def cublasLtMatmulPreferenceSetAttribute(self, *given: Any) -> int:
        return self._set("MatmulPreference", *given)

    def _destroy(self, handle: Any) -> int:
        del self.made[handle.value]
        return 0

    cublasLtDestroy = cublasLtMatmulDescDestroy = cublasLtMatrixLayoutDestroy = _destroy
    cublasLtMatmulPreferenceDestroy = _destroy

    def cublasLtMatmulAlgoGetHeuristic(
        self,
        handle: Any,
        operation: Any,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        preference: Any,
        wanted: int,
        out: Any,
        count: Any,
    ) -> int:
        assert wanted == 1 and self.made[preference.value][1] == 32 << 20
        out._obj.algorithm[0] = 7
        count._obj.value = 0 if self.refuses else 1
        return 0

    def cublasLtMatmul(
        self, handle: Any, operation: Any, one: Any, a: Any, a_kind: Any, b: Any, b_kind: Any, zero: Any, c: Any,
        c_kind: Any, d: Any, d_kind: Any, algorithm: Any, workspace: Any, size: Any, stream: Any,
    ) -> int:  # fmt: skip
        assert one._obj.value == 1 and zero._obj.value in (0, 1) and self.made[handle.value]["handle"]
        scale = {0: ctypes.c_float, 1: ctypes.c_double, 10: ctypes.c_int32}[self.made[operation.value]["scale"]]
        assert type(one._obj) is type(zero._obj) is scale
        assert algorithm._obj.algorithm[0] == 7 and size.value == 32 << 20 and workspace.value
        description = dict(self.made[operation.value])
        assert c_kind.value == d_kind.value
        kinds = [dict(self.made[kind.value]) for kind in (a_kind, b_kind, d_kind)]
        added = c.value if zero._obj.value else None
        if kinds[0]["kind"] in (3, 28, 29):
            assert description[3] and not description[4], "numbers of 8 bits are multiplied along their lines only"
        self.products.append({"operation": description, "matrices": kinds})
        addresses = (a.value, b.value, d.value)
        self.driver._now(stream.value, lambda: _multiply(description, kinds, addresses, added))
        return 0

    def cublasLtGetStatusString(self, status: int) -> bytes:
        return b"refused"


def _matrices(kind: dict[Any, Any], address: int) -> np.ndarray:
    """Return the column-major matrices at an address: batch, rows, columns."""
    dtype = np.dtype(TYPES[kind["kind"]])
    batch, apart = kind.get(5, 1), kind.get(6, 0)
    size = kind["leading"] * kind["columns"]
    whole = (ctypes.c_char * (((batch - 1) * apart + size) * dtype.itemsize)).from_address(address)
    flat = np.frombuffer(whole, dtype)
    steps = (apart * dtype.itemsize, dtype.itemsize, kind["leading"] * dtype.itemsize)
    return np.lib.stride_tricks.as_strided(flat, (batch, kind["rows"], kind["columns"]), steps)


def _multiply(
    operation: dict[Any, Any], kinds: list[dict[Any, Any]], addresses: tuple[int, ...], added: int | None
) -> None:
    a, b, d = (_matrices(kind, address) for kind, address in zip(kinds, addresses, strict=True))
    left, right = (x.astype(np.float64) for x in (a, b))
    left = left.transpose(0, 2, 1) if operation[3] else left
    right = right.transpose(0, 2, 1) if operation[4] else right
    sums = left @ right
    if added is not None:
        sums = sums + _matrices(kinds[2], added).astype(np.float64)
    epilogue = operation[7]
    if epilogue & 4:
        bias = (ctypes.c_char * (d.shape[1] * d.itemsize)).from_address(operation[8])
        sums = sums + np.frombuffer(bias, d.dtype).astype(np.float64)[:, None]
    if epilogue & 2:
        sums = np.maximum(sums, 0)
    if epilogue & 32:
        sums = 0.5 * sums * (1 + np.tanh(np.sqrt(2 / np.pi) * (sums + 0.044715 * sums**3)))
    d[...] = sums.astype(d.dtype)
