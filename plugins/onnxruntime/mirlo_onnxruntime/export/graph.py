"""A builder of ONNX graphs: nodes, constants, names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mirlo.extend.codegen import Dim, DType, ExternalValue
from mirlo.extend.ops import OnnxName
from mirlo_onnxruntime.dtypes import code_of

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx

OPSET = 18
"""The opset, an old one, since providers adopt new ones late."""
IR_VERSION = 9
INLINE_BYTES = 1024
"""Constants of at most this many bytes are stored in the model; larger ones are supplied at load time."""


@dataclass
class ExportGraph:
    """A graph under construction. Names of values are those of the view, unique in their function."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    count: int = 0
    domains: dict[str, int] = field(default_factory=dict)
    """The versions of the domains of nodes outside ONNX's own."""

    def fresh(self, hint: str = "t") -> str:
        """Return an unused name; names of the view have no '%'."""
        self.count += 1
        return f"{hint}%{self.count}"

    def add(self, operator: str | OnnxName, inputs: Sequence[ExternalValue | str | None], **attributes: object) -> str:
        """Add a node, of ONNX's own domain or another; return the name of its result."""
        return self.add_all(operator, inputs, 1, **attributes)[0]

    def add_all(
        self, operator: str | OnnxName, inputs: Sequence[ExternalValue | str | None], outputs: int, **attributes: object
    ) -> list[str]:
        """Add a node with this number of results; return their names."""
        from onnx import helper

        called = OnnxName(operator) if isinstance(operator, str) else operator
        names = [_name(value) for value in inputs]
        while names and not names[-1]:
            names.pop()
        result = [self.fresh(called.operator.lower()) for _ in range(outputs)]
        present = {name: value for name, value in attributes.items() if value is not None}
        fresh = self.fresh(called.operator)
        self.nodes.append(helper.make_node(called.operator, names, result, name=fresh, domain=called.domain, **present))
        if called.domain:
            self.domains[called.domain] = max(called.since, self.domains.get(called.domain, 1))
        return result

    def array(self, array: npt.ArrayLike) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        plain = np.ascontiguousarray(array).reshape(np.shape(array))
        name = self.fresh("const")
        self.initializers[name] = numpy_helper.from_array(plain, name)
        return name

    def ints(self, numbers: Sequence[int]) -> str:
        """Add a vector of i64."""
        return self.array(np.array(numbers, np.int64))

    def scalar(self, number: npt.ArrayLike, dtype: DType) -> str:
        """Add a scalar of an element type."""
        return self.array(np.array(number, dtype.to_numpy()))

    def cast(self, value: ExternalValue | str, dtype: DType) -> str:
        """Add a cast to an element type."""
        return self.add("Cast", [value], to=code_of(dtype))


def _name(value: ExternalValue | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else value.name


def reshape_shape(shape: Sequence[Dim | str | None]) -> list[int] | None:
    """Return a shape as integers with -1 for one dynamic dim, None where several dims are dynamic."""
    numbers = [dim if isinstance(dim, int) else -1 for dim in shape]
    return numbers if numbers.count(-1) <= 1 and not (-1 in numbers and 0 in numbers) else None
