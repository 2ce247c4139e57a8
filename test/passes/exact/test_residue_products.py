"""Products of small matrices of residues are exact, wherever their elements are in memory."""

import numpy as np
import pytest

from mirlo.passes.exact.primes import EXPONENTS, VALUES
from mirlo.passes.exact.residue_products import in_few_dims, multiply


@pytest.mark.parametrize("plane", [VALUES, EXPONENTS])
@pytest.mark.parametrize(
    "extents", [(1, 1, 1, 5), (2, 3, 49, 33), (3, 5, 7, 1), (1, 64, 1, 100), (1, 1, 1000, 16), (2, 2, 16, 31)]
)
def test_products_are_those_of_integers(plane, extents):
    batch, height, depth, width = extents
    rng = np.random.default_rng(0)
    left = rng.integers(0, plane.modulus, (batch, height, depth)).astype(np.int32)
    right = rng.integers(0, plane.modulus, (batch, depth, width)).astype(np.int32)
    left[0], right[0] = plane.modulus - 1, plane.modulus - 1  # the greatest sums
    expected = np.matmul(left.astype(object), right.astype(object)) % plane.modulus
    for x in (left, np.asfortranarray(left)):
        for y in (right, right.swapaxes(1, 2).copy().swapaxes(1, 2), np.asfortranarray(right)):
            assert (multiply(x, y, plane) == expected.astype(np.int64)).all()


@pytest.mark.parametrize("inner", ["kernel", "pixels"])
def test_factors_are_read_where_they_are_in_memory(inner):
    """Windows of an image: the rows are channels and places in a window, the columns are windows."""
    rng = np.random.default_rng(0)
    shape = (2, 9, 40, 20) if inner == "kernel" else (2, 20, 9, 40)
    image = rng.integers(0, VALUES.modulus, shape).astype(np.int32)
    if inner == "pixels":
        image = image.transpose(0, 2, 3, 1)
    windows = np.lib.stride_tricks.sliding_window_view(
        image, (3, 5), axis=(1, 2)
    )  # batch, rows, columns, channel, 3, 5
    left = rng.integers(0, VALUES.modulus, (2, 2, 20 * 3 * 5)).astype(np.int32)
    right = in_few_dims(windows, [(0,), (3, 4, 5), (1, 2)])
    assert np.shares_memory(right, image)
    dense = windows.transpose(0, 3, 4, 5, 1, 2).reshape(2, 300, -1)
    expected = np.matmul(left.astype(object), dense.astype(object)) % VALUES.modulus
    assert (multiply(left, right, VALUES) == expected.astype(np.int64)).all()
    copied = in_few_dims(windows[..., ::2, ::2], [(0,), (1, 2, 3, 4, 5), ()])  # too many dims
    assert not np.shares_memory(copied, image)
    assert copied.size == windows[..., ::2, ::2].size
