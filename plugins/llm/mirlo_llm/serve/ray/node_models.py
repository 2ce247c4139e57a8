"""Compiled models on the nodes of a cluster; the processes of a node map one file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo import compile as compile_model
from mirlo import load
from mirlo.extend.runtime import MODEL_FILE, Executable, Program, has_magic, write_regular
from mirlo_llm.serve.ray.errors import RayError

if TYPE_CHECKING:
    import ray

Model = Executable | Program


@dataclass(frozen=True)
class NodeModel:
    """A model that each node can load: a file on each node, or a `.mirlo` file in the object store."""

    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the compilation, if the file is not a compiled model."""
    content: ray.ObjectRef | None = None
    digest: str = ""

    def load(self) -> Model:
        """Return the model; processes of a node share its weights by mapping the file."""
        path = Path(self.path) if self.content is None else self._node_file()
        if not path.is_file():
            raise RayError(f"{path}: there is no such file on this node: each node needs the model at this path")
        loaded = load(path) if has_magic(path, MODEL_FILE) else compile_model(str(path), **self.options)
        if not isinstance(loaded, (Executable, Program)):
            raise RayError(f"{path}: the model was compiled for another machine")
        return loaded

    def _node_file(self) -> Path:
        """Return the node's file with the content, which the node's first process writes."""
        import ray

        folder = Path(tempfile.gettempdir()) / f"mirlo-ray-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{self.digest}.mirlo"
        if path.is_file() and _digest(path.read_bytes()) == self.digest:
            return path
        content: bytes = ray.get(self.content)
        write_regular(path, content)  # two processes may write it: both files are the same
        return path


def node_model(model: object, options: Mapping[str, Any]) -> NodeModel:
    """Return a model for the nodes, from a path, or compiled here and sent to them."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model).resolve()
        if not path.is_file():
            raise RayError(f"{path}: there is no such file")
        return NodeModel(str(path), options)
    if not isinstance(model, Executable):
        raise RayError(f"model: expected the path of a model or a compiled model, found {type(model).__name__}")
    import ray

    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "model.mirlo"
        model.save(saved)
        content = saved.read_bytes()
    return NodeModel(content=ray.put(content), digest=_digest(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
