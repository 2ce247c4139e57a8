"""States of a fixed size that a call replaces, such as those of linear attention and of convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.container import empty_aligned
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.errors import InputError


class RecurrentStates:
    """The states of a batch, zero at first.

    What they were after earlier tokens cannot be computed from what they are. They can go back to where they were
    before the last call, and to the beginning.
    """

    def __init__(self, specs: Iterable[TensorSpec], pairs: Mapping[str, str], batch: int) -> None:
        """Create the states of these inputs; `pairs` are the outputs that are their next values, by inputs."""
        self._pairs = dict(pairs)
        self._start = {spec.name: _zeros(spec, batch) for spec in specs}
        self.arrays: Mapping[str, np.ndarray] = self._start
        """The states, by inputs; arrays are never written again."""
        self._before: tuple[int, Mapping[str, np.ndarray]] = (0, self._start)

    def replace(self, results: dict[str, np.ndarray], length: int) -> None:
        """Take the next states out of the results of a call that began behind `length` tokens."""
        made = {name: results.pop(output) for name, output in self._pairs.items()}
        self._before, self.arrays = (length, self.arrays), made

    def rewind(self, length: int) -> int:
        """Go back to `length` tokens, or to fewer: to the last ones of which the states are known. Return how many."""
        kept, self.arrays = self._before if self._before[0] <= length else (0, self._start)
        self._before = 0, self._start
        return kept

    def fork(self) -> RecurrentStates:
        """Return a copy that continues on its own."""
        made = RecurrentStates((), self._pairs, 1)
        made._start, made.arrays, made._before = self._start, self.arrays, self._before
        return made

    def select(self, rows: np.ndarray) -> None:
        """Keep these sequences of the batch, in this order."""
        self.arrays = {name: array[rows] for name, array in self.arrays.items()}
        self._before = 0, self._start


def _zeros(spec: TensorSpec, batch: int) -> np.ndarray:
    first, *rest = spec.shape
    if any(not isinstance(dim, int) for dim in rest) or (isinstance(first, int) and first != batch):
        raise InputError(f"state: expected the state of {batch} sequences, of a fixed size each, found {spec}")
    made = empty_aligned(numpy_dtype(spec.dtype), (batch, *(int(dim) for dim in rest)))
    made[...] = 0
    return made


def require_states(
    states: Mapping[str, str], inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> None:
    """Raise an error unless outputs are the next values of inputs of the same type."""
    for source, output in states.items():
        if source not in inputs or output not in outputs:
            raise InputError(f"state: '{source}' and '{output}' are no input and output of the model")
        before, after = inputs[source], outputs[output]
        if before.dtype != after.dtype or tuple(before.shape[1:]) != tuple(after.shape[1:]):
            raise InputError(f"state: expected states of one type, found {before} and {after}")
