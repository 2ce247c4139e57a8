"""Products of small matrices of residues are exact, wherever their elements are in memory."""

import numpy as np
import pytest

from mirlo.passes.exact.primes import EXPONENTS, VALUES
from mirlo.passes.exact.residue_products import multiply


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
