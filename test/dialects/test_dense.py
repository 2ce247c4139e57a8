"""Dense attributes of every element type become the arrays that they were made from."""

from __future__ import annotations

import numpy as np
import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType

VALUES = {"mixed": [1.5, -2.0, np.nan, np.inf], "splat": [1.0, 1.0, 1.0, 1.0], "many": list(range(200))}


@pytest.mark.sample(2)
@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("name", [name for name in DTYPES if name != "index"])
def test_round_trip(name: str, values: str) -> None:
    numbers = np.array(VALUES[values], np.float32)
    with make_context(), ir.Location.unknown(), np.errstate(invalid="ignore"):
        kind = TensorType.of(numbers.shape, name)
        array = numbers.astype(kind.dtype.to_numpy())
        bits = array if array.dtype == np.bool_ else array.view(f"u{array.itemsize}")
        attribute = ir.DenseElementsAttr.get(bits, type=kind.to_mlir())
        found = read_dense(attribute, kind)
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes()
        parsed = read_dense(ir.Attribute.parse(str(attribute)), kind)
        np.testing.assert_array_equal(parsed.astype(np.float64), array.astype(np.float64))


def test_types_of_numpy_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "bool", raising=False)  # numpy 1.26 has none
    assert DTYPES["bool"].to_numpy() == np.bool_
