"""The state of a sequence of calls: key/value caches that stay in place from call to call."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirlo.extend.runtime import InputError, ModelArtifact, TensorSpec, UpdatingCall
from mirlo_llm.caches.cache_arrays import AXIS, BLOCK, CacheArrays, Rows, fixed_rows, new_arrays, require_rows
from mirlo_llm.caches.recurrent import RecurrentStates, require_states

if TYPE_CHECKING:
    import numpy.typing as npt

    from mirlo.extend.runtime import GivenOutputs, ModelArtifact


class UpdatingModel(Protocol):
    """A compiled model that may update inputs in place."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def aliases(self) -> dict[str, str]:
        """Return the inputs that can be updated in place, by the names of the outputs."""

    @property
    def artifact(self) -> ModelArtifact:
        """Return the artifact, which names the inputs that are ring buffers of windows."""

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

    `caches.state` makes one. A call of `run` reads the caches and adds the rows of its tokens. The caches of
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
        block: int = BLOCK,
    ) -> None:
        if capacity < 1 or batch < 1:
            raise InputError(f"state: expected a capacity and a batch of 1 or more, found {capacity} and {batch}")
        self._model = model
        self._pairs = dict(pairs)
        """The outputs that are the next values of the caches, by inputs."""
        specs = [spec for spec in model.inputs if spec.name in self._pairs]
        self._constants = dict(constants or {})
        self._states = dict(states or {})
        """The outputs that are the next values of states of a fixed size, by inputs."""
        known = {spec.name: spec for spec in model.inputs}
        self._recurrent = RecurrentStates([known[name] for name in self._states], self._states, batch)
        self._batch, self._block, self._length = batch, block, 0
        cached = {*self._pairs.values(), *self._states.values()}
        self._others = [spec.name for spec in model.outputs if spec.name not in cached]
        self._caches: CacheArrays | None = None
        """The caches in place; None for those of other models."""
        self._grown: dict[str, np.ndarray] = {}
        """The caches of these, which grow with each call."""
        if is_in_place(model, self._pairs):
            self._caches = CacheArrays(specs, model.artifact.windows, batch, capacity, limit, block)
            self._fixed, self._limit = self._caches.fixed, self._caches.limit
        else:
            self._fixed, self._limit = fixed_rows(specs), limit
            self._grown = new_arrays(specs, dict.fromkeys(self._pairs, 0), batch)
        self._call: UpdatingCall | None = None
        """Calls that are prepared for arrays, if they can be."""
        self._prepared: Mapping[str, np.ndarray] | None = None
        """The arrays that the calls are prepared for."""

    @property
    def length(self) -> int:
        """Return the number of valid rows of the caches: the tokens so far."""
        return self._length

    @property
    def capacity(self) -> int:
        """Return the number of rows that fit in the caches."""
        return 0 if self._caches is None else self._caches.capacity

    @property
    def is_in_place(self) -> bool:
        """Return whether calls update the caches without copying them."""
        return self._caches is not None

    @property
    def is_recurrent(self) -> bool:
        """Return whether there are states of a fixed size, which cannot go back to any length."""
        return bool(self._states)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the valid rows of the caches, by the names of the inputs; these are views, to read.

        The cache of a window has them in the order of a ring: the row of a token is its position modulo the rows.
        """
        if self._caches is None:
            return dict(self._grown)
        rows = self._caches.length_of
        return {name: array[:, :, : rows(name, self._length)] for name, array in self._caches.arrays.items()}

    def run(self, inputs: Mapping[str, np.ndarray], tokens: int | Sequence[int]) -> dict[str, np.ndarray]:
        """Run the model on its other inputs, which are for this many new tokens; return its other outputs.

        `tokens` may be a number for each sequence: the rows of the inputs are padded to the largest.
        """
        tokens = tokens if isinstance(tokens, int) else max(tokens)
        if tokens < 1:
            raise InputError(f"state: expected 1 token or more, found {tokens}")
        self._reserve(self._length + tokens)
        caches = self._caches
        results = self._run(inputs) if caches is None else self._run_in_place(caches, inputs, tokens)
        if self._states:
            self._recurrent.replace(results, self._length)
        self._length += tokens
        return results

    def _run_in_place(
        self, caches: CacheArrays, inputs: Mapping[str, np.ndarray], tokens: int
    ) -> dict[str, np.ndarray]:
        """Run the model on the caches that it updates."""
        caches.require_block(tokens, self._length)
        for part in range(self._batch):
            caches.write_rows(part, self._length, self._length + tokens)
        if self._prepared is not caches.arrays:
            self._call = self._model.updating(caches.arrays, self._pairs, self._constants)
            self._prepared = caches.arrays
        try:
            return self._run(inputs)
        except BaseException:  # of an interrupted call, windows may have lost tokens
            self._length = caches.known(0, self._length)
            raise

    def _run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model; return its outputs except the caches."""
        if self._states:
            inputs = {**inputs, **self._recurrent.arrays}
        if self._call is not None:
            return self._call.run(inputs)
        arrays = self._grown if self._caches is None else self._caches.arrays
        arguments = {**inputs, **self._constants, **arrays}
        if self._caches is not None:
            results = self._model.run(arguments, out={output: arrays[name] for name, output in self._pairs.items()})
        else:
            results = self._model.run(arguments)
            self._grown = {name: results[output] for name, output in self._pairs.items()}
        return {name: results[name] for name in (*self._others, *self._states.values())}

    def rewind(self, length: int) -> int:
        """Forget all tokens but the first `length`; a negative number forgets that many of the last ones.

        Return the number of remaining tokens. It is smaller if states of a fixed size are known for a shorter length
        only, and 0 if a cache has lost rows of its window.
        """
        kept = length + self._length if length < 0 else length
        if not 0 <= kept <= self._length:
            raise InputError(f"state: cannot go back to {length} tokens: there are {self._length}")
        if self._caches is not None and kept < self._length:
            kept = self._caches.known(0, kept)
        if self._states and kept < self._length:
            kept = self._recurrent.rewind(kept)
            if self._caches is not None and self._caches.known(0, kept) < kept:
                kept = self._recurrent.rewind(0)
        self._length = kept
        if self._caches is None:
            self._grown = {name: np.ascontiguousarray(array[:, :, :kept]) for name, array in self._grown.items()}
        else:
            for part in range(self._batch):
                self._caches.truncate(part, kept)
        return kept

    def fork(self) -> CacheState:
        """Return a state that holds the same tokens and continues on its own.

        Both have the same rows in memory. The first of them to add tokens does so in place, the other one copies the
        rows before it does, unless the first one is gone by then.
        """
        clone = copy.copy(self)
        clone._recurrent = self._recurrent.fork()
        if self._caches is not None:
            clone._caches = self._caches.fork()
        return clone

    def select(self, rows: npt.ArrayLike) -> None:
        """Keep these sequences of the batch, in this order, such as the best beams."""
        chosen = np.asarray(rows)
        if chosen.shape != (self._batch,) or chosen.min() < 0 or chosen.max() >= self._batch:
            raise InputError(f"state: expected {self._batch} numbers of sequences, found {chosen}")
        if self._caches is not None:
            self._caches.select(chosen, self._length)
        self._grown = {name: array[chosen] for name, array in self._grown.items()}
        self._recurrent.select(chosen)

    def join(self, states: Sequence[CacheState]) -> None:
        """Replace the tokens of each sequence of the batch by those of a state of one sequence.

        Caches that grow with each call need states of one length.
        """
        lengths = {state.length for state in states}
        if len(states) != self._batch or any(state._batch != 1 for state in states):
            raise InputError(f"state: expected {self._batch} states of one sequence each, found {len(states)}")
        if len(lengths) > 1 and (self._caches is None or self._states):
            raise InputError(
                f"state: expected states of one length, found {', '.join(map(str, sorted(lengths)))} tokens"
            )
        self.rewind(0)
        self._reserve(max(lengths))
        for part, state in enumerate(states):
            if self._caches is not None and state._caches is not None:
                self._caches.take(state._caches, 0, part, state.length)
        if self._caches is not None and len(set(map(id, states))) == 1:
            self._caches.note_equal(states[0].length)
        self._grown = {name: np.concatenate([state._grown[name] for state in states]) for name in self._grown}
        self._recurrent.join([state._recurrent for state in states])
        self._length = max(lengths)

    def rows(self, start: int, stop: int) -> Rows | None:
        """Return a copy of the rows of some tokens of the only sequence; None if a window has lost some of them."""
        self._require_one()
        if not 0 <= start <= stop <= self._length:
            raise InputError(f"state: there are {self._length} tokens, not those from {start} to {stop}")
        if self._caches is not None:
            return self._caches.read(0, start, stop)
        return {name: array[:, :, start:stop].copy() for name, array in self._grown.items()}

    @property
    def states(self) -> Rows:
        """Return the states of a fixed size, by the names of the inputs; their arrays are never written again."""
        return dict(self._recurrent.arrays)

    def extend(self, parts: Sequence[Rows], tokens: int, states: Rows) -> None:
        """Append tokens with known rows to the only sequence, and set the states after them."""
        self._require_one()
        arrays = self._grown if self._caches is None else self._caches.arrays
        parts = [part for part in parts if part or arrays]
        require_rows(arrays, parts, tokens)
        self._reserve(self._length + tokens)
        self._recurrent.restore(states)
        at = self._length
        if self._caches is None:
            self._grown = {
                name: np.concatenate([array, *(part[name] for part in parts)], AXIS) for name, array in arrays.items()
            }
        for part in parts:
            if self._caches is not None:
                self._caches.write(0, at, part)
                at += next(iter(part.values())).shape[AXIS]
        self._length += tokens

    def _require_one(self) -> None:
        if self._batch != 1:
            raise InputError(f"state: expected a state of one sequence, found {self._batch}")

    def _reserve(self, length: int) -> None:
        """Make room for this number of rows."""
        if self._limit is not None and length > self._limit:
            what = f"has {self._limit} rows" if self._fixed == self._limit else f"may have {self._limit} rows"
            raise InputError(f"state: the cache {what}, {length} are needed: rewind it, or start anew")
        if self._caches is not None and self._caches.reserve(length, [self._length] * self._batch):
            self._call = self._prepared = None


