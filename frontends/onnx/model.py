"""Opening of a model: from a path, bytes or a ModelProto to its typed graph and its weights."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mirlo.frontends.files import BYTECODE_PREFIX, forms_named, has_form, missing_package
from mirlo.frontends.onnx.errors import DamagedModelError, OnnxImportError
from mirlo.frontends.onnx.graph import ModelDef
from mirlo.frontends.onnx.reading import is_old, read_model
from mirlo.frontends.onnx.weights import Weights, map_file
from mirlo.frontends.onnx.wire import slim
from mirlo.runtime.errors import ParameterError
from mirlo.runtime.known_packages import install_command
from mirlo.runtime.names import terminal
from mirlo.runtime.params import ParameterStore
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    import onnx

Source: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | LoadedModel"
"""What can be opened: a path, the bytes of a file, or a model in memory."""
PICKLE = (
    "a Python pickle, which may run any code and is not opened: load it where you trust it, "
    "and compile the object in Python: mirlo.compile(model, ...)"
)
CHECKPOINT = (
    "a PyTorch checkpoint, which has weights and no graph: load it into its module in Python, "
    "and compile that: mirlo.compile(module, args=(example,))"
)
KERAS = (
    "a Keras model: load it in Python with KERAS_BACKEND=jax and compile it there: "
    "mirlo.compile(model); or convert it with tf2onnx"
)
TFLITE = (
    f"a TensorFlow Lite model: name it FILE.tflite and {install_command('file_forms', 'tflite')}, or convert it with "
    "tf2onnx"
)
IR = "IR: 'mirlo-opt' prints it, 'mirlo compile' compiles it"
GGUF = "a GGUF file, whose model 'mirlo generate' runs: mirlo generate FILE PROMPT"
SAFETENSORS = (
    "a safetensors file, which has weights and no graph: 'mirlo generate FOLDER' runs the model of a folder that it "
    "knows; load other weights into a module of PyTorch, and compile that: mirlo.compile(module, args=(example,))"
)
SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer: run 'git lfs pull' to get the model itself"),
    (0, b"\x89HDF", KERAS),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"<!DOCTYPE", "a web page: the download went wrong"),
    (0, b"<html", "a web page: the download went wrong"),
    (0, b"\x93MIRLO", "a file that Mirlo wrote: a compiled model is run, not imported"),
    (0, BYTECODE_PREFIX, IR),
    (0, b"GGUF", GGUF),
    (4, b"TFL3", TFLITE),
    (8, b'{"', SAFETENSORS),
    *((0, b"\x80" + bytes([protocol]), PICKLE) for protocol in range(2, 6)),
)
"""Where a signature is, its bytes, and what has it."""
SIGNATURE_BYTES = 32
"""Bytes of a file that these need."""
ARCHIVE = b"PK\x03\x04"
SUFFIXES = {
    ".pt2": "an exported PyTorch program: load and compile it in Python: mirlo.compile(torch.export.load('FILE'))",
    ".pt": CHECKPOINT, ".pth": CHECKPOINT, ".ckpt": CHECKPOINT, ".bin": CHECKPOINT,
    ".keras": KERAS, ".h5": KERAS, ".hdf5": KERAS,
    ".pkl": PICKLE, ".pickle": PICKLE, ".joblib": PICKLE,
    ".mlir": IR, ".mlirbc": IR,
    ".py": "a file of Python: 'mirlo compile' compiles what 'mirlo import --script' writes, --plugin loads plug-ins",
    ".gguf": GGUF, ".safetensors": SAFETENSORS,
    ".pb": "a TensorFlow graph: convert its folder, python -m tf2onnx.convert --saved-model FOLDER --output model.onnx",
    ".mlmodel": "a Core ML model: export the model it was converted from as ONNX",
    ".xml": "perhaps an OpenVINO model: export the model it was converted from as ONNX",
    ".ort": "a model in ONNX Runtime's own format: use the ONNX file that it was converted from",
    ".json": "a JSON file; a model of XGBoost is loaded in Python, and compiled there: mirlo.compile(model)",
    ".txt": "a text; a model of LightGBM is loaded in Python, and compiled there: mirlo.compile(model)",
    ".npz": "an archive of NumPy arrays: the arrays of inputs are given with --input NAME=FILE.npy",
}  # fmt: skip


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
    """Open a model again without the shapes that it declares for results, which are wrong."""
    return replace(load(model), trusts_declared=False, digest=None)


def load(model: Source) -> LoadedModel:
    """Open a model without copying its weights."""
    if isinstance(model, LoadedModel):
        return model
    if isinstance(model, messages().ModelProto):
        name = _graph_name(model.graph.name)
        return LoadedModel(read_model(model, {}, name), Weights(name, None), name, None)
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


def read_parameters(path: Path, store: ParameterStore) -> None:
    """Add the tensors of a model's main graph to the store of IR that was saved without its weights, as views."""
    try:
        model = load(path)
        for name, tensor in model.content.parameters.items():
            if name and name not in store:
                packed = model.weights.packed(tensor)
                array = model.weights.array(tensor, name) if packed is None else packed[0]
                store.add(name, array, source=path)
    except OnnxImportError as error:
        raise ParameterError(str(error)) from None


