"""The texts of differences between results."""

from __future__ import annotations

import numpy as np
import pytest

from mirlo.tools.bisect.compare import ModelValue, Tolerance, difference, wrong_elements

EXACT = Tolerance(0.0, 0.0)
VALUE = np.array([[1.0, 2.0], [3.0, np.nan]], np.float32)


@pytest.mark.parametrize(
    ("actual", "text"),
    [
        (VALUE + np.array([[0, 0], [4, 0]], np.float32), "1 of 4 elements differ; at [1, 0]: 7.0, expected 3.0"),
        (VALUE - np.array([[1, 3], [0, 0]], np.float32), "2 of 4 elements differ; at [0, 1]: -1.0, expected 2.0"),
        (np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), "1 of 4 elements differ; at [1, 1]: 4.0, expected nan"),
        (VALUE.astype(np.float64), "element type float64, expected float32"),
        (VALUE[:1], "shape (1, 2), expected (2, 2)"),
        (None, "None, expected [[ 1.  2.]\n [ 3. nan]]"),
        (VALUE, None),
    ],
)
def test_tensors(actual: ModelValue, text: str | None) -> None:
    assert difference(actual, VALUE, EXACT) == text
    assert (text is None) == (difference([actual], [VALUE], EXACT) is None)
    wrong = wrong_elements(actual, VALUE, EXACT)
    counted = text is None or "elements differ" in text
    assert (wrong is not None) == counted
    if wrong is not None:
        assert int(wrong.sum()) == int((text or "0").split()[0])


def test_sequences() -> None:
    assert difference([VALUE], [VALUE, VALUE], EXACT) == "not a sequence of 2"
    text = "item 1: 1 of 4 elements differ; at [0, 0]: 2.0, expected 1.0"
    assert difference([VALUE, VALUE + np.array([[1, 0], [0, 0]], np.float32)], [VALUE, VALUE], EXACT) == text
    assert difference(np.array(["a", "b"], object), np.array(["a", "c"], object), EXACT) == "1 of 2 strings differ"
