"""Calls of operators of TVM in the text of a graph, and names of TVM that have no meaning or another one here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mirlo.frontends.script.graph_values import GraphResult, GraphTensor
from mirlo.frontends.script.syntax import TVM_TYPES
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.core.types import TensorType
    from mirlo.frontends.script.source import Located


NOT_OF_GRAPHS = {
    "print": "a compiled graph prints nothing: return the tensor as one more result",
    "assert_op": "a compiled graph checks nothing that its caller can check: compare before the call",
    "call_tir_inplace": "call_tir with an output; the memory plan lets both share memory where that is possible",
    "call_inplace_packed": "call_dps_packed with an output",
    "invoke_closure": "a graph has no closures: call the function",
    "make_closure": "a graph has no closures: call the function",
    "builtin": "memory is planned by the compiler",
    "memory": "memory is planned by the compiler",
    "vm": "what TVM's virtual machine is told is no part of a model",
    "dist": "one device computes a graph",
    "ccl": "one device computes a graph",
    "ExternFunc": "call_dps_packed takes the name of the function",
    "dynamic_strided_slice": "R.strided_slice takes integers and symbols",
    "layout_transform": "write R.permute_dims and R.reshape",
    "multinomial_from_uniform": "draw where the model is called, from the probabilities that it returns",
    "nll_loss": "a loss is for training: R.gather_elements of R.nn.log_softmax gives what it sums up",
    "cross_entropy_with_logits": "a loss is for training: R.gather_elements of R.nn.log_softmax gives what it sums up",
    "unique": "the size of its result comes from data, which a script cannot declare: import an ONNX model, Unique",
}
"""Words of TVM without a meaning in a compiled graph, and what to write."""


OTHER_MEANING: dict[str, tuple[str, ...]] = {
    "argmax": ("axis", "keepdims"), "argmin": ("axis", "keepdims"),
    "mod": (), "scatter_elements": (), "scatter_nd": (), "argsort": (), "topk": (), "dequantize": (),
}  # fmt: skip
"""Operators whose calls may be read either way, with another meaning: TVM's where the text imports TVM's script.

The attributes have another default; elsewhere they are given, as the printer does.
"""


class TvmMistake(ValueError):
    """An argument of an operator of TVM that has no meaning here."""


class OperatorMaker(Protocol):
    """The interface of the reader of a graph that makes its operators."""

    names: dict[str, object]

    def as_tensor(self, value: object, node: Located, like: TensorType | None = None) -> GraphTensor: ...

    def make(
        self,
        node: Located,
        name: str,
        operands: Sequence[GraphTensor | list[GraphTensor] | None],
        results: list[TensorType] | None = None,
        **attributes: Any,
    ) -> GraphResult: ...


@dataclass(frozen=True)
class TvmCall:
    """A call of an operator of TVM that is replaced by operators of Mirlo."""

    calls: OperatorMaker
    node: Located

    def tensor(self, name: str, *operands: GraphTensor | list[GraphTensor] | None, **attributes: Any) -> GraphTensor:
        """Make an operator of one result."""
        if isinstance(attributes.get("dtype"), str):
            attributes["dtype"] = TVM_TYPES.get(attributes["dtype"], attributes["dtype"])
        tensor = self.calls.make(self.node, name, operands, None, **attributes)
        assert isinstance(tensor, GraphTensor)
        return tensor

    def tensors(self, name: str, *operands: GraphTensor | None, **attributes: Any) -> tuple[GraphTensor, ...]:
        results = self.calls.make(self.node, name, operands, None, **attributes)
        return results if isinstance(results, tuple) else (results,)

    def number(self, value: object, like: GraphTensor) -> GraphTensor:
        return self.calls.as_tensor(value, self.node, like.type)