def load_shared(proto: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> LoadedModel:
    """Open an `onnx.ModelProto` whose initializers of these names have their data in arrays, which are not copied."""
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
    return LoadedModel(read_model(proto, data, name), Weights(name, None), name, None, digest.hexdigest())


def _parse(buffer: memoryview, what: str, path: Path | None) -> LoadedModel:
    from google.protobuf.message import DecodeError

    if not len(buffer):
        raise DamagedModelError(f"{what}: the file is empty" if path else f"{what}: no bytes")
    kind = kind_by_content(bytes(buffer[:SIGNATURE_BYTES]), path)
    if kind is not None:
        raise DamagedModelError(f"{what}: not an ONNX model but {kind}")
    proto = messages().ModelProto()
    try:
        slimmed = slim(buffer, what)
        proto.ParseFromString(slimmed.message)
        if is_old(proto):
            # The version converter needs the data too; models of that age are small.
            proto.ParseFromString(bytes(buffer))
            slimmed.data.clear()
        content = read_model(proto, slimmed.data, what)
    except (DamagedModelError, DecodeError) as error:
        kind = None if proto.HasField("graph") else kind_by_name(path)
        if kind is not None:
            raise DamagedModelError(f"{what}: not an ONNX model but {kind}") from None
        if isinstance(error, DamagedModelError):
            raise
        raise DamagedModelError(f"{what}: not an ONNX model, or a damaged one: {error}") from None
    name = what if path is not None else _graph_name(content.graph.name)
    return LoadedModel(content, Weights(name, path and path.parent), name, path)


def kind_by_content(start: bytes, path: PurePath | None) -> str | None:
    """Return the format of a file by its first bytes, with advice; None if it may be an ONNX model."""
    if start.startswith(ARCHIVE):
        return kind_by_name(path) or f"a zip archive, perhaps {CHECKPOINT}"
    known = next((text for at, signature, text in SIGNATURES if start[at:].startswith(signature)), None)
    return known and (_form_by_name(path) or known)


def kind_by_name(path: PurePath | None) -> str | None:
    """Return the format of a file that is no ONNX model, by its name."""
    if path is None:
        return None
    return SUFFIXES.get(path.suffix.lower(), "").replace("FILE", path.name) or _form_by_name(path)


def _form_by_name(path: PurePath | None) -> str | None:
    """Return advice for a file of this name, if a front end or a package that is not installed opens it."""
    if path is None or path.suffix.lower() in SUFFIXES:
        return None
    if not has_form(path):
        return missing_package(path)
    return f"a model of {forms_named(path)}: 'mirlo import' prints it, 'mirlo compile' compiles it"


def _graph_name(name: str | bytes) -> str:
    return f"model '{terminal(name)}'" if name and isinstance(name, str) else "the model"


_MODULE = "onnx_ml_pb2"


@cache
def messages() -> Any:
    """Return a module with the classes `ModelProto`, `FunctionProto` and others: those of `onnx`, imported or not.

    protobuf keeps one class for each message, whichever module asks for it first.
    """
    if "onnx" in sys.modules:
        return sys.modules["onnx"]
    package = find_spec("onnx")
    for folder in (package and package.submodule_search_locations) or ():
        spec = spec_from_file_location(f"_mirlo_{_MODULE}", Path(folder) / f"{_MODULE}.py")
        if spec is not None and spec.loader is not None and Path(folder, f"{_MODULE}.py").exists():
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    return importlib.import_module("onnx")
