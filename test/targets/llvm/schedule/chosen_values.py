"""Models of one kernel with given choices."""

from __future__ import annotations

import numpy as np

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver.tune.database import Database, TuningEntry
from mirlo.runtime.params import ParameterStore


class Always(Database):
    """Says the same of every kernel."""

    def __init__(self, values: dict[str, int]) -> None:
        self.entries = {"": TuningEntry(values, 0.5, 1.0, "", 1)}

    def find(self, key: str) -> dict[str, int]:
        return self.entries[""].values


def weights_of(module: ir.Module, rng: np.random.Generator) -> ParameterStore:
    """Return random values for the constant `w` of a module, if it has one."""
    store = ParameterStore()
    for op in module.body.operations[0].regions[0].blocks[0].operations:
        if op.operation.name == "relax.constant":
            shape = list(ir.RankedTensorType(op.operation.results[0].type).shape)
            store.add("w", rng.standard_normal(shape, dtype=np.float32))
    return store


def run_with(text: str, values: dict[str, int], threads: int = 1, target: str = "llvm") -> np.ndarray:
    """Return the function's result for random values, with these choices."""
    rng = np.random.default_rng(1)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        store = weights_of(module, rng)
        tuning = Always(values) if values else False
        f = mirlo.compile(module, target, params=store, tune=tuning, threads=threads, cache=False)
    result: np.ndarray = f(*[rng.standard_normal(spec.shape, dtype=np.float32) for spec in f.inputs])
    return result
