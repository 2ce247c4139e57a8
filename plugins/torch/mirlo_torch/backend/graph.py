"""A functional graph of ATen operators, or a stage of one, compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo import compile
from mirlo.extend.frontend import CompiledModel, ExampleInputs, FrontendError
from mirlo.extend.runtime import ArenaPool, Executable, InputError, MirloError
from mirlo_torch.program import convert_directly, export
from mirlo_torch.signature import require_no_writes
from mirlo_torch.tensors import to_complex, to_input, to_tensor

if TYPE_CHECKING:
    import torch


LEAST_NUMBER = 2
"""Numbers from here on are symbols in an export, which specializes 0 and 1 and takes no negative ones."""


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
            program = _Program(graph, fake_inputs, frozen)
            exported = export(program.module.eval(), program.example())
            require_no_writes(exported, "which is left to PyTorch")
        except MirloError:
            raise
        except Exception as error:
            reason, _, _ = str(error).partition("\n")  # the whole graph follows
            raise FrontendError(f"the graph cannot be exported: {reason}") from error
        try:
            converted = convert_directly(exported, checks)
        except MirloError:
            raise
        except Exception as error:
            raise FrontendError(f"internal error of the import: {type(error).__name__}: {error}; report it") from error
    executable = compile(converted.model, **arguments)
    if isinstance(executable, Executable):
        executable.share_arenas(arenas)
    executable.code_source = None  # it keeps the imported module with its context, and no caller gets the executable
    finishing = partial(finish, program.results)
    return CompiledGraph(executable, program.positions, finishing, tuple(program.numbers), program.orders, graph)


class _Program:
    """A graph prepared for export: weights are attributes, and sizes are read from tensors."""

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        fake_inputs: Sequence[torch.Tensor | torch.SymInt],
        frozen: Mapping[int, torch.Tensor],
    ) -> None:
        import copy

        import torch

        self.fake_inputs = fake_inputs
        self.module = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        self._nodes = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        self._first_operation = next(node for node in self.module.graph.nodes if node.op != "placeholder")
        positions = []
        for index, (node, value) in enumerate(zip(self._nodes, fake_inputs, strict=True)):
            if index in frozen:
                self._replace_by_weight(node, index, frozen[index])
            elif isinstance(value, torch.Tensor):
                if value.device.type != "cpu":
                    raise FrontendError(
                        f"input {index} of the graph is on {value.device}: only the CPU is compiled for"
                    )
                positions.append(index)
        self.positions = tuple(positions)
        self.numbers: list[int] = []
        for index, (node, value) in enumerate(zip(self._nodes, fake_inputs, strict=True)):
            if index not in frozen and not isinstance(value, torch.Tensor):
                self._replace_size(node, index, value)
        self.positions = (*self.positions, *self.numbers)
        self.orders = self._take_orders()
        self.results = self._take_results()
        self.module.graph.lint()
        self.module.recompile()

    def example(self) -> ExampleInputs:
        """Return example tensors with the captured sizes, and their dynamic dims."""
        import torch

        tensors: list[torch.Tensor] = []
        rows: list[dict[int, Any] | None] = []
        for index in self.positions:
            fake = self.fake_inputs[index]
            if index in self.numbers:
                tensors.append(torch.zeros((hint(fake), 0)))
                rows.append({0: torch.export.Dim.DYNAMIC})
                continue
            shape = [fake.shape[axis] for axis in self.orders.get(index, range(fake.ndim))]
            tensors.append(torch.zeros([_example_size(dim) for dim in shape], dtype=fake.dtype))
            dims = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int)]
            rows.append(dict.fromkeys(dims, torch.export.Dim.DYNAMIC) or None)
        return ExampleInputs(tuple(tensors), {}, tuple(rows))

    def _replace_by_weight(self, node: torch.fx.Node, index: int, tensor: torch.Tensor) -> None:
        name = f"weight_{index}"
        self.module.register_buffer(name, tensor.detach())
        with self.module.graph.inserting_before(self._first_operation):  # after all inputs
            node.replace_all_uses_with(self.module.graph.get_attr(name))
        self.module.graph.erase_node(node)

    def _replace_size(self, node: torch.fx.Node, index: int, value: object) -> None:
        """Replace a numeric input by the size of a dim; without such a dim, add an empty tensor."""
        import torch

        if not node.users:
            self.module.graph.erase_node(node)
            return
        place = next(self._places_of(value), None)
        if place is None:
            if not isinstance(value, torch.SymInt) or hint(value) < LEAST_NUMBER:
                raise FrontendError(
                    f"the graph takes the number '{node.name}': expected an integer from {LEAST_NUMBER} on"
                )
            self.numbers.append(index)
            *_, last = self.module.graph.find_nodes(op="placeholder")
            with self.module.graph.inserting_after(last):
                place = self.module.graph.placeholder(f"number_{index}"), 0
        with self.module.graph.inserting_before(self._first_operation):
            size = self.module.graph.call_function(torch.ops.aten.sym_size.int, place)
        size.meta["val"] = value
        node.replace_all_uses_with(size)
        self.module.graph.erase_node(node)

    def _take_orders(self) -> dict[int, tuple[int, ...]]:
        """Return the order of dims in memory of inputs that are not contiguous, and permute them in the graph.

        They are not copied for the call, and views that PyTorch takes of them can be exported.
        """
        import torch

        orders = {}
        # Sizes of the inputs may be read before the graph's own operations.
        first = next(node for node in self.module.graph.nodes if node.op != "placeholder")
        for index in self.positions:
            fake = self.fake_inputs[index]
            order = memory_order(fake) if isinstance(fake, torch.Tensor) and not fake.dtype.is_complex else None
            if order is None:
                continue
            orders[index], node = order, self._nodes[index]
            inverse = [order.index(axis) for axis in range(len(order))]
            with self.module.graph.inserting_before(first):
                logical = self.module.graph.call_function(torch.ops.aten.permute.default, (node, inverse))
            logical.meta = dict(node.meta)
            node.replace_all_uses_with(logical, delete_user_cb=lambda user, own=logical: user is not own)
        return orders

    def _places_of(self, value: object) -> Iterator[tuple[torch.fx.Node, int]]:
        """Return each input and dim with a size."""
        for index in self.positions:
            for axis, dim in enumerate(self.fake_inputs[index].shape):
                if not isinstance(dim, int) and str(dim) == str(value):
                    yield self._nodes[index], axis

    def _take_results(self) -> list[tuple[str, object]]:
        """Return the kind of each result, and keep only the computed ones in the graph."""
        import torch

        output = next(node for node in self.module.graph.nodes if node.op == "output")
        rows: list[tuple[str, object]] = []
        kept = []
        for value in output.args[0]:
            if not isinstance(value, torch.fx.Node):
                rows.append(("constant", value))
                continue
            example = value.meta.get("val")
            if not isinstance(example, torch.Tensor):
                rows.append(("size", None))
            else:
                order = memory_order(example)
                strides = None if order is not None else sparse_strides(example)
                form = ("tensor", order) if strides is None else ("view", strides)
                rows.append(("complex", form) if example.dtype.is_complex else form)
                if order is not None:
                    with self.module.graph.inserting_before(output):
                        value = self.module.graph.call_function(torch.ops.aten.permute.default, (value, list(order)))
            kept.append(value)
        output.args = (tuple(kept),)
        return rows


def finish(results: Sequence[tuple[str, object]], tensors: list[torch.Tensor]) -> list[object]:
    """Return a graph's results: tensors of the executable, sizes among them, and constants."""
    rest = iter(tensors)
    return [value if kind == "constant" else _RESULTS[kind](next(rest), value) for kind, value in results]


