"""The inputs of a node as its converter reads them: tensors, objects, constants, lists of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.budget import require_table
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import OperationView
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.objects import ObjectBuilder, call_host
from mirlo.frontends.onnx.schema_table import Signature
from mirlo.frontends.onnx.values import AnyValue, ListValue, ObjectValue, OptionalValue, as_dim
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.kinds import SEQUENCE, STRING, Kind


class NodeInputs(OperationView):
    """The inputs of a node, and the operations that its converter makes of them."""

    builder: ObjectBuilder

    def __init__(
        self,
        operator: str,
        inputs: Sequence[AnyValue | None],
        outputs: Sequence[str],
        signature: Signature | None,
        builder: ObjectBuilder,
    ) -> None:
        super().__init__(builder)
        self.operator = operator
        self.inputs = inputs
        self.outputs = outputs
        self.signature = signature
        self._read: set[int] = set()

    def __len__(self) -> int:
        """Return the number of inputs, without absent ones at the end."""
        return max((i + 1 for i, value in enumerate(self.inputs) if value is not None), default=0)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def any_value(self, index: int) -> AnyValue:
        """Return a required input of any kind."""
        self._read.add(index)
        result = self.inputs[index] if index < len(self.inputs) else None
        if result is None:
            raise NodeError(f"input '{self.input_name(index)}' is missing")
        return result

    def value(self, index: int) -> Tensor:
        """Return a required input that is a tensor."""
        result = self.any_value(index)
        if not isinstance(result, Tensor):
            raise NodeError(f"input '{self.input_name(index)}' is {result}, expected a tensor")
        return result

    def __getitem__(self, index: int) -> Tensor:
        """Return an input as an SSA value."""
        return self.ssa(self.value(index))

    def optional(self, index: int) -> Tensor | None:
        """Return an input as an SSA value, or None if the node omits it."""
        return self[index] if self.has(index) else None

    def all(self, start: int = 0) -> list[Tensor]:
        """Return all inputs from `start` on as SSA values."""
        return [self[i] for i in range(start, len(self))]

    def type(self, index: int) -> TensorType:
        return self.value(index).type

    def sequence(self, index: int) -> ListValue | ObjectValue:
        """Return a required input that is a sequence."""
        result = self.any_value(index)
        if result.kind.name != SEQUENCE or isinstance(result, (Tensor, OptionalValue)):
            raise NodeError(f"input '{self.input_name(index)}' is {result}, expected a sequence")
        return result

    def is_string(self, index: int) -> bool:
        """Return whether an input is a tensor of strings."""
        operand = self.inputs[index] if index < len(self.inputs) else None
        return isinstance(operand, ObjectValue) and operand.kind.name == STRING

    def object(self, index: int) -> ir.Value | None:
        """Return an input of any kind as an SSA value; None if the node omits it."""
        return self.builder.ssa(self.any_value(index)) if self.has(index) else None

    def host(
        self, function: str, *values: Tensor | ir.Value | None, results: Sequence[Kind], **options: Any
    ) -> list[AnyValue]:
        """Call a host function on SSA values; return its results, which have these kinds."""
        operands = [self.builder.full(value) if isinstance(value, Tensor) else value for value in values]
        return call_host(self.builder, function, operands, results, **options)

    def ssa(self, value: AnyValue) -> Tensor:
        """Return a tensor that is no input, as an SSA value."""
        if not isinstance(value, Tensor):
            raise NodeError(f"'{value.name}' is {value}, expected a tensor")
        self.builder.full(value)
        return value

    def ignore(self, *indices: int) -> None:
        """Declare that these inputs do not affect the result."""
        self._read.update(indices)

    def input_name(self, index: int) -> str:
        return self.signature.input_name(index) if self.signature else f"#{index}"

    def array(self, index: int) -> np.ndarray:
        """Return the elements of an input that must be constant."""
        value = self.value(index)
        if value.known is None or value.sizes is not None:
            raise NodeError(
                f"input '{self.input_name(index)}' ('{value.name}') must be a constant, but is computed at run time; "
                "fix the shapes of the model's inputs, or make it an initializer"
            )
        return value.known

    def scalar(self, index: int, default: float | None = None) -> Any:
        """Return the single element of a constant input as a Python number."""
        if not self.has(index):
            return default
        array = self.array(index)
        if array.size != 1:
            raise NodeError(f"input '{self.input_name(index)}' must have one element, got {self.type(index)}")
        return array.reshape(-1)[0].item()

    def ints(self, index: int) -> list[int]:
        """Return the elements of a constant list of integers."""
        return [int(item) for item in self.array(index).reshape(-1)]

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the elements of an input that is a list of dims: numbers or expressions of symbols.

        Elements known only at run time become symbols.
        """
        value = self.value(index)
        if value.known is not None:
            return tuple(map(as_dim, value.known.reshape(-1)))
        values, what = self.vector(index), f"input '{self.input_name(index)}' must be sizes"
        return (
            self.bind(values, what) if value.partial is None else self.bind_unknown(values, what, value.partial_sizes)
        )

    def bind(self, values: Tensor, what: str, bounds: Sequence[Dim] | None = None) -> tuple[Dim, ...]:
        """Bind the elements of an i64 vector to symbols; `what` describes them in errors.

        Later shapes use these symbols like those of inputs. An invalid size is made negative where it is computed, so
        that the check of `relax.bind_dims` reports it.
        """
        if values.rank != 1:
            raise NodeError(f"a list of numbers is expected, got {values.type}")
        if not isinstance(values.shape[0], int):
            raise NodeError(f"{what} is a list of {values.shape[0]} numbers: how many there are must be known")
        text = f"node '{self.outputs[0]}' ({self.operator}): {what}"
        return self.builder.bind(values, self.outputs[0], text, bounds=bounds)

    def bind_unknown(self, values: Tensor, what: str, known: Sequence[Dim | None]) -> tuple[Dim, ...]:
        """Return the elements of an i64 vector: those that are known, and symbols that the others are bound to."""
        unknown = [i for i, dim in enumerate(known) if dim is None]
        chosen = values if len(unknown) == len(known) else values.gather(self.constant(unknown, "i64"))
        bound = iter(self.bind(chosen, what))
        return tuple(next(bound) if dim is None else dim for dim in known)

    def vector(self, index: int) -> Tensor:
        """Return an input that is a list of integers as an i64 vector."""
        x = self[index]
        return (x if x.rank == 1 else x.reshape((x.type.elements,))).cast("i64")

    def single(self, index: int) -> Tensor:
        """Return an input of one element as rank 0."""
        if self.type(index).elements != 1:
            raise NodeError(f"input '{self.input_name(index)}' must have one element, got {self.type(index)}")
        return self[index].reshape(())

    def index_vector(self, count: Dim) -> Tensor:
        """Return 0, 1, 2, ... as an i64 vector; a constant where the count is known, from which ranges are found."""
        if isinstance(count, int):
            require_table("the positions along a dim", count)
            return self.constant(np.arange(count), "i64")
        return super().index_vector(count)
