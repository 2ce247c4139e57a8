"""The tensors of a file under the names of transformers' modules; tensors that are only renamed stay mapped."""

from __future__ import annotations

import copy
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import core_model_loading as loading
from transformers.conversion_mapping import get_model_conversion_mapping

from mirlo.extend.frontend import GraphBuilder, Tensor, TensorType, concat
from mirlo.extend.runtime import numpy_dtype
from mirlo_llm.generate.checkpoints.block_graph import block_matrix
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.graph import IGNORED, KINDS, Matrix, form_of
from mirlo_llm.generate.checkpoints.packed import Tensors
from mirlo_llm.generate.errors import ModelFolderError

_NUMBERED = re.compile(r"(.+)\.\d+\.weight")
"""The name of a packed matrix of one expert: that of the parameter of all experts, and a number."""
WRAPPER = "model."
"""The prefix of names in the exported program, in which the model is a submodule."""


@dataclass(frozen=True)
class ExpertMatrices:
    """The matrices of all experts, read where the file stores them."""

    experts: tuple[tuple[Matrix, ...], ...]
    """The parts of each expert's matrix: gate and value parts, if the file has two."""
    transposed: bool
    """Whether matrices are stored as [in, out]."""

    @property
    def count(self) -> int:
        """Return the number of experts."""
        return len(self.experts)

    def form(self, expert: int) -> Hashable:
        """Return what is equal for experts of which a loop can choose one."""
        return tuple(map(form_of, self.experts[expert]))


@dataclass
class _Source:
    """The file's tensors that make up a parameter, by the patterns of a conversion rule."""

    converter: Any
    """The conversion rule; None for a renamed tensor."""
    tensors: dict[str, list[tuple[str, Matrix]]] = field(default_factory=dict)
    """Names and tensors, sorted by the numbers in the names."""
    is_numbered: bool = False
    """Whether the tensors are the packed matrices of experts that are one parameter."""


