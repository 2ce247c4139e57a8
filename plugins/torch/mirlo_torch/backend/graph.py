"""A functional graph of ATen operators, or a stage of one, compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo import compile
from mirlo.extend.frontend import CompiledModel, FrontendError, ImportedModule
from mirlo.extend.runtime import ArenaPool, Executable, InputError, MirloError
from mirlo_torch.backend.program import LEAST_NUMBER, StageProgram
from mirlo_torch.decompose import decomposed
from mirlo_torch.importer import import_exported
from mirlo_torch.signature import require_no_writes
from mirlo_torch.sizes import SizeConditions
from mirlo_torch.tensors import to_complex, to_input, to_tensor

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class CompiledGraph:
    """The executable of a graph, called with the inputs of the graph."""

    executable: CompiledModel
    inputs: tuple[int, ...]
    """The positions of the inputs that the executable takes, in its order."""
    finish: Callable[[list[torch.Tensor]], list[object]]
    """Converts the executable's results to the graph's."""
    numbers: tuple[int, ...]
    """The positions of numeric inputs, passed to the executable as arrays of that length."""
    orders: Mapping[int, tuple[int, ...]]
    """Dims in memory order, the outermost first, of inputs that are passed without a copy, by position."""
    graph: torch.fx.GraphModule

    def __call__(self, inputs: Sequence[torch.Tensor | torch.SymInt]) -> Sequence[object]:
        """Run the compiled graph; run PyTorch's graph for lengths that it was not compiled for."""
        if any(int(inputs[index]) < LEAST_NUMBER for index in self.numbers):
            return self.run_eagerly(inputs)
        try:
            results = self.executable(*[self._argument(inputs, index) for index in self.inputs])
        except InputError as problem:
            result = self.run_eagerly(inputs)  # refuses what it does in the words of PyTorch
            warnings.warn(f"mirlo: a call runs eagerly: {problem}", stacklevel=2)
            return result
        return self.finish([to_tensor(array) for array in (results if isinstance(results, tuple) else (results,))])

    def _argument(self, inputs: Sequence[torch.Tensor | torch.SymInt], index: int) -> np.ndarray:
        """Convert an input for the executable: a number becomes an empty array of that length."""
        value: Any = inputs[index]
        if index in self.orders:
            value = value.permute(self.orders[index])
        return to_input(value) if hasattr(value, "dtype") else np.empty((int(value), 0), np.float32)

    def run_eagerly(self, inputs: Sequence[torch.Tensor | torch.SymInt]) -> Sequence[object]:
        """Run the graph in PyTorch."""
        results: Sequence[object] = self.graph(*inputs)
        return results


def compile_graph(
    graph: torch.fx.GraphModule,
    fake_inputs: Sequence[torch.Tensor | torch.SymInt],
    frozen: Mapping[int, torch.Tensor],
    arguments: Mapping[str, Any],
    arenas: ArenaPool,
    checks: bool = True,
) -> CompiledGraph:
    """Compile a graph with the inputs `frozen` as constants; with `checks`, calls check their data."""
    # In a thread of its own: PyTorch keeps the modes under which a graph runs by thread, and export must have none.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_compile_graph, graph, fake_inputs, frozen, arguments, arenas, checks).result()


def _compile_graph(
    graph: torch.fx.GraphModule,
    fake_inputs: Sequence[torch.Tensor | torch.SymInt],
    frozen: Mapping[int, torch.Tensor],
    arguments: Mapping[str, Any],
    arenas: ArenaPool,
    checks: bool = True,
) -> CompiledGraph:
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = StageProgram(graph, fake_inputs, frozen)
            exported = program.exported()
            require_no_writes(exported, "which is left to PyTorch")
            prepared = decomposed(exported)
            conditions = SizeConditions(program.known(), program.conditions())
            imported = ImportedModule(*import_exported(prepared, checks=checks, conditions=conditions))
        except MirloError:
            raise
        except Exception as error:
            raise FrontendError(f"internal error of the import: {type(error).__name__}: {error}; report it") from error
    executable = compile(imported, **arguments)
    if isinstance(executable, Executable):
        executable.share_arenas(arenas)
    executable.code_source = None  # it keeps the imported module with its context, and no caller gets the executable
    finishing = partial(finish, program.results)
    return CompiledGraph(executable, program.positions, finishing, tuple(program.numbers), program.orders, graph)


def finish(results: Sequence[tuple[str, object]], tensors: list[torch.Tensor]) -> list[object]:
    """Return a graph's results: tensors of the executable, sizes among them, and constants."""
    rest = iter(tensors)
    return [value if kind == "constant" else _RESULTS[kind](next(rest), value) for kind, value in results]


def _of_order(tensor: torch.Tensor, order: object) -> torch.Tensor:
    """Return a tensor with its dims in the original order, which the graph has permuted."""
    if order is None:
        return tensor
    assert isinstance(order, tuple), order
    return tensor.permute([order.index(axis) for axis in range(len(order))])


def _of_strides(tensor: torch.Tensor, strides: object) -> torch.Tensor:
    """Return a copy with the strides of the view that PyTorch returns."""
    import torch

    assert isinstance(strides, tuple), strides
    result = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
    _copy_repeated(tensor, result)
    return result


def _copy_repeated(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy to memory in which elements repeat: one index at a time along the dims with the least strides."""
    import torch

    if 0 in target.stride():
        first = [slice(0, 1) if stride == 0 else slice(None) for stride in target.stride()]
        source, target = source[tuple(first)], target[tuple(first)]
    by_stride = sorted(range(target.ndim), key=target.stride)
    reach = 1
    for axis in by_stride:
        if target.shape[axis] > 1 and target.stride(axis) < reach:
            for i in range(target.shape[axis]):
                _copy_repeated(source.select(axis, i), target.select(axis, i))
            return
        reach += (target.shape[axis] - 1) * target.stride(axis)
    with torch.no_grad():
        target.copy_(source)


def _complex_of_form(tensor: torch.Tensor, form: object) -> object:
    """Return the complex tensor of real and imaginary parts, with the strides that such a tensor has."""
    assert isinstance(form, tuple), form
    kind, detail = form
    return _RESULTS[kind](to_complex(tensor), detail)


_RESULTS: dict[str, Callable[[torch.Tensor, object], object]] = {
    "tensor": _of_order, "view": _of_strides, "complex": _complex_of_form,
    "size": lambda tensor, _: tensor.item(),
}  # fmt: skip
"""Converters from the executable's results, by kind of result."""
