"""Host functions on strings."""

from __future__ import annotations

import numpy as np
import pytest

from mirlo.runtime.host_functions.string import take

WORDS = np.array(["a", "bc", ""], dtype=object)


@pytest.mark.parametrize("shape", [(3,), (1, 3)])
@pytest.mark.parametrize(
    "places", [1, [2], [0, 2, 2], [[1], [0]], np.zeros((0, 2), np.int64), np.zeros((2, 0), np.int64)]
)
def test_strings_are_taken_in_the_shape_of_their_places(places, shape: tuple[int, ...]) -> None:
    places = np.array(places, np.int64)
    taken = take(WORDS.reshape(shape), places)
    assert (type(taken), taken.dtype, taken.shape) == (np.ndarray, np.dtype(object), places.shape)
    assert taken.ravel().tolist() == [WORDS[place] for place in places.ravel().tolist()]
    assert not np.shares_memory(taken, WORDS)
