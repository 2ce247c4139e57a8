"""LoRA adapters of a model: the mapping of their tensors to inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from mirlo.extend.runtime import TensorSpec, element_type_of, numpy_dtype
from mirlo_llm.generate.adapter_file import AdapterFile, read_adapter
from mirlo_llm.generate.config import ModelConfig
from mirlo_llm.generate.errors import GenerationError, ModelFolderError

FLOATS = ("f64", "f32", "f16", "bf16")
SHOWN = 5
"""Most names that an error message lists."""
_IGNORED = {"base_model", "model", "default", "weight", "MatMul"}
_SYNONYMS = {"self_attn": "attn", "self_attention": "attn", "attention": "attn"}


class AdapterFiles:
    """The files of adapters by name, and the model inputs that their tensors set."""

    def __init__(
        self, config: ModelConfig, files: Mapping[str, AdapterFile], inputs: Mapping[str, np.ndarray | None]
    ) -> None:
        """Match the tensors of files to inputs of a model; `inputs` are these inputs with their default values."""
        self.config = config
        self._inputs = dict(inputs)
        self._files = dict(files)
        self._tensors = {name: self._by_input(file) for name, file in self._files.items()}

    @property
    def names(self) -> set[str]:
        """Return the inputs that adapters set."""
        return {name for tensors in self._tensors.values() for name in tensors}

    @property
    def optional(self) -> set[str]:
        """Return the inputs that adapters set and that have a default value."""
        return {name for name in self.names if self._inputs[name] is not None}

    def _by_input(self, file: AdapterFile) -> dict[str, np.ndarray]:
        """Return the tensors of a file by the names of inputs."""
        key: Callable[[str], object] = _key if file.is_peft else str
        known, by_input = {key(name): name for name in self._inputs}, dict[str, np.ndarray]()
        unknown = [name for name in file.tensors if key(name) not in known]
        if unknown:
            inputs = [name for name in self._inputs if "lora" in name.lower()]
            what = f"the model has no input for the tensors {_listed(unknown)}"
            raise ModelFolderError(f"{file.path}: {what}; its inputs of adapters: {_listed(inputs) or 'none'}")
        for name, array in file.tensors.items():
            if known[key(name)] in by_input:
                raise ModelFolderError(f"{file.path}: several tensors are for the input '{known[key(name)]}'")
            by_input[known[key(name)]] = array
        return by_input

    def fitted(self, specs: Mapping[str, TensorSpec]) -> Adapters:
        """Return the adapters as inputs of a compiled model."""
        used = {name: specs[name] for name in sorted(self.names)}
        fitted_arrays: dict[str | None, dict[str, np.ndarray]] = {}
        for adapter, tensors in self._tensors.items():
            fitted_arrays[adapter] = self._fit(adapter, tensors, used)
        if used.keys() == self.optional:
            fitted_arrays[None] = self._fit(None, {}, used)
        return Adapters(fitted_arrays)

    def _fit(
        self, adapter: str | None, tensors: Mapping[str, np.ndarray], specs: Mapping[str, TensorSpec]
    ) -> dict[str, np.ndarray]:
        file = None if adapter is None else self._files[adapter]
        where = self.config.model if file is None else file.path
        missing = [name for name in specs if name not in tensors and self._inputs[name] is None]
        if missing:
            raise ModelFolderError(f"{where}: the adapter has no tensors for the inputs {_listed(missing)}")
        dims: dict[str, int] = {}
        result = {}
        for name, array in tensors.items():
            is_peft = file is not None and file.is_peft
            result[name] = _typed(where, _oriented(where, specs[name], array, dims, is_peft), specs[name])
        for name, spec in specs.items():
            default = self._inputs[name]
            if name in result or default is None:
                continue
            if _fits(spec, default.shape, dims) is None and not default.size:
                # The sum over no rows is that over rows of zeros, as many as the adapter has.
                default = np.zeros([dims.get(dim, 0) if isinstance(dim, str) else dim for dim in spec.shape])
            result[name] = _typed(where, _oriented(where, spec, default, dims, False), spec)
        return result


def read_adapters(paths: Mapping[str, str | os.PathLike[str]]) -> dict[str, AdapterFile]:
    """Return the adapters of files, or of folders of PEFT, by name."""
    return {name: read_adapter(os.fspath(path)) for name, path in paths.items()}


class Adapters:
    """The tensors of adapters as model inputs, by adapter name; None is the model without an adapter."""

    def __init__(self, inputs: Mapping[str | None, Mapping[str, np.ndarray]]) -> None:
        self._inputs = {name: dict(arrays) for name, arrays in inputs.items()}

    @property
    def names(self) -> list[str]:
        """Return the names of the adapters."""
        return [name for name in self._inputs if name is not None]

    @property
    def needed(self) -> str | None:
        """Return the first adapter if the model requires one, otherwise None."""
        return next(iter(self.names), None) if None not in self._inputs else None

    def inputs(self, adapter: str | None) -> dict[str, np.ndarray]:
        """Return the inputs of an adapter."""
        if (adapter is None or isinstance(adapter, str)) and adapter in self._inputs:
            return self._inputs[adapter]
        known = ", ".join(map(repr, self.names))
        if adapter is None and self._inputs:
            raise GenerationError(f"adapter: the model needs one, which its inputs have no default for: {known}")
        if adapter is None:
            return {}
        raise GenerationError(
            f"adapter: there is none named {adapter!r:.60}; load(adapters=...) names {known or 'none'}"
        )


def _key(name: str) -> tuple[str, ...]:
    """Return the common part of a tensor's names in PEFT and in exported graphs."""
    parts = (_SYNONYMS.get(part, part) for part in name.replace("/", ".").split("."))
    return tuple(part for part in parts if part and part not in _IGNORED)


def _fits(spec: TensorSpec, shape: tuple[int, ...], dims: Mapping[str, int]) -> dict[str, int] | None:
    """Match a shape to the dims of an input; return the symbols' values, or None if it does not match."""
    if len(shape) != len(spec.shape):
        return None
    result = dict(dims)
    for dim, size in zip(spec.shape, shape, strict=True):
        if (dim if isinstance(dim, int) else result.setdefault(dim, size)) != size:
            return None
    return result


def _oriented(where: object, spec: TensorSpec, array: np.ndarray, dims: dict[str, int], is_peft: bool) -> np.ndarray:
    """Return an array in the layout of an input; PEFT stores it transposed."""
    for candidate in (array.T, array) if is_peft else (array,):
        matched = _fits(spec, candidate.shape, dims)
        if matched is not None:
            dims |= matched
            return candidate
    known = ", ".join(f"{name} = {size}" for name, size in dims.items())
    what = f"expected the shape of input {spec}{f' with {known}' if known else ''}, found {list(array.shape)}"
    raise ModelFolderError(f"{where}: tensor '{spec.name}': {what}")


def _typed(where: object, array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Return a contiguous array of the element type of an input."""
    wanted = numpy_dtype(spec.dtype)
    kind = element_type_of(array.dtype)
    name = str(array.dtype) if kind is None else kind.name
    if name != spec.dtype and not (name in FLOATS and spec.dtype in FLOATS):
        raise ModelFolderError(f"{where}: tensor '{spec.name}': expected {spec.dtype}, found {name}")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array.astype(wanted))


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(f"'{name}'" for name in listed[:SHOWN]) + more
