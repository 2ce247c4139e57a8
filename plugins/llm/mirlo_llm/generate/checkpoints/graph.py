"""A graph whose constants are the weights of a file."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.frontend import (
    ENTRY_NAME,
    GraphBuilder,
    ImportedModule,
    Tensor,
    TensorType,
    func,
    ir,
    make_context,
    mark_entry,
    named_value,
)
from mirlo.extend.frontend import dims as D
from mirlo.extend.runtime import ParameterStore
from mirlo_llm.generate.checkpoints.block_graph import block_matrix, block_rows, chosen_block_matrix
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.errors import ModelFolderError

if TYPE_CHECKING:
    from mirlo_llm.generate.checkpoints.lora import AdaptedProducts

BATCH, LENGTH = map(D.symbol, ("batch", "length"))
HIDDEN = -1e9
"""The additive mask value of hidden keys."""
KINDS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
"""Element types of tensors that are not block-quantized, by numpy name."""
IGNORED = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")
"""Suffixes of tensors that are computed from the configuration."""


def import_graph(
    weights: CheckpointWeights,
    inputs: Mapping[str, TensorType],
    build: Callable[..., Mapping[str, Tensor]],
    is_whole: bool = True,
    windows: Mapping[str, int] | None = None,
) -> ImportedModule:
    """Return a graph with these inputs; `build` takes the builder and a tensor for each, and returns the outputs.

    `windows` are the tokens of the windows of inputs that are rings. A tensor of the file that `build` neither uses nor
    discards is an error, unless the graph is a part of the model.
    """
    store = ParameterStore()
    with make_context(), ir.Location.file(str(weights.path), 0, 0):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp(ENTRY_NAME, ([kind.to_mlir() for kind in inputs.values()], []))
            mark_entry(function)
        builder = GraphBuilder(ENTRY_NAME, store, weights.path)
        builder.taken.update(str(dim) for kind in inputs.values() for dim in kind.shape if not isinstance(dim, int))
        with builder.inside(function.add_entry_block()):
            outputs = build(builder, *map(builder.tensor, function.entry_block.arguments))
            if is_whole:
                weights.finish()
            results = list(map(builder.full, outputs.values()))
            func.ReturnOp(results)
        kinds = ir.FunctionType.get(function.type.inputs, [value.type for value in results])
        function.attributes["function_type"] = ir.TypeAttr.get(kinds)
        windows = windows or {}
        function.arg_attrs = ir.ArrayAttr.get([named_value(name, windows.get(name)) for name in inputs])
        function.attributes["res_attrs"] = ir.ArrayAttr.get(list(map(named_value, outputs)))
    return ImportedModule(module, store)


class CheckpointWeights:
    """The tensors of a file, each of which is used once."""

    def __init__(
        self,
        path: Path,
        tensors: Mapping[str, np.ndarray | BlockWeights],
        name_of: Callable[[str], str] = lambda name: name,
        unused: tuple[str, ...] = (),
    ) -> None:
        """Store the tensors; `name_of` maps the name of a tensor in checkpoints to its name in the file.

        Tensors whose names in the file begin with one of `unused` are not needed.
        """
        self.path, self._tensors, self._name_of, self._unused = path, dict(tensors), name_of, unused

    def __contains__(self, name: str) -> bool:
        return self._name_of(name) in self._tensors

    def name_in_file(self, name: str) -> str:
        """Return the file's name of a tensor."""
        return self._name_of(name)

    @property
    def tensors(self) -> Mapping[str, np.ndarray | BlockWeights]:
        """Return the tensors that were not used, by their names in the file."""
        return self._tensors

    def copy(self) -> CheckpointWeights:
        """Return a copy of the unused tensors, each of which may be taken again."""
        return type(self)(self.path, self._tensors, self._name_of)

    def is_in_blocks(self, name: str) -> bool:
        """Return whether a matrix is block-quantized, with a row for each column of the product."""
        return isinstance(self._tensors.get(self._name_of(name)), BlockWeights)

    def form_of(self, name: str) -> Hashable:
        """Return what is equal for tensors of which a loop can choose one; None if there is no such tensor."""
        try:
            tensor = self._tensors.get(self._name_of(name))
        except KeyError:  # of a form of files that has no such tensor
            return None
        return None if tensor is None else form_of(tensor)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor by its name in checkpoints or in the file; None if there is none."""
        try:
            own = self._name_of(name)
        except KeyError:  # of a form of files that has no such tensor
            return None
        tensor = self._tensors.get(own, self._tensors.get(name))
        return None if tensor is None else tensor.shape

    def discard(self, name: str) -> None:
        """Mark a tensor as used, if there is one."""
        self._tensors.pop(self._name_of(name), None)

    def take(self, name: str, *shape: int) -> np.ndarray | BlockWeights:
        """Return a tensor; it must have this shape."""
        name = self._name_of(name)
        if name not in self._tensors:
            raise ModelFolderError(f"{self.path}: there is no tensor '{name}', which the architecture needs")
        tensor = self._tensors.pop(name)
        kind = (
            f"{tensor.dtype} in blocks of {tensor.block}: " if isinstance(tensor, BlockWeights) else tensor.dtype.name
        )
        if tensor.shape != shape or not (isinstance(tensor, BlockWeights) or kind in KINDS):
            expected = f"expected {list(shape)} of f32, f16 or bf16"
            raise ModelFolderError(f"{self.path}: tensor '{name}': {expected}, found {kind}{list(tensor.shape)}")
        return tensor

    def finish(self) -> None:
        """Raise an error for tensors that were not used."""
        left = [name for name in self._tensors if not name.endswith(IGNORED) and not name.startswith(self._unused)]
        if left:
            what = f"{len(left)} tensors are not those of the architecture, such as {left[0]!a:.80}"
            raise ModelFolderError(f"{self.path}: {what}: export the model to ONNX")


def present(names: Iterable[str], tensors: Container[str]) -> str:
    """Return the first of some names that the file has, or the first one if it has none."""
    first, *others = names
    return next((name for name in (first, *others) if name in tensors), first)


Matrix = np.ndarray | BlockWeights
"""A tensor of a file."""


def form_of(matrix: Matrix) -> Hashable:
    """Return what is equal for tensors of which a loop can choose one."""
    return matrix.form if isinstance(matrix, BlockWeights) else (matrix.shape, matrix.dtype.name)


@dataclass(frozen=True)
class ChosenMatrix:
    """One of several tensors of one form, at a position that is known at run time."""

    matrices: Sequence[Matrix]
    position: Tensor

    @property
    def orders(self) -> list[np.ndarray]:
        """Return the order of the elements of rows of each tensor; none if they are in order."""
        return [each.order for each in self.matrices if isinstance(each, BlockWeights) and each.order is not None]


@dataclass(frozen=True)
class _Choice:
    """Equal modules, of which one is computed that is chosen at run time."""

    prefix: str
    numbers: tuple[int, ...]
    position: Tensor


def chosen_tensor(builder: GraphBuilder, matrices: Sequence[Matrix], position: Tensor) -> Tensor:
    """Return one of several tensors of one form, whose rows are in order, at a position known at run time, as f32."""
    blocks = [each for each in matrices if isinstance(each, BlockWeights)]
    if blocks:
        return chosen_block_matrix(builder, blocks, position)
    arrays = [each for each in matrices if isinstance(each, np.ndarray)]
    return builder.stack_constants(arrays, KINDS[arrays[0].dtype.name]).gather(position).cast("f32")


class CheckpointGraph:
    """A graph under construction, and the weights of its products."""

    def __init__(self, builder: GraphBuilder, weights: CheckpointWeights, is_transposed: bool = False) -> None:
        """Store the builder and the weights; `is_transposed` matrices of the file are stored as [in, out]."""
        self.builder, self._weights, self._is_transposed = builder, weights, is_transposed
        self._orders: dict[bytes, Tensor] = {}
        self.adapted: AdaptedProducts | None = None
        """The products that adapters change."""
        self._choice: _Choice | None = None

    def product(self, name: str, x: Tensor, width: int, is_transposed: bool | None = None) -> Tensor:
        """Multiply rows by weights, and add the bias if the file has one."""
        rows = x.shape[-1]
        assert isinstance(rows, int)
        is_transposed = self._is_transposed if is_transposed is None else is_transposed
        first = self._names(name)[0]
        pair = None
        if self.adapted is not None:
            pair = self.adapted.take(first, self._name_in_file(first))
        with self.named(name):
            if is_transposed and not self._weights.is_in_blocks(f"{first}.weight"):
                result = x.matmul(self.weight(name, rows, width))
            else:
                result = self.multiply(x, self._take(f"{name}.weight", width, rows))
            if pair is not None:
                result = result + x.matmul(pair[0]).matmul(pair[1])
            return result + self.weight(name, width, part="bias") if self._has(f"{name}.bias") else result

    @contextmanager
    def choosing(self, prefix: str, numbers: Sequence[int], position: Tensor) -> Iterator[None]:
        """Take the tensors of one of several equal modules for those of `prefix`: that at a position in their numbers.

        The position is known at run time. The tensors of each number are those of `prefix.number`.
        """
        self._choice = _Choice(prefix, tuple(numbers), position)
        try:
            yield
        finally:
            self._choice = None

    def equal_modules(self, prefix: str, count: int, parts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the numbers of modules in groups of which a loop can choose one: their tensors are of one form.

        A module that adapters change is alone.
        """
        groups: dict[Hashable, list[int]] = {}
        for number in range(count):
            names = [f"{prefix}.{number}.{part}" for part in parts]
            forms = tuple(self._weights.form_of(f"{name}.{end}") for name in names for end in ("weight", "bias"))
            is_adapted = self.adapted is not None and any(
                self.adapted.changes(name, self._name_in_file(name)) for name in names
            )
            groups.setdefault((forms, number if is_adapted else None), []).append(number)
        return [tuple(group) for group in groups.values()]

    def _name_in_file(self, name: str) -> str:
        """Return the file's name of a linear layer."""
        return self._weights.name_in_file(f"{name}.weight").removesuffix(".weight")

    def _names(self, name: str) -> list[str]:
        """Return the names of which one stands for that which is chosen at run time: only itself if none is."""
        choice = self._choice
        if choice is None or not name.startswith(f"{choice.prefix}."):
            return [name]
        rest = name.removeprefix(f"{choice.prefix}.")
        return [f"{choice.prefix}.{number}.{rest}" for number in choice.numbers]

    def _has(self, name: str) -> bool:
        return self._names(name)[0] in self._weights

    def _take(self, name: str, *shape: int) -> Matrix | ChosenMatrix | Tensor:
        """Return a tensor of the file, one that is chosen at run time among those of several modules, or an input.

        Every weight of a layer comes from here: a subclass that overrides this replaces weights by their names.
        """
        choice = self._choice
        if choice is None or not name.startswith(f"{choice.prefix}."):
            return self._weights.take(name, *shape)
        return ChosenMatrix([self._weights.take(each, *shape) for each in self._names(name)], choice.position)

    @staticmethod
    def named(name: str) -> ir.Location:
        """Return the MLIR location of a part of the model."""
        return ir.Location.name(name, ir.Location.current)

    def multiply(self, x: Tensor, weights: Matrix | ChosenMatrix | Tensor) -> Tensor:
        """Multiply rows by the rows of a matrix."""
        if isinstance(weights, ChosenMatrix) and weights.orders:
            order = self.builder.stack_constants(weights.orders, "i64").gather(weights.position)
            matrices = [replace(each, order=None) for each in weights.matrices if isinstance(each, BlockWeights)]
            x, weights = x.gather(order, x.rank - 1), replace(weights, matrices=matrices)
        if isinstance(weights, BlockWeights) and weights.order is not None:  # the rows are moved, not the weights
            order = self._orders.setdefault(weights.order.tobytes(), self.builder.constant(weights.order))
            x, weights = x.gather(order, x.rank - 1), replace(weights, order=None)
        return x.matmul(self.matrix(weights), transpose_rhs=True)

    def activated(self, x: Tensor, activation: str) -> Tensor:
        """Apply an activation, named by its operator and, after "_", its approximation."""
        if activation == "quick_gelu":
            return x * (x * 1.702).sigmoid()
        operator, _, approximate = activation.partition("_")
        return self.builder.emit(operator, x, **({"approximate": approximate} if approximate else {}))

    def weight(self, name: str, *shape: int, part: str = "weight") -> Tensor:
        """Return a tensor of the file as f32; it must have this shape."""
        return self.matrix(self._take(f"{name}.{part}", *shape))

    def parts(self, name: str, heads: int, widths: Sequence[int], depth: int) -> list[Tensor]:
        """Return a matrix split by heads into parts, f32[1, heads, width, depth].

        Batched products do not read packed weights, so the parts are dequantized.
        """
        weights = self._take(f"{name}.weight", heads * sum(widths), depth)
        if isinstance(weights, (Tensor, ChosenMatrix)):
            return list(self.matrix(weights).reshape((1, heads, sum(widths), depth)).split(tuple(widths), 2))
        values = weights.values() if isinstance(weights, BlockWeights) else weights
        parts = np.split(values.reshape(1, heads, sum(widths), depth), np.cumsum(widths)[:-1], 2)
        return [self._constant(np.ascontiguousarray(part)).cast("f32") for part in parts]

    def matrix(self, weights: Matrix | ChosenMatrix | Tensor) -> Tensor:
        """Return a tensor as f32."""
        if isinstance(weights, Tensor):
            return weights
        if isinstance(weights, ChosenMatrix):
            return chosen_tensor(self.builder, weights.matrices, weights.position)
        if isinstance(weights, BlockWeights):
            return block_matrix(self.builder, weights)
        return self._constant(weights).cast("f32")

    def rows(self, table: np.ndarray | BlockWeights, index: Tensor) -> Tensor:
        """Return rows of a table as f32."""
        if isinstance(table, BlockWeights):
            return block_rows(self.builder, table, index)
        return self.matrix(table).gather(index)

    def _constant(self, weights: np.ndarray) -> Tensor:
        return self.builder.constant(weights, KINDS[weights.dtype.name])
