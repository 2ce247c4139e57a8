"""The nodes of a model by the names that the importer gives their operators, also those that it makes none of."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.graph import NodeDef
from mirlo.frontends.onnx.importer import import_model
from mirlo.frontends.onnx.inputs import Shapes
from mirlo.frontends.onnx.node import Observer
from mirlo.frontends.onnx.values import Scope

COMPUTED = "the import computed it, or it changes nothing"
UNNEEDED = "no output of the model needs it"


class _NodeNames(Observer):
    """Collects the nodes of each scope that is imported."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._scopes: list[Sequence[object]] = []

    def imported(self, step: NodeDef, scope: Scope) -> None:
        if not any(nodes is scope.nodes for nodes in self._scopes[-1:]):
            self._scopes.append(scope.nodes)
            for node in scope.nodes:
                self.found.setdefault(f"{scope.prefix}{node.name}", UNNEEDED)
        self.found[f"{scope.prefix}{step.name}"] = COMPUTED


def model_nodes(model: models.Source, shapes: Shapes | None = None) -> dict[str, str]:
    """Return the nodes of a model that can be imported, with why no operator comes from one, where none does."""
    names = _NodeNames()
    import_model(model, shapes=shapes, observer=names)
    return names.found
