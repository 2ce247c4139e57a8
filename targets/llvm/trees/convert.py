"""Conversion of constant decision trees: their upper levels are compared for 16 rows at a time."""

from __future__ import annotations

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.relax.calls import CallTir
from mirlo.passes.fuse.kinds import KIND, FusionKind
from mirlo.passes.graph.rewrite import Rewriter, kind_of
from mirlo.passes.rules import Decline, decline
from mirlo.passes.session import Session
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.trees.kernel import MIN_ROWS, MaskedTrees, lanes_of, trees_function
from mirlo.targets.llvm.trees.layout import UpperLevels, upper_levels

MIN_LANES = 4


class EnsembleConverter:
    """Replaces the ensembles of a module by calls of kernels, each of which is built once."""

    def __init__(self, module: ir.OpView, machine: Machine):
        self.machine = machine
        self.body = module.operation.regions[0].blocks[0]
        self.symbols = ir.SymbolTable(module.operation)
        self.known: dict[MaskedTrees, str] = {}

    def convert(self, ensemble: ir.Operation, session: Session) -> Decline | None:
        """Replace an ensemble, or return why it stays."""
        rewriter = Rewriter(ensemble, session)
        matched = _match(ensemble.opview, rewriter, self.machine)
        if isinstance(matched, Decline):
            return matched
        trees, upper, weights = matched
        if trees not in self.known:
            kernel = trees_function(trees, self.machine, ensemble.location)
            kernel.operation.attributes[KIND] = ir.StringAttr.get(FusionKind.OPAQUE.label)
            self.body.append(kernel.operation)
            self.known[trees] = ir.StringAttr(self.symbols.insert(kernel.operation)).value
        replace_op(ensemble, [_call(ensemble.opview, trees, upper, weights, self.known[trees], rewriter)])
        return None


def _match(op: ir.OpView, b: Rewriter, machine: Machine) -> tuple[MaskedTrees, UpperLevels, np.ndarray] | Decline:
    """Return the description of an ensemble that the kernel needs, or decline."""
    x, weights = kind_of(op.x), kind_of(op.weights)
    if lanes_of(machine) < MIN_LANES:
        return decline("the machine has no vectors", machine=machine.name)
    if x.dtype.name != "f32" or weights.dtype.name != "f32" or kind_of(op.nodes).dtype.name != "i32":
        return decline("features or weights are not f32, or nodes not i32", features=str(x), weights=str(weights))
    if op.mode < 0:
        return decline("nodes compare differently")
    if isinstance(x.shape[0], int) and x.shape[0] < MIN_ROWS:
        return decline("there are few rows", rows=x.shape[0])
    if not isinstance(x.shape[1], int):
        return decline("the number of features is known at run time only")
    arrays = [b.array(value) for value in (op.thresholds, op.nodes, op.roots, op.weights)]
    if any(array is None for array in arrays):
        return decline("nodes or weights are computed at run time")
    thresholds, nodes, roots, values = (np.asarray(array) for array in arrays)
    if not len(roots) or x.shape[1] == 0 or values.shape[1] == 0:
        return decline("there are no trees, features or targets")
    upper = upper_levels(thresholds, nodes, roots, op.mode, x.shape[1], len(values), lanes_of(machine))
    if isinstance(upper, Decline):
        return upper
    leaves, targets = values.shape
    trees = MaskedTrees(
        x, len(upper.columns), len(upper.records), len(roots), len(upper.exits), leaves, targets, op.mode, op.aggregate,
        len(upper.lower), kind_of(op.nodes), kind_of(op.roots), op.depth,
    )  # fmt: skip
    if not trees.groups:
        return decline("features and scores of 16 rows do not fit the cache", features=trees.columns)
    return trees, upper, values


def _call(
    op: ir.OpView, trees: MaskedTrees, upper: UpperLevels, weights: np.ndarray, name: str, b: Rewriter
) -> ir.Value:
    exits = upper.leaf_weights(weights) if upper.reaches_leaves else upper.exits
    arrays = [upper.columns, upper.records, upper.starts, upper.words, exits]
    if not upper.reaches_leaves:
        arrays.append(upper.lower)
    labels = ("columns", "records", "starts", "words", "exits", "lower")
    constants = [
        b.constant(np.ascontiguousarray(array).reshape(-1), kind, f"trees.{label}")
        for array, kind, label in zip(arrays, trees.inputs[5:], labels[: len(arrays)], strict=True)
    ]
    with ir.InsertionPoint(b.op), b.op.location:
        call = CallTir.build(
            [op.x, op.thresholds, op.nodes, op.roots, op.weights, *constants], result_types=[trees.result], callee=name
        )
    return call.operation.results[0]
