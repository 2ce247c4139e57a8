"""What a loop with a run-time trip count does in one iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirlo.frontends.onnx.graph import GraphDef, ValueDef
from mirlo.frontends.onnx.values import AnyValue
from mirlo.frontends.tensor import Tensor


@dataclass(frozen=True)
class LoopIteration:
    """One iteration of a loop."""

    make: Callable[[Tensor, Tensor, list[AnyValue]], tuple[AnyValue, list[AnyValue], list[AnyValue]]]
    """Map the iteration number, whether it is wanted, and the carried values to whether to continue, the next
    carried values, and the scan outputs."""
    carried: Sequence[ValueDef] = ()
    """Declared types of the carried values, if any."""
    collected: Sequence[ValueDef] = ()
    """Declared types of the scan outputs, if any."""
    backwards: Sequence[bool] = ()
    """For each scan output, whether its rows are in reverse order of iterations."""
    graph: GraphDef | None = None
    """The body of ONNX's Loop, which may change the sizes of carried tensors; None for other loops."""