def memory_order(example: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dims by their strides, the largest first, if that is how a dense tensor has its elements in memory.

    None if it is contiguous, or not dense.
    """
    order = _dense_order(example)
    moved = [axis for axis in order or () if hint(example.shape[axis]) != 1]
    return None if moved == sorted(moved) else order


def sparse_strides(example: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides of a result with gaps or repeated elements, such as an expanded one.

    None if it is dense, or if they depend on dynamic dims: the result is contiguous then.
    """
    strides = [stride for stride in example.stride() if isinstance(stride, int)]
    return None if len(strides) < example.ndim or _dense_order(example) is not None else tuple(strides)


def _dense_order(example: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dims by their strides, the largest first; None if elements have gaps or are repeated."""
    sizes, strides = [hint(size) for size in example.shape], [hint(stride) for stride in example.stride()]
    order = tuple(sorted(range(len(sizes)), key=lambda axis: (-strides[axis], -sizes[axis], axis)))
    count = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != count:
            return None
        count *= sizes[axis]
    return order if 0 not in sizes else None


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


def hint(dim: torch.SymInt | int) -> int:
    """Return the size or stride that a graph was captured for; 2 for one that depends on data."""
    if isinstance(dim, int):
        return dim
    return int(dim.node.hint) if dim.node.hint is not None else 2


def _example_size(dim: torch.SymInt | int) -> int:
    """Return a size for a dim that is neither 0 nor 1, which PyTorch specializes."""
    return dim if isinstance(dim, int) else max(hint(dim), 2)
