"""Complete ONNX models from the weightless graphs of this folder: the same weights for everyone, from a seed.

The graphs are real exports. Where a large initializer had its data, its `doc_string` holds the mean and deviation of
the trained values, `{"seeded": [mean, deviation]}`. `fill` draws normal values with them, from a generator seeded by
the initializer's name: what a model computes is then meaningless, but its numbers keep the size of the trained one's.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

GRAPHS = Path(__file__).resolve().parent
MARK = '{"seeded"'


def names() -> list[str]:
    """Return the exported models."""
    return sorted(file.stem for file in GRAPHS.glob("*.onnx"))


def all_names() -> list[str]:
    """Return the exported models, then those that are built here."""
    from .made import MADE

    return [*names(), *MADE]


def fill(name: str, path: str | os.PathLike[str]) -> Path:
    """Write the complete model `name` to `path`; the file appears there whole or not at all."""
    import onnx

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if name in names():
        model = onnx.load(_graph(name))
        for tensor in model.graph.initializer:
            if tensor.doc_string.startswith(MARK):
                _fill_tensor(tensor)
    else:
        model = _maker(name)()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(model.SerializeToString())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


def path(name: str, cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the complete model as a file in a cache folder, by default `~/.cache/mirlo/models`."""
    folder = Path(cache) if cache is not None else Path.home() / ".cache" / "mirlo" / "models"
    if name not in names():
        _maker(name)
    sources = [_graph(name)] if name in names() else [GRAPHS / "made.py", GRAPHS / "nets.py"]
    fingerprint = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:12]
    target = folder / f"{name}-{fingerprint}.onnx"
    return target if target.exists() else fill(name, target)


def _graph(name: str) -> Path:
    return GRAPHS / f"{name}.onnx"


def _maker(name: str) -> Callable[[], Any]:
    from .made import MADE

    if name not in MADE:
        raise ValueError(f"no model is named '{name}'; there are: {', '.join(all_names())}")
    return MADE[name]


def _fill_tensor(tensor: Any) -> None:
    import numpy as np

    mean, deviation = json.loads(tensor.doc_string)["seeded"]
    digest = hashlib.sha256(tensor.name.encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    values = generator.standard_normal(tuple(tensor.dims), dtype=np.float32)
    tensor.raw_data = (values * np.float32(deviation) + np.float32(mean)).astype("<f4").tobytes()
    tensor.ClearField("doc_string")
