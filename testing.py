"""Helpers for the tests of plug-ins: cases for `mirlo check-target`.

    from mirlo.testing import Draw, case, conformance_case

    @conformance_case("npu.gemm", kinds=("f32",))
    def gemm(draw: Draw):
        x, weight = draw.array(8, 16), draw.array(16, 12)
        return case(x, weight, expected=x @ weight)

The function draws operands of the element type that is checked, and says what numpy makes of them. Sizes that are
drawn may be rounded up to multiples of a tile, so that rules for whole tiles are reached.
"""

from mirlo.tools.conformance.case import Draw, OperatorCase, case
from mirlo.tools.conformance.case import operator as conformance_case

__all__ = ["Draw", "OperatorCase", "case", "conformance_case"]
