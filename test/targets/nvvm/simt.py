"""Kernels executed without a GPU: all threads of a block step by step together, each value an array over them.

For what no software device runs: products of the matrix units, whose fragments are spread over a warp as the PTX manual
(sections on mma.m16n8k16 and others) says. Barriers need nothing, since no thread is ever ahead of another.
"""

from __future__ import annotations

import math
import re
from typing import Any

import fragments
import ml_dtypes
import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.passes.lower.calls import find
from mirlo.targets.nvvm.entry import CLUSTER

_DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i1": np.bool_, "index": np.int64,
           "i64": np.int64, "i32": np.int32, "i8": np.int8, "i16": np.int16, "f64": np.float64}  # fmt: skip
_BINARY = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "divui": np.floor_divide, "remui": np.remainder,
    "minui": np.minimum, "maxui": np.maximum, "shli": np.left_shift, "maxsi": np.maximum, "minsi": np.minimum,
    "ori": np.bitwise_or, "xori": np.bitwise_xor,
    "andi": np.bitwise_and, "addf": np.add, "subf": np.subtract, "mulf": np.multiply,
    "divf": np.divide, "maximumf": np.maximum, "minimumf": np.minimum,
}  # fmt: skip
_COMPARE = {0: np.equal, 1: np.not_equal, 2: np.less, 3: np.less_equal, 4: np.greater, 5: np.greater_equal,
            6: np.less, 7: np.less_equal, 8: np.greater, 9: np.greater_equal}  # fmt: skip
_COMPARE_FLOATS = {
    1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 13: np.not_equal,
    14: lambda x, y: np.isnan(x) | np.isnan(y),
}  # fmt: skip
_AFFINE = {
    ir.AffineAddExpr: np.add, ir.AffineMulExpr: np.multiply, ir.AffineModExpr: np.remainder,
    ir.AffineFloorDivExpr: np.floor_divide,
}  # fmt: skip
_ASSEMBLY = {
    "mov.b64 $0, $1;": lambda x: x,
    "ex2.approx.ftz.f32 $0, $1;": lambda x: np.exp2(np.where(x < -126, -np.inf, x), dtype=np.float32),
}  # fmt: skip
_UNSIGNED = 6
WARP = 32


def dtype_of(kind: Any) -> Any:
    return _DTYPES[str(kind.element_type if hasattr(kind, "element_type") else kind)]


