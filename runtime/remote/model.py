"""A compiled model on a board: its calls, their times, and profiles."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from mirlo.runtime.artifact import Artifact, TensorSpec
from mirlo.runtime.errors import InputError
from mirlo.runtime.inputs import bind, convert, random_input
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.profile import Profile, make_profile, tick_length
from mirlo.runtime.records import dataclass
from mirlo.runtime.remote.wire import RunnerAddress
from mirlo.runtime.unloaded import UnloadedModel


@dataclass(frozen=True)
class TimedCalls:
    """The results of calls."""

    times: np.ndarray
    """Nanoseconds before and after each call, by the board's clock."""
    stamps: np.ndarray
    """Ticks before each kernel and after the last one, by call."""
    outputs: dict[str, np.ndarray]
    """Of the last call, where they were requested."""

    @property
    def seconds(self) -> list[float]:
        """Return the time of each call."""
        spans: list[float] = ((self.times[:, 1] - self.times[:, 0]) * 1e-9).tolist()
        return spans

    @property
    def ends(self) -> list[float]:
        """Return when each call ended, in seconds."""
        ends: list[float] = (self.times[:, 1] * 1e-9).tolist()
        return ends


class ModelSession(Protocol):
    """The interface of sessions that run models by their numbers, such as a `Board`."""

    address: RunnerAddress
    lock: threading.RLock
    """Held for requests that belong together."""

    def send_inputs(self, number: int, arrays: Sequence[np.ndarray], sent: bytes | None) -> bytes:
        """Send the inputs of a model, unless they have the digest of those that it has; return their digest."""

    def run(
        self, number: int, calls: int, *, warm: int = 1, stamps: int = 0, pause: float = 0.0, cpu_time: bool = False,
        outputs: Sequence[TensorSpec] | None = None,
    ) -> TimedCalls:  # fmt: skip
        """Call a model `warm` times, and this many times more that are timed, with stamps of kernels."""


class RemoteModel(UnloadedModel):
    """A compiled model that runs on a board; it is called as an `Executable` is."""

    def __init__(self, artifact: Artifact, store: ParameterStore, board: ModelSession, number: int) -> None:
        super().__init__(artifact, store, f"it runs on {board.address}")
        self._board = board
        self._number = number
        self._sent: bytes | None = None
        """The digest of the inputs that the board has."""

    @property
    def address(self) -> RunnerAddress:
        """Return where the board's runner listens."""
        return self._board.address

    def __call__(self, *arrays: object, **named: object) -> np.ndarray | tuple[np.ndarray, ...]:
        """Run the model on the board; return its output, or a tuple of several."""
        results = tuple(self._results(bind(self.inputs, arrays, named)).values())
        return results[0] if len(results) == 1 else results

    def run(self, inputs: Mapping[str, object], out: object = None) -> dict[str, np.ndarray]:
        """Run the model on arrays by input name, and return arrays by output name."""
        if out is not None:
            raise InputError(f"out: a model on {self._board.address} writes to no arrays of this process")
        return self._results(bind(self.inputs, (), inputs))

    def random_inputs(self, seed: int = 0, dims: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
        """Return random arrays that fit the inputs, as `Executable.random_inputs` does."""
        rng = np.random.default_rng(seed)
        return {spec.name: random_input(spec, dims or {}, rng) for spec in self.inputs}

    def seconds(
        self, inputs: Mapping[str, object], count: int, pause: float = 0.0, cpu_time: bool = False
    ) -> list[float]:
        """Return the times of this many calls by the board's clock, after one that is not counted.

        Before each of them nothing happens for `pause` seconds. CPU time is that of all threads.
        """
        with self._board.lock:
            self._send(bind(self.inputs, (), inputs))
            return self._board.run(self._number, count, pause=pause, cpu_time=cpu_time).seconds

    def profile(
        self, *arrays: object, repeats: int = 10, dims: Mapping[str, int] | None = None, **named: object
    ) -> Profile:
        """Measure the time of each kernel on the board, as `Executable.profile` does here."""
        if repeats < 1:
            raise InputError(f"repeats: expected 1 or more, found {repeats}")
        if not arrays and not named:
            named = {**self.random_inputs(dims=dims)}
        kernels = self.artifact.kernels
        with self._board.lock:
            self._send(bind(self.inputs, arrays, named))
            if not kernels:
                return Profile((), repeats)
            timed = self._board.run(self._number, repeats + 1, warm=0, stamps=len(kernels) + 1)
        ends = timed.ends
        tick = tick_length((ends[0], int(timed.stamps[0, -1])), (ends[-1], int(timed.stamps[-1, -1])))
        return make_profile(kernels, timed.stamps[1:], tick)

    def _send(self, values: list[object]) -> None:
        """Send the inputs of the next calls, unless the board has them."""
        sizes: dict[str, int] = {}
        arrays = [convert(spec, value, sizes) for spec, value in zip(self.inputs, values, strict=True)]
        self._sent = self._board.send_inputs(self._number, arrays, self._sent)

    def _results(self, values: list[object]) -> dict[str, np.ndarray]:
        with self._board.lock:
            self._send(values)
            return self._board.run(self._number, 0, warm=1, outputs=self.outputs).outputs
