"""Comparison of passes that run on a few of the equal layers of a model with those that run on all."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.layers.once_per_layer import OncePerLayer
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import PassDecision, Session
from mirlo.runtime.params import ParameterStore

PASSES = (
    "simplify,fold-constant,convert-layout,simplify,fold-constant,cse,remove-dead,legalize{target=llvm},"
    "annotate-kinds,fuse-ops{widen=true},fuse-tir"
)


def compiled(
    text: str, pipeline: Pipeline, more: Mapping[str, np.ndarray] | None = None
) -> tuple[str, dict[str, np.ndarray], list[str]]:
    """Return the module after a pipeline, the parameters that it names, and the decisions about layers."""
    rng, store = np.random.default_rng(0), ParameterStore()
    for name, array in (more or {}).items():
        store.add(name, array)
    for i in range(24):
        store.add(f"w{i}", rng.standard_normal((8, 8), np.float32))
        for name in ("scale", "offset", "mean", "variance"):
            store.add(f"{name}{i}", rng.uniform(0.5, 1, 8).astype(np.float32))
    session = Session(store)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        pipeline.run(module, session)
        code = str(module)
    for i, name in enumerate(dict.fromkeys(re.findall(r"@\w+", code))):  # numbers in names depend on what was tried
        code = re.sub(rf"{name}\b", f"@f{i}", code)
    notes = [note for note in session.notes if isinstance(note, PassDecision) and note.decided_by == OncePerLayer.name]
    arrays = {name: store.get(name) for name in store.names() if f'"{name}"' in code}
    return code, arrays, [str(note.outcome) for note in notes]


def check(text: str, reason: str | None, passes: str = PASSES, more: Mapping[str, np.ndarray] | None = None) -> str:
    """Assert that passes leave the same on a few layers, or say why they ran on all; return what they leave."""
    expected, weights, _ = compiled(text, Pipeline(passes), more)
    code, arrays, decisions = compiled(text, Pipeline([OncePerLayer(passes)]), more)
    assert code == expected
    assert arrays.keys() == weights.keys()
    assert all(arrays[name].tobytes() == weights[name].tobytes() for name in weights)
    assert decisions == [] if reason is None else reason in decisions[0], decisions
    return code
