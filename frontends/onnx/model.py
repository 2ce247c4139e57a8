"""Opening of a model: from a path, bytes or a ModelProto to its typed graph and its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mirlo.frontends.onnx.errors import DamagedModelError, OnnxImportError
from mirlo.frontends.onnx.file_kinds import SIGNATURE_BYTES, kind_by_content, kind_by_name
from mirlo.frontends.onnx.graph import ModelDef
from mirlo.frontends.onnx.old import modernized
from mirlo.frontends.onnx.reading import read_model
from mirlo.frontends.onnx.weights import Weights, map_file
from mirlo.frontends.onnx.wire import slim
from mirlo.runtime.names import terminal

if TYPE_CHECKING:
    import onnx

Source: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | LoadedModel"
"""What can be opened: a path, the bytes of a file, or a model in memory."""

OLDEST_OPSET, NEWEST_OPSET = 7, 28
"""Versions of the default opset that the converters support."""


@dataclass(frozen=True)
class LoadedModel:
    """A parsed model."""

    content: ModelDef
    """The model as it is imported."""
    weights: Weights
    name: str
    """The model's name in messages: its path, or its graph's name."""
    path: Path | None
    """The model's file, if it has one."""
    digest: str | None = None
    """A digest of the whole model, if it is known: models in memory that have one are cached."""
    trusts_declared: bool = True
    """Whether what data determine has the shape that the model declares for it."""


def without_declared_shapes(model: Source) -> LoadedModel:
    """Open a model of which the shapes that it declares for results are wrong."""
    return replace(load(model), trusts_declared=False, digest=None)


def load(model: Source) -> LoadedModel:
    """Open a model without copying its weights."""
    import onnx

    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, onnx.ModelProto):
        name = _graph_name(model.graph.name)
        return LoadedModel(_read(model, {}, name), Weights(name, None), name, None)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        return _parse(map_file(path, "the model is expected in"), str(path), path)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parse(memoryview(model).cast("B"), "the model", None)
    if isinstance(model, (FunctionType, BuiltinFunctionType, partial)):
        name = terminal(getattr(model, "__name__", "partial"))
        raise OnnxImportError(
            f"a model is a file, or an object of a framework, got the function {name}: compile jax.jit({name}) of JAX "
            "with args=(x,), a torch.nn.Module with this forward and args=(x,), or use "
            f"torch.compile({name}, backend='mirlo')"
        )
    raise OnnxImportError(
        "a model is a path, bytes, an onnx.ModelProto, an MLIR module or a model of PyTorch, JAX or scikit-learn, "
        f"got {type(model).__name__}"
    )


def load_shared(proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> LoadedModel:
    """Open an `onnx.ModelProto` whose initializers of these names have their data in arrays, which are not copied."""
    import hashlib

    data: dict[bytes, memoryview] = {}
    for tensor in proto.graph.initializer:
        if tensor.name not in arrays:
            continue
        ticket = f"array {len(data)}".encode()
        data[ticket] = arrays[tensor.name].reshape(-1).view(np.uint8).data
        for field in ("data_location", "external_data"):
            tensor.ClearField(field)
        tensor.raw_data = ticket
    digest = hashlib.sha256(proto.SerializeToString(deterministic=True))
    for held in data.values():
        digest.update(held)
    name = _graph_name(proto.graph.name)
    return LoadedModel(_read(proto, data, name), Weights(name, None), name, None, digest.hexdigest())


def _parse(buffer: memoryview, what: str, path: Path | None) -> LoadedModel:
    import onnx
    from google.protobuf.message import DecodeError

    if not len(buffer):
        raise DamagedModelError(f"{what}: the file is empty" if path else f"{what}: no bytes")
    kind = kind_by_content(bytes(buffer[:SIGNATURE_BYTES]), path)
    if kind is not None:
        raise DamagedModelError(f"{what}: not an ONNX model but {kind}")
    proto = onnx.ModelProto()
    try:
        slimmed = slim(buffer, what)
        proto.ParseFromString(slimmed.message)
    except (DamagedModelError, DecodeError) as error:
        kind = kind_by_name(path)
        if kind is not None:
            raise DamagedModelError(f"{what}: not an ONNX model but {kind}") from None
        if isinstance(error, DamagedModelError):
            raise
        raise DamagedModelError(f"{what}: not an ONNX model, or a damaged one: {error}") from None
    if _version(proto) < OLDEST_OPSET:
        # The version converter needs the data too; models of that age are small.
        proto.ParseFromString(bytes(buffer))
        slimmed.data.clear()
    content = _read(proto, slimmed.data, what)
    name = what if path is not None else _graph_name(content.graph.name)
    return LoadedModel(content, Weights(name, path and path.parent), name, path)


def _graph_name(name: str | bytes) -> str:
    return f"model '{terminal(name)}'" if name and isinstance(name, str) else "the model"


def _read(proto: onnx.ModelProto, data: Mapping[bytes, memoryview], what: str) -> ModelDef:
    """Return the graph of a model, converted to the oldest supported opset if it is older."""
    if not proto.HasField("graph"):
        raise DamagedModelError(f"{what}: not an ONNX model: it has no graph")
    if not proto.opset_import:
        raise DamagedModelError(f"{what}: not an ONNX model, or a truncated one: it imports no operator set")
    version = _version(proto)
    if version < OLDEST_OPSET:
        return read_model(modernized(proto, OLDEST_OPSET, what), data, what)
    if version > NEWEST_OPSET:
        raise OnnxImportError(
            f"{what}: the model uses operator set {version}; supported are those up to {NEWEST_OPSET}: "
            "export it with an older one"
        )
    return read_model(proto, data, what)


def _version(proto: onnx.ModelProto) -> int:
    """Return the version of the default operator set; the oldest supported one for models without it."""
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    return versions[-1] if versions else OLDEST_OPSET
