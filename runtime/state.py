"""The state of a sequence of calls: key/value caches that stay in place from call to call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.errors import InputError, OutOfMemoryError
from mirlo.runtime.huge_pages import empty_together
from mirlo.runtime.recurrent import RecurrentStates, require_states
from mirlo.runtime.update import UpdatingCall

if TYPE_CHECKING:
    import numpy.typing as npt

    from mirlo.runtime.inputs import GivenOutputs

AXIS = 2
"""The dim of a cache that counts its rows: [batch, heads, rows, size]."""


class UpdatingModel(Protocol):
    """A compiled model that may update inputs in place."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def aliases(self) -> dict[str, str]:
        """Return the inputs that can be updated in place, by the names of the outputs."""

    def run(self, inputs: Mapping[str, np.ndarray], out: GivenOutputs = None) -> dict[str, np.ndarray]:
        """Run the model on arrays by input name."""

    def updating(
        self,
        arrays: Mapping[str, np.ndarray],
        outputs: Mapping[str, str],
        constants: Mapping[str, np.ndarray] | None = None,
    ) -> UpdatingCall | None:
        """Return prepared calls that update these inputs in place; None if calls cannot be prepared."""


class CacheState:
    """The caches of a model, and how many of their rows are valid.

    `Executable.state` makes one. A call of `run` reads the caches and adds the rows of its tokens. The caches of
    models that can work in place keep their arrays: they have room for `capacity` rows, which doubles when it is
    used up. Caches of other models grow with each call. `states` are of a fixed size: a call replaces them.

    A state belongs to one call at a time; the executable may have any number of states.
    """

    def __init__(
        self,
        model: UpdatingModel,
        pairs: Mapping[str, str],
        capacity: int,
        batch: int,
        limit: int | None = None,
        constants: Mapping[str, np.ndarray] | None = None,
        states: Mapping[str, str] | None = None,
    ) -> None:
        if capacity < 1 or batch < 1:
            raise InputError(f"state: expected a capacity and a batch of 1 or more, found {capacity} and {batch}")
        self._model = model
        self._pairs = dict(pairs)
        """The outputs that are the next values of the caches, by inputs."""
        self._specs = {spec.name: spec for spec in model.inputs if spec.name in self._pairs}
        self._constants = dict(constants or {})
        self._states = dict(states or {})
        """The outputs that are the next values of states of a fixed size, by inputs."""
        known = {spec.name: spec for spec in model.inputs}
        self._recurrent = RecurrentStates([known[name] for name in self._states], self._states, batch)
        self._batch = batch
        self._length = 0
        self._is_in_place = is_in_place(model, self._pairs)
        self._fixed = fixed_rows(self._specs.values())
        self._limit = self._fixed if limit is None else limit if self._fixed is None else min(limit, self._fixed)
        cached = {*self._pairs.values(), *self._states.values()}
        self._others = [spec.name for spec in model.outputs if spec.name not in cached]
        rows = self._fixed or (capacity if self._limit is None else min(capacity, self._limit))
        self._rows = rows if self._is_in_place else 0
        self._arrays = new_arrays(self._specs.values(), self._rows, self._batch)
        self._call: UpdatingCall | None = None
        """Calls that are prepared for these arrays."""

    @property
    def length(self) -> int:
        """Return how many rows of the caches are valid: the tokens so far."""
        return self._length

    @property
    def capacity(self) -> int:
        """Return how many rows the caches have room for."""
        return self._rows

    @property
    def is_in_place(self) -> bool:
        """Return whether calls update the caches without copying them."""
        return self._is_in_place

    @property
    def is_recurrent(self) -> bool:
        """Return whether there are states of a fixed size, which cannot go back to any length."""
        return bool(self._states)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the valid rows of the caches, by the names of the inputs; these are views."""
        return {name: array[:, :, : self._length] for name, array in self._arrays.items()}

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, which are for this many new tokens; return its other outputs."""
        if tokens < 1:
            raise InputError(f"state: expected 1 token or more, found {tokens}")
        self._reserve(self._length + tokens)
        if self._is_in_place and self._call is None:
            self._call = self._model.updating(self._arrays, self._pairs, self._constants)
        results = self._run(inputs)
        if self._states:
            self._recurrent.replace(results, self._length)
        self._length += tokens
        return results

    def _run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model; return its outputs but the caches."""
        if self._states:
            inputs = {**inputs, **self._recurrent.arrays}
        if self._call is not None:
            return self._call.run(inputs)
        given = {**inputs, **self._constants, **self._arrays}
        if self._is_in_place:
            out = {output: self._arrays[name] for name, output in self._pairs.items()}
            results = self._model.run(given, out=out)
        else:
            results = self._model.run(given)
            self._arrays = {name: results[output] for name, output in self._pairs.items()}
        return {name: results[name] for name in (*self._others, *self._states.values())}

    def rewind(self, length: int) -> int:
        """Forget all tokens but the first `length`; a negative number forgets that many of the last ones.

        Return how many tokens are left: fewer if states of a fixed size are known for fewer only.
        """
        kept = length + self._length if length < 0 else length
        if not 0 <= kept <= self._length:
            raise InputError(f"state: cannot go back to {length} tokens: there are {self._length}")
        if self._states and kept < self._length:
            kept = self._recurrent.rewind(kept)
        self._length = kept
        if not self._is_in_place:
            self._arrays = {name: np.ascontiguousarray(array[:, :, :kept]) for name, array in self._arrays.items()}
        return kept

    def fork(self) -> CacheState:
        """Return a copy that continues on its own."""
        made = CacheState(self._model, self._pairs, max(1, self._rows), self._batch, self._limit, self._constants)
        made._states, made._others, made._recurrent = self._states, self._others, self._recurrent.fork()
        made._length = self._length
        made._take(self._arrays, self._length)
        return made

    def select(self, rows: npt.ArrayLike) -> None:
        """Keep these sequences of the batch, in this order: those of the best beams."""
        chosen = np.asarray(rows)
        if chosen.shape != (self._batch,) or chosen.min() < 0 or chosen.max() >= self._batch:
            raise InputError(f"state: expected {self._batch} numbers of sequences, found {chosen}")
        for array in self._arrays.values():
            array[:, :, : self._length] = array[chosen, :, : self._length]
        self._recurrent.select(chosen)

    def _reserve(self, length: int) -> None:
        """Make room for so many rows."""
        if self._limit is not None and length > self._limit:
            what = f"has {self._limit} rows" if self._fixed == self._limit else f"may have {self._limit} rows"
            raise InputError(f"state: the cache {what}, {length} are needed: rewind it, or start anew")
        if self._is_in_place and length > self._rows:
            rows = max(length, 2 * self._rows)
            self._rows = rows if self._limit is None else min(rows, self._limit)
            before, self._call = self._arrays, None
            self._arrays = new_arrays(self._specs.values(), self._rows, self._batch)
            self._take(before, self._length)

    def _take(self, arrays: Mapping[str, np.ndarray], length: int) -> None:
        """Copy the valid rows of other caches."""
        if not self._is_in_place:
            self._arrays = {name: array.copy() for name, array in arrays.items()}
            return
        for name, array in arrays.items():
            self._arrays[name][:, :, :length] = array[:, :, :length]


def new_arrays(specs: Iterable[TensorSpec], rows: int, batch: int) -> dict[str, np.ndarray]:
    """Return caches with room for so many rows of each sequence, by the names of the inputs."""
    kinds = {}
    for spec in specs:
        shape = [dim if isinstance(dim, int) else batch for dim in spec.shape]
        shape[AXIS] = rows
        kinds[spec.name] = numpy_dtype(spec.dtype), tuple(shape)
    try:
        made = dict(zip(kinds, empty_together(list(kinds.values())), strict=True))
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"state: there is no memory for {rows} rows of the caches: {error}") from None
    for array in made.values():
        array[...] = 0  # rows that are not valid are hidden, which NaN would survive
    return made


def new_state(
    model: UpdatingModel,
    capacity: int,
    batch: int,
    limit: int | None,
    pairs: Mapping[str, str] | None,
    constants: Mapping[str, np.ndarray] | None = None,
    states: Mapping[str, str] | None = None,
) -> CacheState:
    """Return the state of a model; `pairs` are its caches, outputs by inputs, if they are not those of `aliases`."""
    found = find_caches(model, batch, pairs, states)
    return CacheState(model, found, capacity, batch, limit, constants, states)


def find_caches(
    model: UpdatingModel, batch: int, pairs: Mapping[str, str] | None, states: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the caches of a model, which may have states alone, after a check of both."""
    if states:
        inputs = {spec.name: spec for spec in model.inputs}
        require_states(states, inputs, {spec.name: spec for spec in model.outputs})
    return {} if states and pairs is not None and not pairs else find_pairs(model, batch, pairs)


