"""Encoder-decoder models: both parts are compiled from one file of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirlo import compile as compile_model
from mirlo.extend.runtime import Executable
from mirlo_llm.generate.checkpoints.deferred import deferred_graph
from mirlo_llm.generate.checkpoints.safetensors import checkpoint_files
from mirlo_llm.generate.config import GENERATION, ModelConfig
from mirlo_llm.generate.errors import require_executable

if TYPE_CHECKING:
    from mirlo.extend.frontend import ImportedModule

ImportGraph = Callable[[Path, Path], "ImportedModule"]
"""Builds a graph from a file of weights and a configuration."""
Graphs = Callable[[], tuple[ImportGraph, ImportGraph]]
"""Imports the builders of an encoder's and a decoder's graphs, which a cached model does not need."""


def compile_pair(
    config: ModelConfig, graphs: Graphs, mapped: bool, options: Mapping[str, Any]
) -> tuple[Executable, Executable]:
    """Compile the encoder and the decoder of a file; with `mapped`, weights stay in the file."""
    last = {"last_rows": config.names.logits, **options}
    return _compiled(config, graphs, 0, mapped, options), _compiled(config, graphs, 1, mapped, last)


def _compiled(config: ModelConfig, graphs: Graphs, which: int, mapped: bool, options: Mapping[str, Any]) -> Executable:
    weights, source = config.model, config.source
    beside = source.parent / GENERATION
    sources = [source, beside] if beside.exists() else [source]
    graph = deferred_graph(
        lambda: graphs()[which](weights, source), lambda: [*sources, *checkpoint_files(weights)],
        ("encoder", "decoder")[which],
    )  # fmt: skip
    compiled = require_executable(compile_model(graph, **options), weights)
    return compiled if mapped else compiled.resident()
