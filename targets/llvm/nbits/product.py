"""A product of rows and packed weights, and the types of its operands."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.nbits.layout import PanelLayout


@dataclass(frozen=True)
class Product:
    """A product of rows and packed weights."""

    layout: PanelLayout
    count: Dim
    """Number of rows."""
    digits: int
    """Digits of quantized rows; 0 for rows of f32."""

    @property
    def activations(self) -> list[TensorType]:
        """Return the types of the activations, flattened: codes, scales, sums; or floats, sums."""
        blocks, rows = self.layout.sub_blocks, self.count
        elements = blocks * rows * self.layout.sub
        if self.digits:
            return [
                TensorType((self.digits * elements,), DTYPES["i8"]),
                TensorType((blocks * rows,), DTYPES["f32"]),
                TensorType((self.digits * blocks * rows,), DTYPES["i32"]),
            ]
        sums = [TensorType((blocks * rows,), DTYPES["f32"])] if self.layout.zero else []
        return [TensorType((elements,), DTYPES["f32"]), *sums]

    @property
    def panels(self) -> TensorType:
        return TensorType((self.layout.bytes,), DTYPES["u8"])

    @property
    def result(self) -> TensorType:
        return TensorType((self.count * self.layout.columns,), DTYPES["f32"])
