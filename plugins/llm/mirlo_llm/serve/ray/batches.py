"""`mirlo.ray.predict`: a model on the batches of a data set of Ray Data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo_llm.serve.ray.columns import arrays_of_batch, arrays_of_table, as_input
from mirlo_llm.serve.ray.errors import RayError, require_ray
from mirlo_llm.serve.ray.node_models import NodeModel, node_model
from mirlo_llm.serve.tensor_backend import model_ports
from mirlo_llm.serve.tensors import TensorPort

if TYPE_CHECKING:
    import os

    import pyarrow
    import ray.data

    from mirlo.extend.runtime import Executable

FORMATS = {"numpy": "numpy", "arrow": "pyarrow"}
"""Formats of batches, by Ray's names."""
Arrays = dict[str, np.ndarray]


def predict(
    dataset: ray.data.Dataset,
    model: str | os.PathLike[str] | Executable,
    *,
    columns: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    batch_size: int = 256,
    batch_format: str = "numpy",
    workers: int | tuple[int, int] = (1, 4),
    cpus: int = 1,
    **options: Any,
) -> ray.data.Dataset:
    """Return the data set with the outputs of a model as further columns.

    `columns` are the columns of inputs and `outputs` those of outputs, which have their names otherwise. `model` is a
    compiled model, or a path that each node has, compiled there for the node's processor with `options`. `workers`
    processes have the model, or from the first to the second number of them, with `cpus` cores each. Batches are
    arrays of numpy or tables of Arrow (`batch_format="arrow"`); either are read where they are if their rows are
    contiguous and their type is the input's.
    """
    require_ray("data")
    from ray.data import ActorPoolStrategy

    if batch_format not in FORMATS:
        raise RayError(f"batch_format: expected one of {', '.join(FORMATS)}, found {batch_format!r:.40}")
    least, most = (workers, workers) if isinstance(workers, int) else workers
    placed = node_model(model, {"threads": cpus, **options})
    return dataset.map_batches(
        BatchModel,
        fn_constructor_args=(placed, dict(columns or {}), dict(outputs or {})),
        batch_size=batch_size,
        batch_format=FORMATS[batch_format],
        zero_copy_batch=True,
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=cpus,
    )


class BatchModel:
    """A model in a worker process, called with batches."""

    def __init__(self, placed: NodeModel, columns: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self._model = placed.load()
        self._inputs = model_ports("model", self._model, "input")
        self._results = model_ports("model", self._model, "output")
        _require_names("columns", columns, self._inputs)
        _require_names("outputs", outputs, self._results)
        self._columns = {port.name: columns.get(port.name, port.name) for port in self._inputs}
        self._outputs = {port.name: outputs.get(port.name, port.name) for port in self._results}
        self._rows = _fixed_rows(self._inputs)

    def __call__(self, batch: Any) -> Any:
        """Return a batch with the outputs as further columns."""
        if isinstance(batch, dict):
            return {**batch, **self._run(arrays_of_batch(batch, self._columns))}
        return _with_columns(batch, self._run(arrays_of_table(batch, self._columns)))

    def _run(self, arrays: Arrays) -> Arrays:
        inputs = {port.name: as_input(port, arrays[port.name], self._columns[port.name]) for port in self._inputs}
        rows = len(next(iter(inputs.values())))
        parts = [self._call(part, count) for part, count in _parts(inputs, rows, self._rows)]
        return {
            self._outputs[name]: parts[0][name] if len(parts) == 1 else np.concatenate([part[name] for part in parts])
            for name in self._outputs
        }

    def _call(self, inputs: Arrays, rows: int) -> Arrays:
        """Return the outputs of the first rows."""
        results = {name: np.asarray(array) for name, array in self._model.run(inputs).items()}
        for name, array in results.items():
            if array.ndim == 0 or len(array) < rows:
                raise RayError(f"output '{name}' of shape {array.shape} has no row for each of the {rows} rows")
        return {name: array[:rows] for name, array in results.items()}


def _require_names(argument: str, names: Mapping[str, str], ports: Sequence[TensorPort]) -> None:
    known = [port.name for port in ports]
    for name in names:
        if name not in known:
            raise RayError(f"{argument}: the model has no '{name}'; it has {', '.join(known)}")


def _fixed_rows(inputs: Sequence[TensorPort]) -> int | None:
    """Return the number of rows of a call; None if it is dynamic."""
    sizes = {port.shape[0] if port.shape else 0 for port in inputs if port.shape is not None}
    if not inputs or 0 in sizes:
        raise RayError("the model has no inputs whose first dim is that of rows")
    fixed = {size for size in sizes if isinstance(size, int)}
    if len(fixed) > 1:
        raise RayError(f"the first dims of the inputs differ, {sorted(fixed)}: they are no rows")
    return fixed.pop() if fixed else None


def _parts(inputs: Arrays, rows: int, size: int | None) -> list[tuple[Arrays, int]]:
    """Split rows into calls of a fixed size, with the number of used rows; the last one is padded with its last row."""
    if size is None:
        return [(inputs, rows)]
    parts = []
    for start in range(0, max(rows, 1), size):
        count = min(size, rows - start)
        part = {name: array[start : start + size] for name, array in inputs.items()}
        if count < size:
            part = {name: np.concatenate([a, np.repeat(a[-1:], size - count, axis=0)]) for name, a in part.items()}
        parts.append((part, count))
    return parts


def _with_columns(table: pyarrow.Table, arrays: Arrays) -> pyarrow.Table:
    """Return a table with arrays as further columns, without copying them."""
    import pyarrow
    from ray.data.extensions import ArrowTensorArray

    for name, array in arrays.items():
        column = pyarrow.array(array) if array.ndim == 1 else ArrowTensorArray.from_numpy(np.ascontiguousarray(array))
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, column)
        else:
            table = table.append_column(name, column)
    return table