def new_state(
    model: UpdatingModel,
    capacity: int,
    batch: int,
    limit: int | None,
    pairs: Mapping[str, str] | None,
    constants: Mapping[str, np.ndarray] | None = None,
    states: Mapping[str, str] | None = None,
    block: int = BLOCK,
) -> CacheState:
    """Return the state of a model; `pairs` are its caches, outputs by inputs; by default those of `aliases`."""
    caches = find_caches(model, batch, pairs, states)
    return CacheState(model, caches, capacity, batch, limit, constants, states, block)


def find_caches(
    model: UpdatingModel, batch: int, pairs: Mapping[str, str] | None, states: Mapping[str, str] | None
) -> dict[str, str]:
    """Check the caches and the states of a model; return its caches, possibly none if it has states."""
    if states:
        inputs = {spec.name: spec for spec in model.inputs}
        require_states(states, inputs, {spec.name: spec for spec in model.outputs})
    return {} if states and pairs is not None and not pairs else find_pairs(model, batch, pairs)


def find_pairs(model: UpdatingModel, batch: int, pairs: Mapping[str, str] | None) -> dict[str, str]:
    """Check that the caches support a batch; return the outputs with their next values, by inputs."""
    result = {source: output for output, source in model.aliases.items()} if pairs is None else dict(pairs)
    inputs = {spec.name: spec for spec in model.inputs}
    outputs = {spec.name: spec for spec in model.outputs}
    if not result:
        raise InputError(
            "state: the model has no outputs that update inputs in place: name the pairs, state(pairs=...)"
        )
    for source, output in result.items():
        if source not in inputs or output not in outputs:
            raise InputError(f"state: '{source}' and '{output}' are no input and output of the model")
        before, after = inputs[source], outputs[output]
        if len(before.shape) != 4 or len(after.shape) != 4 or before.dtype != after.dtype:
            raise InputError(f"state: expected caches [batch, heads, rows, size], found {before} and {after}")
        symbols = [axis for axis, dim in enumerate(before.shape) if isinstance(dim, str)]
        if not set(symbols) <= {0, AXIS} or (0 not in symbols and before.shape[0] != batch):
            raise InputError(f"state: a cache {before} cannot hold {batch} sequences")
    return result


def is_in_place(model: UpdatingModel, pairs: Mapping[str, str]) -> bool:
    """Return whether calls can update all these caches without copying them; raise an error if windows require it."""
    aliases = model.aliases
    apart = [name for name, output in pairs.items() if aliases.get(output) != name]
    windows = [name for name in apart if name in model.artifact.windows]
    if windows:
        raise InputError(f"caches: '{windows[0]}' is the cache of a window, which calls of this model do not update")
    return not apart
