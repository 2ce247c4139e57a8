"""Export of an entry of the zoo to an ONNX file, beside it its inputs."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .entry import CONVERTED, STATIC, TORCHSCRIPT, Entry, Variant


def _tensors(value: Any) -> list[Any]:
    """Return the tensors of nested outputs, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [each for part in value.values() for each in _tensors(part)]
    if isinstance(value, list | tuple):
        return [each for part in value for each in _tensors(part)]
    return []


def by_name(model: Any, names: tuple[str, ...], **constants: Any) -> Any:
    """Return a module that passes its positional inputs by these names and returns a flat tuple of tensors."""
    import torch

    class ByName(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def _call(self, *values: Any) -> tuple[Any, ...]:
            return tuple(_tensors(self.model(**dict(zip(names, values, strict=True)), **constants)))

    # torch.export names inputs after the parameters of `forward`, and matches dynamic shapes with them.
    namespace: dict[str, Any] = {}
    exec(f"def forward(self, {', '.join(names)}): return self._call({', '.join(names)})", namespace)  # noqa: S102
    ByName.forward = namespace["forward"]
    return ByName()


def flat(model: Any) -> Any:
    """Return a module whose outputs are a flat tuple of tensors, if the module's are nested."""
    import torch

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> tuple[Any, ...]:
            return tuple(_tensors(self.model(*values)))

    return Flat()


def export(variant: Variant, folder: Path) -> Path:
    """Write the model and its three sets of inputs, and return the path of the model."""
    path = folder / f"{variant.name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = variant.entry
    for index in range(3):
        which = 0 if variant.shapes == STATIC else index
        np.savez(path.with_suffix(f".{index}.npz"), **entry.arrays(which, seed=index))
    partial = path.with_suffix(".partial")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if variant.exporter == CONVERTED:
            partial.write_bytes(entry.make())
        else:
            _from_torch(variant, partial)
    partial.rename(path)
    return path


def _from_torch(variant: Variant, path: Path) -> None:
    import torch

    entry = variant.entry
    torch.manual_seed(0)
    model = entry.make().eval()
    _randomize(model)
    arguments = tuple(torch.from_numpy(each) for each in entry.arrays(0, seed=0).values())
    names = [each.name for each in entry.inputs]
    axes = {} if variant.shapes == STATIC else entry.dynamic_axes()
    with torch.no_grad():
        if variant.exporter == TORCHSCRIPT:
            torch.onnx.export(model, arguments, str(path), dynamo=False, input_names=names, dynamic_axes=axes or None,
                              opset_version=entry.opset, do_constant_folding=True)  # fmt: skip
            return
        program = torch.onnx.export(model, arguments, dynamo=True, input_names=names, verbose=False,
                                    dynamic_shapes=_dynamic_shapes(model, entry, axes), optimize=True)  # fmt: skip
        program.save(str(path), external_data=False)


def _dynamic_shapes(model: Any, entry: Entry, axes: dict[str, dict[int, str]]) -> Any:
    import torch

    if not axes:
        return None
    dims = {name: torch.export.Dim.DYNAMIC for each in axes.values() for name in each.values()}
    each = [{i: dims[d] for i, d in axes.get(one.name, {}).items()} or None for one in entry.inputs]
    parameters = list(inspect.signature(model.forward).parameters.values())
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters):
        return (tuple(each),)
    return tuple(each)


def _randomize(model: Any) -> None:
    """Give normalizations running statistics, and weights that start as zeros values, as training would."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, each in model.named_buffers():
            if name.endswith("running_mean"):
                each.copy_(torch.randn(each.shape, generator=generator) * 0.1)
            if name.endswith("running_var"):
                each.copy_(torch.rand(each.shape, generator=generator) * 0.5 + 0.75)
        for each in model.parameters():
            if each.is_floating_point() and each.numel() and not each.any():
                each.copy_(torch.randn(each.shape, generator=generator) * 0.02)


def as_entry(name: str, family: str, *inputs: Any, **options: Any) -> Any:
    """Return a decorator that makes an entry of a constructor."""
    return lambda make: Entry(name, family, make, tuple(inputs), **options)
