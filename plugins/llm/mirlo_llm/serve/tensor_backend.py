"""A served model with tensors as inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor

import numpy as np

from mirlo.extend.runtime import STRING, Executable, InputError, MirloError, Program, UnmetAssumption
from mirlo_llm.serve.backend import Backend
from mirlo_llm.serve.batching import Arrays, CallQueue, rows_are_independent
from mirlo_llm.serve.engine_thread import STOPPING
from mirlo_llm.serve.errors import RequestError, ServeError
from mirlo_llm.serve.metrics import ServerMetrics
from mirlo_llm.serve.options import ServeOptions
from mirlo_llm.serve.tensors import TensorPort, require_servable

WARM_SIZE = 2
"""Size of dynamic dims in the first call."""
TRIAL_ROWS = 3


class TensorBackend(Backend):
    """A compiled model for the Open Inference Protocol."""

    kind = "tensors"

    def __init__(
        self,
        name: str,
        model: Executable | Program,
        options: ServeOptions,
        metrics: ServerMetrics,
        executor: Executor,
    ) -> None:
        super().__init__(name, options, metrics, options.workers)
        self.model = model
        self.inputs = {port.name: port for port in model_ports(name, model, "input")}
        self.outputs = {port.name: port for port in model_ports(name, model, "output")}
        self.is_batched = False
        """Whether calls share one of several rows."""
        self._executor = executor
        self._queue = self._new_queue()

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weights and of the arenas of active calls."""
        memory = self.model.memory
        arenas = memory.arena_bytes * self.options.workers + memory.device_arena_bytes
        return memory.weights_bytes + arenas

    @property
    def platform(self) -> str:
        """Return the target of the compiled model."""
        target = self.model.artifact.target if isinstance(self.model, Executable) else self.model.compiled.target
        return f"mirlo_{str(target).partition('{')[0]}"

    def warm(self) -> None:
        """Call the model on random rows, and find out whether calls can be batched."""
        if any(port.dtype == STRING or port.shape is None for port in self.inputs.values()):
            return  # there are no random values of these kinds
        batch = self._batch_dim()
        try:
            self._run(self._random(1 if batch else WARM_SIZE, batch))
            if batch and self.options.batch > 1:
                trial = self._random(TRIAL_ROWS, batch)
                self.is_batched = rows_are_independent(self._run, trial, list(self.outputs.values()))
        except (InputError, UnmetAssumption):
            return  # random values and sizes are not what the model takes
        if self.is_batched:
            self._queue = self._new_queue()

    async def infer(self, inputs: Arrays) -> Arrays:
        """Run the model."""
        rows = len(next(iter(inputs.values()))) if self.is_batched else 1
        try:
            return await self._queue.call(inputs, rows)
        except (InputError, UnmetAssumption) as error:
            raise RequestError(400, str(error)[:2000]) from None
        except MemoryError as error:
            raise RequestError(507, f"not enough memory for a call of this size: {str(error)[:500]}") from None
        except RequestError:
            raise
        except MirloError as error:
            raise RequestError(500, str(error)[:2000]) from None

    def stop(self) -> None:
        """End the waiting calls."""
        self.fail_all()

    def fail_all(self) -> None:
        """End the waiting calls with an error."""
        self._queue.fail_all(RequestError(503, STOPPING, retry=1))

    def _new_queue(self) -> CallQueue:
        most = self.options.batch if self.is_batched else 1
        delay = self.options.batch_delay / 1000
        return CallQueue(
            self._run, self._executor, self.options.workers, most, delay,
            lambda rows: self.metrics.rows.observe(rows, self.name),
        )  # fmt: skip

    def _run(self, inputs: Arrays) -> Arrays:
        return self.model.run(inputs)

    def _batch_dim(self) -> str | None:
        """Return the symbol of the first dim that all inputs and outputs share; None if there is none."""
        first = {port.shape[0] if port.shape else None for port in (*self.inputs.values(), *self.outputs.values())}
        dim = first.pop() if len(first) == 1 else None
        return dim if isinstance(dim, str) and dim.isidentifier() else None

    def _random(self, rows: int, batch: str | None) -> Mapping[str, np.ndarray]:
        symbols = {
            dim for port in self.inputs.values() for dim in port.shape or () if isinstance(dim, str) and dim != batch
        }
        sizes = dict.fromkeys(symbols, WARM_SIZE) | ({batch: rows} if batch else {})
        return self.model.random_inputs(dims=sizes)


def model_ports(model: str, executable: Executable | Program, what: str) -> list[TensorPort]:
    """Return the inputs or outputs of a model; raise an error for types outside of the protocol."""
    result = []
    if isinstance(executable, Executable):
        for spec in executable.inputs if what == "input" else executable.outputs:
            result.append(TensorPort(spec.name, spec.dtype, spec.shape))
    else:
        for port in executable.inputs if what == "input" else executable.outputs:
            if port.kind.element is not None:
                kind = f"{what} '{port.name}' is {port.kind}, and the Open Inference Protocol has tensors only"
                raise ServeError(f"model '{model}': {kind}")
            result.append(TensorPort(port.name, port.kind.name, port.kind.shape))
    for each in result:
        require_servable(model, what, each.name, each.dtype)
    return result