class Block:
    """One block of threads while it runs."""

    def __init__(self, threads: int, position: tuple[int, int, int]):
        self.threads = threads
        self.position = position
        self.env: dict[Any, Any] = {}
        self.copies: list[Any] = []
        self.groups: list[list[Any]] = []

    def run(self, block: Any, mask: np.ndarray) -> list[Any]:
        """The operations of a block of IR; what its terminator passes on."""
        operations = [op.operation for op in block.operations]
        for op in operations[:-1]:
            self.execute(op, mask)
        return [self.env[v] for v in operations[-1].operands]

    def execute(self, op: Any, mask: np.ndarray) -> None:
        short = op.name.split(".", 1)[1]
        handler = getattr(self, op.name.replace(".", "_"), None)
        if handler is not None:
            handler(op, mask)
        elif op.name.startswith("arith.") and short in _BINARY:
            left, right = (self.env[v] for v in op.operands)
            self.env[op.results[0]] = _BINARY[short](left, right).astype(left.dtype)
        else:
            raise NotImplementedError(op.name)

    # Numbers

    def arith_constant(self, op: Any, mask: np.ndarray) -> None:
        kind, value = op.results[0].type, op.attributes["value"]
        shape = (self.threads, *(kind.shape if isinstance(kind, ir.VectorType) else ()))
        number = value.get_splat_value().value if isinstance(value, ir.DenseElementsAttr) else value.value
        self.env[op.results[0]] = np.full(shape, number).astype(dtype_of(kind))

    def arith_cmpi(self, op: Any, mask: np.ndarray) -> None:
        left, right = (self.env[v] for v in op.operands)
        predicate = op.attributes["predicate"].value
        if predicate >= _UNSIGNED:
            left, right = left.astype(np.uint64), right.astype(np.uint64)
        self.env[op.results[0]] = _COMPARE[predicate](left, right)

    def arith_cmpf(self, op: Any, mask: np.ndarray) -> None:
        left, right = (self.env[v] for v in op.operands)
        compare = _COMPARE_FLOATS[op.attributes["predicate"].value]
        self.env[op.results[0]] = compare(left, right)

    def arith_negf(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = -self.env[op.operands[0]]

    def math_exp2(self, op: Any, mask: np.ndarray) -> None:
        x = self.env[op.operands[0]]
        self.env[op.results[0]] = np.exp2(x.astype(np.float64)).astype(x.dtype)

    def math_ceil(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = np.ceil(self.env[op.operands[0]])

    def nvvm_rcp_approx_ftz_f(self, op: Any, mask: np.ndarray) -> None:
        # Not the nearest number, as the hardware's may not be, and nothing of subnormal ones.
        x = self.env[op.operands[0]]
        x = np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)
        made = np.nextafter(np.float32(1) / x, np.float32(np.inf))
        self.env[op.results[0]] = np.where(np.abs(made) < np.finfo(np.float32).tiny, np.float32(0), made)

    def math_absf(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = np.abs(self.env[op.operands[0]])

    def math_copysign(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = np.copysign(*(self.env[v] for v in op.operands))

    def math_fma(self, op: Any, mask: np.ndarray) -> None:
        x, y, z = (self.env[v].astype(np.float64) for v in op.operands)
        self.env[op.results[0]] = (x * y + z).astype(dtype_of(op.results[0].type))

    def arith_select(self, op: Any, mask: np.ndarray) -> None:
        condition, yes, no = (self.env[v] for v in op.operands)
        condition = condition.reshape(condition.shape + (1,) * (yes.ndim - condition.ndim))
        self.env[op.results[0]] = np.where(condition, yes, no).astype(yes.dtype)

    def _cast(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.env[op.operands[0]].astype(dtype_of(op.results[0].type))

    arith_extf = arith_truncf = arith_index_cast = arith_sitofp = arith_extsi = arith_trunci = arith_fptosi = _cast

    def arith_extui(self, op: Any, mask: np.ndarray) -> None:
        x = self.env[op.operands[0]]
        plain = x if x.dtype == np.bool_ else x.view(f"u{x.dtype.itemsize}")
        self.env[op.results[0]] = plain.astype(dtype_of(op.results[0].type))

    def arith_shrui(self, op: Any, mask: np.ndarray) -> None:
        value, by = (self.env[v] for v in op.operands)
        unsigned = np.dtype(f"u{value.dtype.itemsize}")
        self.env[op.results[0]] = (value.view(unsigned) >> by.astype(unsigned)).view(value.dtype)

    def arith_bitcast(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.env[op.operands[0]].view(dtype_of(op.results[0].type))

    def nvvm_convert_float_to_tf32(self, op: Any, mask: np.ndarray) -> None:
        """Rounded to ten bits of fraction, ties away from zero, as the bits of an f32."""
        self.env[op.results[0]] = fragments.rounded_to_tf32(self.env[op.operands[0]]).view(np.int32)

    def affine_apply(self, op: Any, mask: np.ndarray) -> None:
        def of(e: Any) -> Any:
            if isinstance(e, ir.AffineDimExpr):
                return self.env[op.operands[e.position]]
            if isinstance(e, ir.AffineSymbolExpr):
                return self.env[op.operands[op.attributes["map"].value.n_dims + e.position]]
            if isinstance(e, ir.AffineConstantExpr):
                return e.value
            a, b = of(e.lhs), of(e.rhs)
            return next(function for kind, function in _AFFINE.items() if isinstance(e, kind))(a, b)

        (result,) = op.attributes["map"].value.results
        self.env[op.results[0]] = np.broadcast_to(of(result), (self.threads,)).astype(np.int64)

    def gpu_shuffle(self, op: Any, mask: np.ndarray) -> None:
        value, offset = (self.env[v] for v in list(op.operands)[:2])
        assert mask.all(), "threads of a warp do not meet"
        lanes = np.arange(self.threads)
        at = lanes ^ offset if "xor" in str(op.attributes["mode"]) else lanes // WARP * WARP + offset
        self.env[op.results[0]] = value[at]
        self.env[op.results[1]] = mask

    def llvm_inline_asm(self, op: Any, mask: np.ndarray) -> None:
        x = self.env[op.operands[0]]
        text = ir.StringAttr(op.attributes["asm_string"]).value
        if not len(op.results):
            limit = re.search(r"setp\.gt\.f32 never, \$0, 0f(\w+);\n@never st", text)
            assert limit and (x[mask] <= np.frombuffer(bytes.fromhex(limit[1]), ">f4")).all(), "what never happens did"
            return
        self.env[op.results[0]] = _ASSEMBLY[text](x)

    # Where a thread is

    def _dim(self, op: Any) -> int:
        return "xyz".index(re.search(r"dim ([xyz])", str(op.attributes["dimension"])).group(1))

    def gpu_thread_id(self, op: Any, mask: np.ndarray) -> None:
        first = np.arange(self.threads) if self._dim(op) == 0 else np.zeros(self.threads)
        self.env[op.results[0]] = first.astype(np.int64)

    def gpu_block_id(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = np.full(self.threads, self.position[self._dim(op)], np.int64)

    def _nothing(self, op: Any, mask: np.ndarray) -> None:
        for result in op.results:
            self.env[result] = None

    gpu_barrier = gpu_grid_dim = gpu_block_dim = _nothing

    # Memory

    def memref_alloc(self, op: Any, mask: np.ndarray) -> None:
        kind = op.results[0].type
        self.env[op.results[0]] = np.full(math.prod(kind.shape), 99).astype(dtype_of(kind))

    def _flat(self, buffer: Any, indices: Any) -> np.ndarray:
        position = np.zeros(self.threads, np.int64)
        for value, size in zip(indices, buffer.type.shape, strict=True):
            position = position * size + self.env[value]
        return position

    def memref_load(self, op: Any, mask: np.ndarray) -> None:
        memory, at = self.env[op.operands[0]], self._flat(op.operands[0], list(op.operands)[1:])
        assert (at[mask] >= 0).all() and (at[mask] < memory.size).all(), "a load leaves its buffer"
        self.env[op.results[0]] = memory[np.where(mask, at, 0)]

    def memref_store(self, op: Any, mask: np.ndarray) -> None:
        memory, at = self.env[op.operands[1]], self._flat(op.operands[1], list(op.operands)[2:])
        assert (at[mask] >= 0).all() and (at[mask] < memory.size).all(), "a store leaves its buffer"
        memory[at[mask]] = self.env[op.operands[0]][mask]

    def vector_load(self, op: Any, mask: np.ndarray) -> None:
        memory, at = self.env[op.operands[0]], self.env[op.operands[1]]
        (size,) = op.results[0].type.shape
        assert (at[mask] % size == 0).all() and (at[mask] + size <= memory.size).all(), "a load is not aligned"
        self.env[op.results[0]] = memory[np.where(mask, at, 0)[:, None] + np.arange(size)]

    def vector_store(self, op: Any, mask: np.ndarray) -> None:
        value, memory, at = (self.env[v] for v in op.operands)
        size = value.shape[1]
        assert (at[mask] % size == 0).all() and (at[mask] + size <= memory.size).all(), "a store is not aligned"
        memory[(at[:, None] + np.arange(size))[mask]] = value[mask]

    def nvgpu_device_async_copy(self, op: Any, mask: np.ndarray) -> None:
        target, to, source, at, count = (self.env[v] for v in op.operands)
        size = op.attributes["dstElements"].value
        assert mask.all() and (to % size == 0).all() and (at % size == 0).all(), "a copy is not aligned"
        assert (at + size <= source.size).all() and (to + size <= target.size).all(), "a copy leaves its buffer"
        numbers = source[at[:, None] + np.arange(size)]
        numbers = np.where(np.arange(size) < count[:, None], numbers, 0).astype(source.dtype)
        self.copies.append((target, to[:, None] + np.arange(size), numbers))

    def nvvm_bar_warp_sync(self, op: Any, mask: np.ndarray) -> None:
        """Threads go together here anyway."""

    def nvvm_cp_async_commit_group(self, op: Any, mask: np.ndarray) -> None:
        self.groups.append(self.copies)
        self.copies = []

    def nvvm_cp_async_wait_group(self, op: Any, mask: np.ndarray) -> None:
        """What is copied is there only now, not when the copy was started."""
        while len(self.groups) > op.attributes["n"].value:
            for target, to, numbers in self.groups.pop(0):
                target[to] = numbers

    # Vectors

    def vector_fma(self, op: Any, mask: np.ndarray) -> None:
        x, y, z = (self.env[v].astype(np.float64) for v in op.operands)
        self.env[op.results[0]] = (x * y + z).astype(dtype_of(op.results[0].type))

    def vector_broadcast(self, op: Any, mask: np.ndarray) -> None:
        value, shape = self.env[op.operands[0]], op.results[0].type.shape
        wide = value.reshape(self.threads, *(1 for _ in shape))
        self.env[op.results[0]] = np.broadcast_to(wide, (self.threads, *shape)).copy()

    def vector_from_elements(self, op: Any, mask: np.ndarray) -> None:
        made = np.stack([self.env[v] for v in op.operands], 1)
        self.env[op.results[0]] = made.reshape(self.threads, *op.results[0].type.shape)

    def vector_to_elements(self, op: Any, mask: np.ndarray) -> None:
        flat = self.env[op.operands[0]].reshape(self.threads, -1)
        self.env.update(zip(op.results, flat.T, strict=True))

    def vector_insert(self, op: Any, mask: np.ndarray) -> None:
        value, into = (self.env[v] for v in op.operands)
        made = into.copy()
        made[(slice(None), *op.attributes["static_position"])] = value
        self.env[op.results[0]] = made

    def vector_extract(self, op: Any, mask: np.ndarray) -> None:
        self.env[op.results[0]] = self.env[op.operands[0]][(slice(None), *op.attributes["static_position"])]

    def vector_bitcast(self, op: Any, mask: np.ndarray) -> None:
        value = np.ascontiguousarray(self.env[op.operands[0]])
        self.env[op.results[0]] = value.view(dtype_of(op.results[0].type))

    def nvgpu_ldmatrix(self, op: Any, mask: np.ndarray) -> None:
        """Squares of 8 rows of 16 bytes: each thread gets 4 bytes of a row, or of a column of 16-bit numbers."""
        memory, at = (self.env[v] for v in op.operands)
        tiles, turned = op.attributes["numTiles"].value, op.attributes["transpose"].value
        assert mask.all()
        width = 16 // memory.itemsize
        pair = width // 4
        assert not turned or memory.itemsize == 2, "only numbers of two bytes are turned"
        made = np.zeros((self.threads, tiles, pair), memory.dtype)
        lanes = np.arange(WARP)
        for first in range(0, self.threads, WARP):
            for tile in range(tiles):
                rows = at[first + 8 * tile : first + 8 * tile + 8]
                assert (rows % width == 0).all() and (rows + width <= memory.size).all(), "a row is not aligned"
                square = memory[rows[:, None] + np.arange(width)]
                square = square.T if turned else square
                for j in range(pair):
                    made[first : first + WARP, tile, j] = square[lanes >> 2, lanes % 4 * pair + j]
        self.env[op.results[0]] = made

    def nvvm_mma_sync(self, op: Any, mask: np.ndarray) -> None:
        assert mask.all() and self.threads % WARP == 0
        sizes = list(op.attributes["operandSegmentSizes"])
        values = [self.env[v] for v in op.operands]
        kinds = [re.search(r"<(\w+)>", str(op.attributes[f"multiplicand{side}PtxType"])).group(1) for side in "AB"]
        left, right = values[: sizes[0]], values[sizes[0] : sizes[0] + sizes[1]]
        factors = [fragments.numbers(registers, kind) for registers, kind in zip((left, right), kinds, strict=True)]
        total = np.stack(values[sizes[0] + sizes[1] :], 1)
        made = np.empty_like(total)
        for first in range(0, self.threads, WARP):
            warp = slice(first, first + WARP)
            made[warp] = fragments.product(factors[0][warp], factors[1][warp], total[warp])
        self.env[op.results[0]] = list(made.T)

    def llvm_extractvalue(self, op: Any, mask: np.ndarray) -> None:
        (position,) = op.attributes["position"]
        self.env[op.results[0]] = self.env[op.operands[0]][position]

    # Control

    def scf_for(self, op: Any, mask: np.ndarray) -> None:
        at, high, step, *carried = (self.env[v] for v in op.operands)
        body = op.regions[0].blocks[0]
        while (active := mask & (at < high)).any():
            self.env.update(zip(body.arguments, [at, *carried], strict=True))
            following = self.run(body, active)
            carried = [_where(active, new, old) for new, old in zip(following, carried, strict=True)]
            at = at + step
        self.env.update(zip(op.results, carried, strict=True))

    def scf_if(self, op: Any, mask: np.ndarray) -> None:
        condition = self.env[op.operands[0]]
        results = []
        for region, taken in zip(op.regions, (mask & condition, mask & ~condition), strict=True):
            results.append(self.run(region.blocks[0], taken) if len(region.blocks) else [])
        for result, yes, no in zip(op.results, *results, strict=True):
            self.env[result] = np.where(condition, yes, no).astype(yes.dtype)


def _where(active: np.ndarray, new: Any, old: Any) -> Any:
    """The new values of the threads that are active, the old ones of the others."""
    if not isinstance(new, np.ndarray):
        return new  # what a warpgroup has together
    return np.where(active.reshape(-1, *(1 for _ in new.shape[1:])), new, old).astype(new.dtype)


def run_kernel(function: Any, grid: tuple[int, int, int], threads: int, arrays: list[Any]) -> None:
    """Run all blocks of a `gpu.func` on arrays, tensor maps and numbers, one for each parameter."""
    body = function.regions[0].blocks[0]
    given = [array.reshape(-1) if isinstance(array, np.ndarray) else array for array in arrays]
    given = [np.full(threads, value, np.int64) if isinstance(value, int) else value for value in given]
    if find(function, "nvvm.mbarrier.init"):
        from warpgroups import run_cluster

        together = CLUSTER if find(function, "nvvm.mapa") else 1
        assert grid[1:] == (1, 1) and grid[0] % together == 0
        for first in range(0, grid[0], together):
            run_cluster(body, [(first + rank, 0, 0) for rank in range(together)], threads, given)
        return
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                block = Block(threads, (x, y, z))
                block.env.update(zip(body.arguments, given, strict=True))
                block.run(body, np.ones(threads, bool))
