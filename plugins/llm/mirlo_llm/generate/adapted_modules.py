"""The linear layers of a checkpoint that LoRA adapters change, and the graph inputs for the adapters' matrices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from mirlo_llm.generate.adapter_file import PEFT_PREFIX, AdapterFile
from mirlo_llm.generate.checkpoints.image_options import decoder_name
from mirlo_llm.generate.errors import ModelFolderError

_TENSOR = re.compile(r"(.+)\.lora_([AB])(?:\.default)?\.weight")


def adapted_modules(files: Iterable[AdapterFile]) -> tuple[str, ...]:
    """Return the names of the linear layers that adapters change, as checkpoints name them."""
    modules: dict[str, None] = {}
    for file in files:
        if not file.is_peft:
            raise ModelFolderError(
                f"{file.path}: expected an adapter as PEFT writes it: the model is one of weights, which has no inputs "
                "with the names of other tensors"
            )
        for name in file.tensors:
            match = _TENSOR.fullmatch(name.removeprefix(PEFT_PREFIX))
            if match is None:
                raise ModelFolderError(f"{file.path}: tensor '{name}': expected one of lora_A and lora_B of a product")
            modules[match[1]] = None
    return tuple(sorted(modules))


def input_name(module: str, matrix: str) -> str:
    """Return the name of the input for a matrix, A or B."""
    return f"{module}.lora_{matrix}.weight"


def adapter_inputs(modules: Sequence[str]) -> dict[str, np.ndarray]:
    """Return default values of the inputs for adapters: matrices of rank 0."""
    return {input_name(module, matrix): np.zeros((0, 0), np.float32) for module in modules for matrix in "AB"}


def for_decoder(file: AdapterFile) -> AdapterFile:
    """Return an adapter of a model that takes images with the names of the layers in the decoder of text."""
    tensors: dict[str, np.ndarray] = {}
    for name, array in file.tensors.items():
        own = decoder_name(name.removeprefix(PEFT_PREFIX))
        if own is None:
            raise ModelFolderError(
                f"{file.path}: tensor '{name}' changes the encoder of images: merge it into the weights"
            )
        if f"{PEFT_PREFIX}{own}" in tensors:
            raise ModelFolderError(f"{file.path}: several tensors are for '{own}'")
        tensors[f"{PEFT_PREFIX}{own}"] = array
    return replace(file, tensors=tensors)


def with_one_rank(file: AdapterFile) -> AdapterFile:
    """Pad the matrices of an adapter to one rank with zeros."""
    axes = {name: 0 if ".lora_A." in name else 1 for name in file.tensors}
    if any(array.ndim != 2 for array in file.tensors.values()):
        return file  # an error names its tensor later
    rank = max((array.shape[axes[name]] for name, array in file.tensors.items()), default=0)

    def padded(name: str, array: np.ndarray) -> np.ndarray:
        more = rank - array.shape[axes[name]]
        return np.pad(array, [(0, more if axis == axes[name] else 0) for axis in range(2)]) if more else array

    return replace(file, tensors={name: padded(name, array) for name, array in file.tensors.items()})
