"""What a legalization rule builds with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.tir.compute import PrimBuilder, TensorExpr

Body = Callable[..., Any]


class PrimFunctions:
    """The prim functions that one run of the pass made, so that equal operators share one."""

    def __init__(self, module: Any):
        self.module = module
        self.symbols = ir.SymbolTable(module.operation)
        self.known: dict[Any, tuple[str, list[TensorType]]] = {}

    def insert(self, function: Any) -> str:
        """Append the function to the module under a free name."""
        self.module.regions[0].blocks[0].append(function.operation)
        return ir.StringAttr(self.symbols.insert(function.operation)).value


class LegalizeBuilder:
    """Handed to a rule together with the operator: makes prim functions and calls of them, in place of the operator."""

    def __init__(self, op: Any, operands: Sequence[Any], ip: Any, prims: PrimFunctions, key: Any):
        self.op = op
        self.ip = ip
        self.loc = op.operation.location
        self._prims = prims
        self._key = key
        self._calls = 0
        # Inside a conversion the operator still shows the values from before it; these are the current ones.
        self._current = dict(zip(list(op.operation.operands), operands, strict=True))

    def value(self, value: Any) -> Any:
        """The current value of an operand of the operator."""
        return self._current.get(value, value)

    def call_prim(self, body: Body, *values: Any, name: str | None = None) -> Any:
        """Call a prim function that `body` builds.

        `body(p, *tensors)` gets the compute builder and one tensor for each value that is not None (None stays None),
        and returns the output tensor, or a tuple of them. It must depend on nothing but the operator's attributes and
        the types of the values: for equal ones it is run once, and the function shared.
        """
        current = [None if v is None else self.value(v) for v in values]
        given = [v for v in current if v is not None]
        types = [_tensor_type(v) for v in given]
        key = (self._key, self._calls, tuple(types), tuple(v is None for v in current))
        self._calls += 1
        if key not in self._prims.known:
            self._prims.known[key] = self._build(body, current, types, name)
        symbol, outputs = self._prims.known[key]
        with self.ip, self.loc:
            made = CallTir.build(given, result_types=outputs, callee=symbol).operation.results
        return made[0] if len(made) == 1 else tuple(made)

    def emit(self, operator: Any, *values: Any, **attributes: Any) -> Any:
        """Make another relax operator; it is legalized in turn."""
        with self.ip, self.loc:
            return operator.make(*(None if v is None else self.value(v) for v in values), **attributes)

    def _build(self, body: Body, values: list[Any], types: list[TensorType], name: str | None) -> tuple[str, list[Any]]:
        base = name or self.op.operation.name.split(".")[-1]
        prim = PrimBuilder(base, types, self.loc)
        tensors = iter(prim.inputs)
        made = body(prim, *(None if v is None else next(tensors) for v in values))
        outputs: tuple[TensorExpr, ...] = made if isinstance(made, tuple) else (made,)
        function = prim.finish(*outputs)
        return self._prims.insert(function), [output.type for output in outputs]


def _tensor_type(value: Any) -> TensorType:
    found = TensorType.from_mlir(value.type)
    if found is None:
        raise TypeError(f"a prim function takes tensors, got {value.type}")
    return found