def find_pairs(model: UpdatingModel, batch: int, pairs: Mapping[str, str] | None) -> dict[str, str]:
    """Return the outputs that are the next values of caches, by inputs, after a check that they can hold a batch."""
    found = {source: output for output, source in model.aliases.items()} if pairs is None else dict(pairs)
    inputs = {spec.name: spec for spec in model.inputs}
    outputs = {spec.name: spec for spec in model.outputs}
    if not found:
        raise InputError(
            "state: the model has no outputs that update inputs in place: name the pairs, state(pairs=...)"
        )
    for source, output in found.items():
        if source not in inputs or output not in outputs:
            raise InputError(f"state: '{source}' and '{output}' are no input and output of the model")
        before, after = inputs[source], outputs[output]
        if len(before.shape) != 4 or len(after.shape) != 4 or before.dtype != after.dtype:
            raise InputError(f"state: expected caches [batch, heads, rows, size], found {before} and {after}")
        symbols = [axis for axis, dim in enumerate(before.shape) if isinstance(dim, str)]
        if not set(symbols) <= {0, AXIS} or (0 not in symbols and before.shape[0] != batch):
            raise InputError(f"state: a cache {before} cannot hold {batch} sequences")
    return found


def is_in_place(model: UpdatingModel, pairs: Mapping[str, str]) -> bool:
    """Return whether calls can update all these caches without copying them."""
    return all(model.aliases.get(output) == name for name, output in pairs.items())


def fixed_rows(specs: Iterable[TensorSpec]) -> int | None:
    """Return the rows of caches whose size is fixed, those of the smallest; None if none is."""
    return min((rows for rows in (spec.shape[AXIS] for spec in specs) if isinstance(rows, int)), default=None)
