"""Nodes of ONNX for converters of ATen: layers that the ONNX front end builds from many operators and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.builder import GraphBuilder, UnsupportedOperation
from mirlo.frontends.onnx import loops
from mirlo.frontends.onnx.attributes import Attributes
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import attribute_of
from mirlo.frontends.onnx.node import Node, NodeImporter
from mirlo.frontends.onnx.values import AnyValue, Converted
from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation

if TYPE_CHECKING:
    from mirlo.frontends.onnx.loop_iteration import LoopIteration


class _Body:
    """What a converter of ONNX needs of an import, on a function that is being built."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self.expansion = SimpleNamespace(carried={})
        self.bound: dict[str, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def ssa(self, value: AnyValue) -> ir.Value:
        assert isinstance(value, Tensor)
        return self._builder.full(value)

    def new_symbol(self, base: str) -> str:
        return self._builder.new_symbol(base or "size")

    def bound_symbol(self, base: str) -> str:
        name = self.new_symbol(base)
        self.bound[name] = None
        return name

    def loop(
        self,
        round_: LoopIteration,
        limit: Tensor | None,
        going: Tensor | None,
        carried: Sequence[AnyValue],
        room: Dim | None = None,
    ) -> list[Any]:
        return loops.repeat(cast(NodeImporter, self), round_, limit, going, carried, room)


def onnx_layer(
    op: AtenOperation,
    convert: Callable[[Node], Converted],
    inputs: Sequence[Tensor | None],
    **attributes: object,
) -> list[Tensor]:
    """Apply a converter of ONNX to these inputs; return its outputs."""
    given = [None if x is None else op.body.tensor(op.body.full(x)) for x in inputs]
    entries = [attribute_of(name, value) for name, value in attributes.items()]
    node = Node(convert.__name__, 22, given, ["y"], Attributes(entries), None, cast(NodeImporter, _Body(op.body)))
    try:
        result = convert(node)
    except NodeError as problem:
        raise UnsupportedOperation(str(problem)) from None
    assert isinstance(result, (list, tuple)), result
    return [value for value in result if isinstance(value, Tensor)]
