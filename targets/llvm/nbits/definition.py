"""The meaning of products with packed weights: the definition that `verify-schedule` compares their kernels with.

Panels hold random codes, scales and zero points, as `PanelLayout.pack` arranges them; results are sums of products of
rows and the weights that these stand for. No code of the kernels takes part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.field import FieldArithmetic
from mirlo.passes.exact.memory import Array, GuardedBuffer, RandomMemory, number_of
from mirlo.passes.exact.operator_definition import DescribedDefinition
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import P, Plane
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.nbits.description import described_product
from mirlo.targets.llvm.nbits.weights import FLOATS

BASE = 256
"""Base of the digits of activations."""
_HALF_WORD = 16


@dataclass(frozen=True)
class _Weights:
    """Random weights of a round."""

    codes: Array
    """[columns, rows]"""
    scales: Array
    """[columns, blocks], as the zero points."""
    zeros: Array


class NbitsDefinition(DescribedDefinition):
    """The product of rows, [sub-blocks, count, rows of K], and packed weights."""

    def __init__(self, operation: ir.Operation, constants: Sequence[Mapping[int, Array]] = ()):
        super().__init__(operation, constants)
        self.product = described_product(self.attributes)
        self._weights: _Weights | None = None
        """Those of the round whose inputs were prepared last."""

    @property
    def sources(self) -> Sequence[Path]:
        return [Path(__file__).parent]

    def dims(self) -> list[Dim]:
        return [dim for _, shape in self.parameters for dim in shape]

    def rounds(self, sizes: Mapping[str, int], least: int) -> tuple[int, float]:
        return least, 1.0

    def proven_bits(self, rounds: int, sizes: Mapping[str, int]) -> float:
        """Return b for a linear form of the rows, as `KernelDefinition.proven_bits` does."""
        return rounds * (math.log2(P) - 1)

    def prepare(self, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int], memory: RandomMemory) -> None:
        """Make rows as quantization or padding makes them, their sums, and panels."""
        layout, digits = self.product.layout, self.product.digits
        count = number_of(self.product.count, sizes)
        shape = (layout.sub_blocks, count, layout.sub)
        rows = [plane.reshape(max(digits, 1), *shape) for plane in inputs[0].planes]
        padding = layout.sub_blocks * layout.sub - layout.rows
        for each in rows:
            if digits:
                np.maximum(each, -127, out=each)
            if padding:
                each[:, -1, :, -padding:] = 0
        if digits:
            (sums,) = inputs[2].planes
            sums[:] = (-layout.middle * rows[0].astype(np.int32).sum(-1)).reshape(-1)
        elif layout.zero:
            for number, (each, sums) in enumerate(zip(rows, inputs[1].planes, strict=True)):
                total = each[0].sum(-1).reshape(-1)
                plane = _plane(memory.arithmetic, number)
                sums[:] = total if plane is None else total % plane.modulus
        (panels,) = inputs[-1].planes
        panels[:] = self._draw(memory).view(panels.dtype)

    def _draw(self, memory: RandomMemory) -> Array:
        """Return panels of random weights."""
        layout, rng = self.product.layout, memory.rng
        codes = self._codes(rng)
        shape = (layout.columns, layout.blocks)
        scales = rng.uniform(-2, 2, shape).astype(DTYPES[layout.scale].to_numpy())
        zeros: Array | None = None
        if layout.zero == "f32":
            zeros = rng.uniform(-layout.middle, layout.middle, shape).astype(np.float32)
        elif layout.zero:
            zeros = rng.integers(-layout.middle, layout.middle, shape).astype(np.int8)
        panels = layout.pack(codes, scales, zeros)
        plain = np.zeros(shape, np.int8) if zeros is None else zeros
        self._weights = _Weights(codes, scales.astype(np.float64), plain.astype(np.float64))
        return panels

    def _codes(self, rng: np.random.Generator) -> Array:
        """Return random codes [columns, rows]."""
        layout = self.product.layout
        shape = (layout.columns, layout.rows)
        if layout.is_by_word:
            least = 128 + layout.least
            return rng.integers(least, least + (1 << layout.bits), shape).astype(np.uint8)
        codes = rng.integers(0, 1 << layout.bits, shape).astype(np.uint8)
        if layout.floats and not layout.is_integer:
            codes[codes & 0x7F == 0x7F] = 0  # no number
        return codes

    def _numbers(self) -> Array:
        """Return the number that each code stands for."""
        layout = self.product.layout
        codes = np.arange(256)
        if layout.table or layout.codebook:
            return np.resize(np.array(layout.table or layout.codebook, np.float64), 256)
        if layout.floats:
            kind = DTYPES[layout.floats].to_numpy()
            decoded = codes.astype(np.uint8).view(kind).astype(np.float64) / FLOATS[layout.floats]
            return np.nan_to_num(decoded)
        return codes - 128.0 if layout.bits == 8 or layout.is_by_word else codes - float(layout.middle)

    def evaluate(
        self, arithmetic: Arithmetic, memory: RandomMemory, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int],
        table: Array,
    ) -> list[GuardedBuffer]:  # fmt: skip
        layout, digits = self.product.layout, self.product.digits
        count = number_of(self.product.count, sizes)
        if self._weights is None:
            raise OutsideError("packed weights in a graph")
        codes, scales, zeros = self._weights.codes, self._weights.scales, self._weights.zeros
        (result,) = [memory.buffer(argument, sizes) for argument in self.outputs]
        for number, to in enumerate(result.planes):
            plane = _plane(arithmetic, number)
            if plane is None:
                raise OutsideError("packed weights as 64-bit floats")
            x = (
                inputs[0]
                .planes[number if not digits else 0]
                .reshape(max(digits, 1), layout.sub_blocks, count, layout.sub)
            )
            rows: Array = sum(x[d].astype(np.int64) * BASE**d for d in range(digits)) if digits else x[0]
            weights: Array = np.zeros((layout.columns, layout.sub_blocks * layout.sub), np.int64)
            weights[:, : layout.rows] = plane.residues(self._numbers())[codes]
            total = np.zeros((count, layout.columns), np.int64)
            for sub in range(layout.sub_blocks):
                block = sub // layout.subs_per_block
                part = weights[:, sub * layout.sub : (sub + 1) * layout.sub]
                point, scale = (plane.residues(each[:, block]) for each in (zeros, scales))
                own = _product_modulo(plane, rows[sub], (part - point[:, None]) % plane.modulus)
                factor: Array = scale[None, :] % plane.modulus
                if digits:
                    own_scale = inputs[1].planes[number].reshape(layout.sub_blocks, count)[sub]
                    factor = factor * own_scale[:, None] % plane.modulus
                total = (total + own * factor) % plane.modulus
            to[:] = total.reshape(-1)
        return [result]


def _plane(arithmetic: Arithmetic, number: int) -> Plane | None:
    """Return the modulus of a plane; None of floats."""
    return arithmetic.moduli[number] if isinstance(arithmetic, FieldArithmetic) else None


def _product_modulo(plane: Plane, rows: Array, columns: Array) -> Array:
    """Return rows times the transpose of columns: products of halves of words do not overflow."""
    rows = rows % plane.modulus
    low, high = columns & ((1 << _HALF_WORD) - 1), columns >> _HALF_WORD
    upper = rows @ high.T % plane.modulus
    product: Array = (rows @ low.T + (upper << _HALF_WORD)) % plane.modulus
    return product
