"""Complete ONNX models from the weightless graphs of this folder: the same weights for everyone, from a seed.

The graphs are real exports. Where an initializer of many floats had its data, its `doc_string` holds the mean and
deviation of the trained values, `{"seeded": [mean, deviation]}`. `complete` draws normal values with them, from a
generator seeded by the initializer's name: what a model computes is then meaningless, but its numbers keep the size of
the trained one's.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import onnx

from mirlo.runtime.cache import default_folder
from mirlo.runtime.errors import MirloError, nearest
from mirlo.runtime.files import write_regular
from mirlo.runtime.private_folders import make_private

GRAPHS = Path(__file__).resolve().parent
MARK = '{"seeded"'


def names() -> list[str]:
    """Return the names of the samples."""
    return sorted(file.stem for file in GRAPHS.glob("*.onnx"))


def complete(name: str) -> onnx.ModelProto:
    """Return a sample with its weights."""
    return fill_weights(onnx.load(_graph(name)))


def fill_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make the weights of a sample's graph, or of a part of it, from their seeds."""
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith(MARK):
            _fill_tensor(tensor)
    return model


def write(model: onnx.ModelProto, path: str | os.PathLike[str]) -> Path:
    """Write a model; the file appears whole or not at all."""
    target = Path(path)
    make_private(target.parent)
    write_regular(target, model.SerializeToString(), is_private=True)
    return target


def path(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return a sample as a file in a folder, by default `models` beside the compilation cache."""
    graph = _graph(name)
    target = file_in(folder, name, graph.read_bytes())
    return target if target.exists() else write(complete(name), target)


def file_in(folder: str | os.PathLike[str] | None, name: str, source: bytes) -> Path:
    """Return the path of a model that is made from a source; another source has another path."""
    chosen = Path(folder) if folder is not None else default_folder().parent / "models"
    return chosen / f"{name}-{hashlib.sha256(source).hexdigest()[:12]}.onnx"


def _graph(name: str) -> Path:
    known = names()
    if name not in known:
        raise MirloError(f"no sample is named '{name}'{nearest(name, known)} (there are: {', '.join(known)})")
    return GRAPHS / f"{name}.onnx"


def _fill_tensor(tensor: onnx.TensorProto) -> None:
    mean, deviation = json.loads(tensor.doc_string)["seeded"]
    digest = hashlib.sha256(tensor.name.encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    values = generator.standard_normal(tuple(tensor.dims), dtype=np.float32)
    tensor.raw_data = (values * np.float32(deviation) + np.float32(mean)).astype("<f4").tobytes()
    tensor.ClearField("doc_string")
