"""States of a fixed size that a call replaces, such as those of linear attention and of convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mirlo.extend.runtime import InputError, TensorSpec, empty_aligned, numpy_dtype


class RecurrentStates:
    """The states of a batch, zero at first.

    Earlier states cannot be computed from later ones, so they can go back to two lengths only: that before the last
    call, and 0.
    """

    def __init__(self, specs: Iterable[TensorSpec], pairs: Mapping[str, str], batch: int) -> None:
        """Create the states of these inputs; `pairs` are the outputs that are their next values, by inputs."""
        self._pairs = dict(pairs)
        self._start = {spec.name: _zeros(spec, batch) for spec in specs}
        self.arrays: Mapping[str, np.ndarray] = self._start
        """The states, by inputs; arrays are never written again."""
        self._before: tuple[int, Mapping[str, np.ndarray]] = (0, self._start)

    def replace(self, results: dict[str, np.ndarray], length: int) -> None:
        """Take the next states from the results of a call that began after `length` tokens."""
        states = {name: results.pop(output) for name, output in self._pairs.items()}
        self._before, self.arrays = (length, self.arrays), states

    def rewind(self, length: int) -> int:
        """Go back to `length` tokens, or to the last shorter length with known states; return that length."""
        kept, self.arrays = self._before if self._before[0] <= length else (0, self._start)
        self._before = 0, self._start
        return kept

    def fork(self) -> RecurrentStates:
        """Return a copy that continues separately."""
        result = RecurrentStates((), self._pairs, 1)
        result._start, result.arrays, result._before = self._start, self.arrays, self._before
        return result

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the states after the present tokens."""
        require_same(arrays, self._start)
        self.arrays, self._before = arrays, (0, self._start)

    def join(self, others: Sequence[RecurrentStates]) -> None:
        """Join states of one sequence each to a batch."""
        self.arrays = {name: np.concatenate([each.arrays[name] for each in others]) for name in self._start}
        self._before = 0, self._start

    def select(self, rows: np.ndarray) -> None:
        """Keep these sequences of the batch, in this order."""
        self.arrays = {name: array[rows] for name, array in self.arrays.items()}
        self._before = 0, self._start


class PooledStates:
    """The states of several sequences, zero at first; each call runs other sequences.

    Each sequence can go back as `RecurrentStates` can: to its length before its last call, and to 0.
    """

    def __init__(self, specs: Iterable[TensorSpec], pairs: Mapping[str, str], count: int) -> None:
        """Create the states of `count` sequences; `pairs` are the outputs that are their next values, by inputs."""
        kinds = list(specs)
        fixed = next((spec for spec in kinds if isinstance(spec.shape[0], int) and count > 1), None)
        if fixed is not None:
            raise InputError(f"caches: calls run any number of sequences, and the state {fixed} has a fixed batch")
        self._pairs = dict(pairs)
        self._start: Mapping[str, np.ndarray] = {spec.name: _zeros(spec, 1) for spec in kinds}
        self._held: list[Mapping[str, np.ndarray]] = [self._start] * count
        """The states of each sequence, [1, ...]; arrays are never written again."""
        self._before: list[tuple[int, Mapping[str, np.ndarray]]] = [(0, self._start)] * count
        """How many tokens each sequence had before its last call, and its states there."""
        self._joined: tuple[list[int], Mapping[str, np.ndarray]] = ([], {})
        """The sequences of the last call, and their states as it returned them."""

    def join(self, sequences: Sequence[int]) -> Mapping[str, np.ndarray]:
        """Return the states of these sequences in arrays for a call."""
        known, arrays = self._joined
        if known == list(sequences):
            return arrays
        for i in set(known) - set(sequences):  # which would keep the arrays of all in memory
            length, before = self._before[i]
            self._held[i], self._before[i] = _copied(self._held[i]), (length, _copied(before))
        result = {name: np.concatenate([self._held[i][name] for i in sequences]) for name in self._start}
        self._joined = list(sequences), result
        return result

    def replace(self, results: dict[str, np.ndarray], sequences: Sequence[int], lengths: Sequence[int]) -> None:
        """Take the next states from the results of a call; each sequence had this number of tokens before."""
        states = {name: results.pop(output) for name, output in self._pairs.items()}
        for position, i in enumerate(sequences):
            self._before[i] = lengths[i], self._held[i]
            self._held[i] = {name: array[position : position + 1] for name, array in states.items()}
        self._joined = list(sequences), states

    def known(self, sequence: int, tokens: int, length: int) -> int:
        """Return the last length up to `length` with known states of a sequence with this number of tokens."""
        before = self._before[sequence][0]
        return tokens if tokens <= length else before if before <= length else 0

    def copy(self, source: int, target: int, tokens: int, length: int) -> None:
        """Set a sequence's states to those of a sequence, possibly itself, at a known length."""
        if length == tokens:
            self._held[target], self._before[target] = self._held[source], self._before[source]
        else:
            before, states = self._before[source]
            self._held[target] = states if length == before else self._start
            self._before[target] = 0, self._start
        if length != tokens or source != target:
            self._joined = [], {}

    def arrays(self, sequence: int) -> Mapping[str, np.ndarray]:
        """Return a copy of the states of a sequence."""
        return _copied(self._held[sequence])

    def restore(self, sequence: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the states of a sequence after its present tokens."""
        require_same(arrays, self._start)
        self._held[sequence], self._before[sequence] = arrays, (0, self._start)
        self._joined = [], {}


def require_same(arrays: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    if arrays.keys() != expected.keys():
        names = ", ".join(expected) or "none"
        raise InputError(f"state: expected the states {names}, found {', '.join(arrays) or 'none'}")


def _copied(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


def _zeros(spec: TensorSpec, batch: int) -> np.ndarray:
    first, *rest = spec.shape
    if any(not isinstance(dim, int) for dim in rest) or (isinstance(first, int) and first != batch):
        raise InputError(f"state: expected the state of {batch} sequences, of a fixed size each, found {spec}")
    result = empty_aligned(numpy_dtype(spec.dtype), (batch, *(int(dim) for dim in rest)))
    result[...] = 0
    return result


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
