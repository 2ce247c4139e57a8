"""Products of a plan as calls of the library: descriptors, the algorithm that its heuristics choose, the call.

The library's matrices are column-major, the model's row-major: a · b in row-major order is bᵀ · aᵀ in column-major
order, with the same bytes. The model's `b` is therefore the library's first factor, and a bias along the columns
becomes one along the rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_void_p

from mirlo.extend.nvidia import DeviceState
from mirlo_cublas.native import library as lt
from mirlo_cublas.native.library import CUBLAS, Algorithm, CuBlasError
from mirlo_cublas.plan import MatrixProduct

WORKSPACE = 32 << 20
"""Bytes of scratch memory that algorithms may use."""
MAX_ALIGNMENT = 256
_ACTIVATIONS = {"": 0, "relu": lt.RELU, "gelu": lt.GELU}

CtypesScalar = ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_int64 | ctypes.c_uint64 | ctypes.c_void_p
"""The value of a descriptor's attribute."""


class ProductCall:
    """One product, with its descriptors: `mirlo.targets.nvvm.library_program.LibraryCall`."""

    def __init__(self, product: MatrixProduct, tf32: bool = False) -> None:
        self.product = product
        self._library = CUBLAS.load()
        compute, scale = lt.COMPUTE_TYPES.get(product.dtype, (lt.COMPUTE_32F, lt.F32))
        kinds = [lt.KINDS[name or product.dtype] for name in ("", product.dtype_b, product.result)]
        if tf32 and product.dtype == "f32":
            compute = lt.COMPUTE_TF32
        self.operation = ctypes.c_void_p()
        CUBLAS.check(
            self._library.cublasLtMatmulDescCreate(ctypes.byref(self.operation), compute, scale), "describing a product"
        )
        for attribute, transposed in ((lt.TRANSA, product.transposed_b), (lt.TRANSB, product.transposed_a)):
            self._set("MatmulDesc", self.operation, attribute, ctypes.c_int32(int(transposed)))
        self._set("MatmulDesc", self.operation, lt.EPILOGUE, ctypes.c_uint32(self.epilogue))
        m, n, k = product.m, product.n, product.k
        self.first = self._matrix(
            kinds[1], (k, n) if product.transposed_b else (n, k), 0 if product.shared_b else n * k
        )
        self.second = self._matrix(
            kinds[0], (m, k) if product.transposed_a else (k, m), 0 if product.shared_a else m * k
        )
        self.result = self._matrix(kinds[2], (n, m), m * n)
        number = ctypes.c_double if scale == lt.F64 else ctypes.c_int32 if scale == lt.I32 else ctypes.c_float
        self._one, self._of_added = number(1), number(product.added is not None)
        self._algorithms: dict[tuple[int, ...], Algorithm] = {}

    @property
    def epilogue(self) -> int:
        """Return the library's epilogue of the product."""
        bits = _ACTIVATIONS[self.product.activation] | (lt.BIAS if self.product.bias is not None else 0)
        return bits or lt.DEFAULT

    def _set(self, what: str, descriptor: c_void_p, attribute: int, value: CtypesScalar) -> None:
        change = getattr(self._library, f"cublasLt{what}SetAttribute")
        CUBLAS.check(
            change(descriptor, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))), "describing"
        )

    def _matrix(self, kind: int, size: tuple[int, int], apart: int) -> c_void_p:
        """Return a contiguous column-major matrix; `apart` is the stride of a batch, 0 if the batch shares it."""
        rows, columns = size
        result = ctypes.c_void_p()
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
        CUBLAS.check(
            self._library.cublasLtMatrixLayoutCreate(ctypes.byref(result), kind, *sizes), "describing a matrix"
        )
        if self.product.batch > 1:
            self._set("MatrixLayout", result, lt.BATCH_COUNT, ctypes.c_int32(self.product.batch))
            self._set("MatrixLayout", result, lt.BATCH_OFFSET, ctypes.c_int64(apart))
        return result

    def start(self, place: DeviceState, address: Callable[[int], int], stream: int) -> None:
        """Enqueue the product on a stream."""
        product, handle, workspace = self.product, place.handle, place.memory("workspace", WORKSPACE)
        a, b, d = (address(number) for number in (product.a, product.b, product.d))
        c = d if product.added is None else address(product.added)
        if product.bias is not None:
            self._set("MatmulDesc", self.operation, lt.BIAS_POINTER, ctypes.c_void_p(address(product.bias)))
        algorithm = self._algorithm(handle, (b, a, c, d))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        one, of_added = ctypes.byref(self._one), ctypes.byref(self._of_added)
        started = self._library.cublasLtMatmul(
            handle, self.operation, one, pointer(b), self.first, pointer(a), self.second, of_added, pointer(c),
            self.result, pointer(d), self.result, ctypes.byref(algorithm), pointer(workspace), size(WORKSPACE),
            pointer(stream),
        )  # fmt: skip
        CUBLAS.check(started, f"multiplying {product.m} x {product.k} by {product.k} x {product.n}")

    def _algorithm(self, handle: c_void_p, addresses: Sequence[int]) -> Algorithm:
        """Return the algorithm that the heuristics choose for tensors of this alignment."""
        key = tuple(min(address & -address, MAX_ALIGNMENT) if address else MAX_ALIGNMENT for address in addresses)
        algorithm = self._algorithms.get(key)
        if algorithm is not None:
            return algorithm
        preference = ctypes.c_void_p()
        CUBLAS.check(
            self._library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "describing what is preferred"
        )
        try:
            self._set("MatmulPreference", preference, lt.MAX_WORKSPACE, ctypes.c_uint64(WORKSPACE))
            rows = (lt.ALIGNMENT_A, lt.ALIGNMENT_B, lt.ALIGNMENT_C, lt.ALIGNMENT_D)
            for attribute, aligned in zip(rows, key, strict=True):
                self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(aligned))
            result, count = Algorithm(), ctypes.c_int()
            asked = self._library.cublasLtMatmulAlgoGetHeuristic(
                handle, self.operation, self.first, self.second, self.result, self.result, preference, 1,
                ctypes.byref(result), ctypes.byref(count),
            )  # fmt: skip
        finally:
            self._library.cublasLtMatmulPreferenceDestroy(preference)
        CUBLAS.check(asked, "choosing an algorithm")
        if not count.value or result.state:
            product = self.product
            raise CuBlasError(
                f"cuBLASLt has no algorithm for {product.m} x {product.k} x {product.n} in {product.dtype}"
            )
        self._algorithms[key] = result
        return result

    def release(self) -> None:
        """Destroy the descriptors."""
        self._library.cublasLtMatmulDescDestroy(self.operation)
        for matrix in (self.first, self.second, self.result):
            self._library.cublasLtMatrixLayoutDestroy(matrix)