class FileWeights:
    """The tensors of a file, by the names of a model's parameters and buffers."""

    def __init__(self, path: Path, model: Any, tensors: Tensors, experts: dict[int, bool]) -> None:
        """Find the tensor of each parameter; `experts` are the parameter `id`s that the operator of experts reads."""
        self._path, self._model, self._experts = path, model, experts
        self._expected = model.state_dict(keep_vars=True)
        self._aliases: dict[int, list[str]] = {}
        for name, each in self._expected.items():
            self._aliases.setdefault(id(each), []).append(name)
        self._sources: dict[str, _Source] = {}
        self._unknown: list[str] = []
        self._arrays: dict[str, np.ndarray] = {}
        self._is_divided = False
        self._find_sources(tensors)

    def _find_sources(self, tensors: Tensors) -> None:
        """Find the parameter of each tensor, by transformers' rules for names."""
        rules = get_model_conversion_mapping(self._model)
        renamings = [each for each in rules if isinstance(each, loading.WeightRenaming)]
        converters = [each for each in rules if isinstance(each, loading.WeightConverter)]
        of_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
        prefix = self._model.base_model_prefix
        for original in sorted(tensors, key=loading.dot_natural_key):
            name, pattern = loading.rename_source_key(original, renamings, converters, prefix, self._expected)
            if name not in self._expected and original in self._expected:
                name, pattern = original, None
            numbered = _NUMBERED.fullmatch(name)
            if numbered is not None and numbered[1] in self._expected:
                source = self._sources.setdefault(numbered[1], _Source(None, is_numbered=True))
                source.tensors.setdefault(numbered[1], []).append((original, tensors[original]))
                continue
            if name not in self._expected:
                self._unknown.append(name)
                continue
            source = self._sources.setdefault(name, _Source(None if pattern is None else of_pattern[pattern]))
            source.tensors.setdefault(pattern or original, []).append((original, tensors[original]))

    def make(self, builder: GraphBuilder, name: str, kind: TensorType) -> object:
        """Return the value of a parameter or a buffer; None for buffers that the program contains."""
        name = name.removeprefix(WRAPPER)
        if name not in self._expected:
            return None
        parameter = self._expected[name]
        found = next((each for each in self._aliases[id(parameter)] if self._has(each)), None)
        if found is None:
            if not isinstance(parameter, torch.nn.Parameter):
                return None
            raise ModelFolderError(f"{self._path}: there is no tensor '{name}', which the architecture needs")
        if id(parameter) in self._experts:
            return self._matrices(found, kind, self._experts[id(parameter)])
        stored = self._array(found)
        self._check(found, stored, kind.static_shape)
        return stored_tensor(builder, stored)

    def _has(self, name: str) -> bool:
        if name not in self._sources and not self._is_divided:
            self._divide()
        return name in self._sources or name in self._arrays

    def _divide(self) -> None:
        """Apply the rules that split one tensor into several."""
        self._is_divided = True
        for name, source in list(self._sources.items()):
            if source.converter is not None and len(source.converter.target_patterns) > 1:
                del self._sources[name]
                self._arrays |= self._converted(name, source)

    def _array(self, name: str) -> Matrix:
        if name in self._arrays:
            return self._arrays[name]
        source = self._sources[name]
        if source.is_numbered:
            what = "packed weights of experts that Mirlo has no operator for are not supported"
            raise ModelFolderError(f"{self._path}: tensor '{name}': {what}")
        if source.converter is None:
            ((_, stored),) = next(iter(source.tensors.values()))[:1]
            return stored
        self._arrays |= self._converted(name, source)
        return self._arrays[name]

    def _converted(self, name: str, source: _Source) -> dict[str, np.ndarray]:
        """Apply a conversion rule to tensors; the result is a copy."""
        converter = copy.deepcopy(source.converter)
        for pattern, listed in source.tensors.items():
            for original, stored in listed:
                if isinstance(stored, BlockWeights):
                    what = "packed weights that the model has as parts of one tensor are not supported"
                    raise ModelFolderError(f"{self._path}: tensor '{original}': {what}")
                converter.add_tensor(name, original, pattern, to_torch(stored))
        try:
            made = converter.convert(name, model=self._model, config=self._model.config)
        except (RuntimeError, ValueError, KeyError) as error:
            raise ModelFolderError(f"{self._path}: tensors of '{name}' do not fit together: {error}") from error
        return {key: to_numpy(each[0] if isinstance(each, list) else each) for key, each in made.items()}

    def _matrices(self, name: str, kind: TensorType, transposed: bool) -> ExpertMatrices:
        """Return the matrices of experts where the file stores them."""
        source, shape = self._sources.get(name), kind.static_shape
        if source is not None and source.is_numbered:
            (listed,) = source.tensors.values()
            rows, depth = shape[1:][::-1] if transposed else shape[1:]
            if len(listed) != shape[0]:
                raise ModelFolderError(f"{self._path}: '{name}': expected {shape[0]} experts, found {len(listed)}")
            for _, stored in listed:
                self._check(name, stored, (rows, depth))
            return ExpertMatrices(tuple((stored,) for _, stored in listed), transposed=False)
        if source is not None and source.converter is not None and _stacks(source.converter.operations):
            columns = [source.tensors.get(pattern, []) for pattern in source.converter.source_patterns]
            columns = [each for each in columns if each]
            if any(len(each) != shape[0] for each in columns):
                counts = " and ".join(str(len(each)) for each in columns)
                raise ModelFolderError(f"{self._path}: '{name}': expected {shape[0]} experts, found {counts}")
            experts = tuple(tuple(stored for _, stored in parts) for parts in zip(*columns, strict=True))
            for parts in experts:
                rows = sum(part.shape[0] for part in parts)
                if (rows, *{part.shape[1] for part in parts}) != shape[1:]:
                    raise self._differs(name, shape[1:], (rows, parts[0].shape[1]))
            return ExpertMatrices(experts, transposed)
        stored = self._array(name)
        self._check(name, stored, shape)
        assert isinstance(stored, np.ndarray)
        return ExpertMatrices(tuple((matrix,) for matrix in stored), transposed)

    def _check(self, name: str, stored: Matrix, shape: Sequence[int]) -> None:
        if tuple(stored.shape) != tuple(shape):
            raise self._differs(name, shape, stored.shape)
        if isinstance(stored, np.ndarray) and stored.dtype.name not in KINDS:
            what = f"expected f32, f16 or bf16, found {stored.dtype.name}"
            raise ModelFolderError(f"{self._path}: tensor '{name}': {what}")

    def _differs(self, name: str, expected: Sequence[int], found: Sequence[int]) -> ModelFolderError:
        return ModelFolderError(f"{self._path}: tensor '{name}': expected {list(expected)}, found {list(found)}")

    def finish(self) -> None:
        """Raise an error for unused tensors of the model.

        Tensors of other parts, such as encoders of images, are left out.
        """
        ignored = [re.compile(each) for each in self._model._keys_to_ignore_on_load_unexpected or ()]
        parts = {name for name, _ in self._model.named_modules() if "." in name}
        for name in self._unknown:
            is_inside = name.rpartition(".")[0] in parts
            if is_inside and not name.endswith(IGNORED) and not any(each.search(name) for each in ignored):
                what = f"tensor {name!a:.80} is not one of the architecture"
                raise ModelFolderError(f"{self._path}: {what}: export the model to ONNX")


def _stacks(operations: Sequence[Any]) -> bool:
    """Return whether a rule only stacks matrices of experts and concatenates their parts."""
    kinds = [(type(each), each.dim) for each in operations if hasattr(each, "dim")]
    merge, join = (loading.MergeModulelist, 0), (loading.Concatenate, 1)
    return len(kinds) == len(operations) and kinds in ([merge], [merge, join])


def stored_tensor(builder: GraphBuilder, stored: Matrix) -> Tensor:
    """Return a tensor of the file as f32."""
    if isinstance(stored, BlockWeights):
        return block_matrix(builder, stored)
    return builder.constant(stored, KINDS[stored.dtype.name]).cast("f32")


def stacked(builder: GraphBuilder, matrices: ExpertMatrices) -> Tensor:
    """Stack the matrices of all experts into one tensor."""
    rows = [concat([stored_tensor(builder, each) for each in parts], 0) for parts in matrices.experts]
    return concat([each.expand_dims(0) for each in rows], 0)


def to_torch(array: np.ndarray) -> Any:
    """Return an array as a tensor of PyTorch."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


def to_numpy(tensor: Any) -> np.ndarray:
    """Return a tensor of PyTorch as an array."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(numpy_dtype("bf16"))
    return np.asarray(tensor.numpy())
