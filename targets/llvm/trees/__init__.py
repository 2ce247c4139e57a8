"""Pass `pack-trees`: the upper levels of constant decision trees are compared for 16 rows at a time."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.surgery import blocks, erase_dead
from mirlo.passes.graph.dce import is_pure_relax
from mirlo.passes.legalize.legalize import STRATEGIES
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.session import Session
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.options import find_machine


@register_pass
@dataclass(frozen=True)
class PackTrees(Pass):
    """Store the upper levels of decision trees as masks that vectors of rows are compared with.

    A row leaves the upper levels of a tree at one of 32 exits. Each node has a mask without the exits that a row does
    not take where its comparison fails: all nodes are compared, without branches, and the first exit that is left is
    taken. It is a leaf, or a node from which each row continues alone.
    """

    name = "pack-trees"
    keeps_layers = True
    contained = True
    trusted = True
    machine: str = option("", "machine whose vectors are used; default: the one that is scheduled for")
    explain: bool = option(False, "print the decision for each ensemble")

    def run(self, op: ir.OpView, session: Session) -> None:
        wanted = session.options.get(STRATEGIES)
        if wanted is not None and (not isinstance(wanted, dict) or "relax.tree_ensemble" in wanted):
            return  # a strategy requested by the user is applied
        functions = op.operation.regions[0].blocks[0].operations
        own = [block for function in functions for block in reversed(blocks(function))]
        ensembles = [
            o.operation for block in own for o in block.operations if o.operation.name == "relax.tree_ensemble"
        ]
        if ensembles:
            self._convert(op, ensembles, session)
        for block in own:
            erase_dead(block, is_pure_relax)

    def _convert(self, module: ir.OpView, ensembles: list[ir.Operation], session: Session) -> None:
        # Imported here: what builds the kernels is six modules, and few models have trees.
        from mirlo.targets.llvm.trees.convert import EnsembleConverter

        converter = EnsembleConverter(module, find_machine(self.machine or session.options.get("machine")))
        for ensemble in ensembles:
            location = ensemble.location
            declined = converter.convert(ensemble, session)
            if self.explain:
                text = "has masks" if declined is None else f"goes from node to node: {declined}"
                session.remark(f"the ensemble of trees {text}", location)
