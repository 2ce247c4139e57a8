"""Dynamic batching: concurrent requests share a call of the model, if its rows are independent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np

from mirlo.extend.runtime import MirloError
from mirlo_llm.serve.tensors import TensorPort

Arrays = Mapping[str, np.ndarray]
RunModel = Callable[[Arrays], Arrays]


@dataclass
class PendingCall:
    """A waiting call."""

    inputs: Arrays
    rows: int
    result: asyncio.Future[Arrays]

    @property
    def form(self) -> tuple[object, ...]:
        """Return the properties that calls in one batch share."""
        return tuple((name, array.dtype.str, array.shape[1:]) for name, array in sorted(self.inputs.items()))


class CallQueue:
    """Batches calls of a model: at most `workers` at a time, with up to `most` rows each."""

    def __init__(
        self,
        run: RunModel,
        executor: Executor,
        workers: int,
        most: int,
        delay: float,
        on_call: Callable[[int], None],
    ) -> None:
        """Store the limits; a call waits `delay` seconds for others, `most` of 1 disables batching."""
        self._run, self._executor, self._most, self._delay, self._on_call = run, executor, most, delay, on_call
        self._free = workers
        self._waiting: deque[PendingCall] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def call(self, inputs: Arrays, rows: int) -> Arrays:
        """Run the model on some rows."""
        pending = PendingCall(inputs, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        if self._delay and self._most > 1 and sum(each.rows for each in self._waiting) < self._most:
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._delay, self._begin)
        else:
            self._begin()
        return await pending.result

    def fail_all(self, error: Exception) -> None:
        """Fail the waiting calls."""
        while self._waiting:
            _set_error(self._waiting.popleft(), error)

    def _begin(self) -> None:
        """Start batches while workers are free."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and self._waiting:
            group = self._next_group()
            if not group:
                continue
            self._free -= 1
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._executor, self._run_group, group)
            future.add_done_callback(partial(self._end, group))

    def _next_group(self) -> list[PendingCall]:
        """Return waiting calls that can run together: the first one, and others of its form."""
        first = self._waiting.popleft()
        if first.result.done():  # its client has gone
            return []
        group, rows, rest = [first], first.rows, deque[PendingCall]()
        form = first.form if self._most > 1 else None
        while self._waiting and rows < self._most and form is not None:
            other = self._waiting.popleft()
            if other.result.done():
                continue
            if rows + other.rows <= self._most and other.form == form:
                group.append(other)
                rows += other.rows
            else:
                rest.append(other)
        rest.extend(self._waiting)
        self._waiting = rest
        self._on_call(rows)
        return group

    def _run_group(self, group: Sequence[PendingCall]) -> list[Arrays | Exception]:
        if len(group) > 1:
            try:
                return list(self._run_together(group))
            except Exception:  # of one of them: each alone tells of which
                pass
        return [self._run_alone(call) for call in group]

    def _run_together(self, group: Sequence[PendingCall]) -> list[Arrays]:
        names = group[0].inputs
        outputs = self._run({name: np.concatenate([call.inputs[name] for call in group]) for name in names})
        ends = np.cumsum([call.rows for call in group])[:-1]
        parts = {name: np.split(array, ends) for name, array in outputs.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(len(group))]

    def _run_alone(self, call: PendingCall) -> Arrays | Exception:
        try:
            return self._run(call.inputs)
        except Exception as error:
            return error

    def _end(self, group: Sequence[PendingCall], done: asyncio.Future[list[Arrays | Exception]]) -> None:
        self._free += 1
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        results = [error] * len(group) if error is not None else done.result()
        for call, result in zip(group, results, strict=True):
            if isinstance(result, BaseException):
                _set_error(call, result)
            elif not call.result.done():
                call.result.set_result(result)
        self._begin()


def _set_error(call: PendingCall, error: BaseException) -> None:
    if not call.result.done():
        call.result.set_exception(error if isinstance(error, Exception) else MirloError("the call was cancelled"))


def rows_are_independent(run: RunModel, inputs: Arrays, outputs: Sequence[TensorPort], relative: float = 1e-3) -> bool:
    """Return whether each row of a batch has the same result as in a call of its own."""
    together = run(inputs)
    rows = len(next(iter(inputs.values())))
    if any(array.ndim == 0 or len(array) != rows for array in together.values()):
        return False
    for i in range(rows):
        alone = run({name: array[i : i + 1] for name, array in inputs.items()})
        for port in outputs:
            left, right = alone[port.name], together[port.name][i : i + 1]
            if left.shape != right.shape:
                return False
            if left.dtype.kind in "OUSb":
                if not np.array_equal(left, right):
                    return False
            elif not np.allclose(
                left.astype(np.float64), right.astype(np.float64), rtol=relative, atol=relative, equal_nan=True
            ):
                return False
    return True
