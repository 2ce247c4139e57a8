"""Requirements of a planned function on run-time sizes, so that its computations on them cannot overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.buffers import workspace_of
from mirlo.dialects.tir.extents import extents_of
from mirlo.passes.locations import names_of
from mirlo.passes.memory.extents import MAX_BYTES, MAX_ITERATIONS, NonnegativeDim, SizeProduct, SizeProducts
from mirlo.passes.memory.storage_assignment import REQUIRE
from mirlo.passes.memory.symbols import FunctionSymbols, SizeCheck
from mirlo.passes.memory.timeline import Timeline, TimelineBlock, is_tensor


class Requirements:
    """Collector of the products and the dims of a function, and of the kernels that it calls."""

    def __init__(
        self, timeline: Timeline, symbols: FunctionSymbols, callee: Callable[[ir.Operation], ir.OpView]
    ) -> None:
        self.symbols = symbols
        self.callee = callee
        self.products = SizeProducts(symbols.bound_by)
        self._dims: dict[str, tuple[NonnegativeDim, bool]] = {}
        self._limits: dict[str, set[str]] = {}
        for name in symbols.solved:
            self._require_nonnegative(D.symbol(name), f"the dim '{name}' of an input is negative", True)
        for value in timeline.body.arguments:
            self._tensor(value, "an input", False)
        self._visit(timeline.body, True)

    def settle(self) -> list[Dim]:
        """Add the requirements to the symbols; return the dims whose values the run time shows in errors."""
        symbols, shown = self.symbols, list[Dim]()
        late: list[SizeProduct | NonnegativeDim] = []
        for each, always in self._dims.values():
            if not symbols.is_early(each.dim):
                late.append(each)
            elif always:
                symbols.checks.append(SizeCheck(0, each.dim, each.text, False, tuple(sorted(each.symbols))))
        extents = self.products.required()
        symbols.extents = [extent for extent in extents if extent.symbols <= symbols.early]
        late += [extent for extent in extents if not extent.symbols <= symbols.early]
        shown_texts: list[SizeProduct | NonnegativeDim] = [*symbols.extents, *late]
        for shown_text in shown_texts:
            symbols.text_number(shown_text.text, shown_text.symbols)
        for text, names in self._limits.items():
            symbols.text_number(text, names)
        needed = [*(need.symbols for need in late), *self._limits.values()]
        shown = [D.symbol(name) for names in needed for name in sorted(names) if name in symbols.bounds]
        symbols.late = late
        return shown

    def _visit(self, body: TimelineBlock, always: bool) -> None:
        for step in body.steps:
            op = step.op
            names = ", ".join(names_of(op.location)) or op.name
            for value in op.results:
                self._tensor(value, names, always)
            if op.name == REQUIRE:
                self._require(op.opview, always)
            for dims in extents_of(op):
                self.products.add(dims, 1, MAX_BYTES, f"{names}: a tensor of {_joined(dims)} bytes is too large")
            if op.name == "relax.call_tir":
                callee = self.callee(op)
                self.products.add_dim(workspace_of(callee), f"{names}: its scratch memory is too large", MAX_BYTES)
                for dims in extents_of(callee.operation):
                    text = f"{names}: a computation of {_joined(dims)} elements is too large"
                    self.products.add(dims, 1, MAX_ITERATIONS, text)
            for nested in step.bodies:
                for argument in nested.arguments:
                    self._tensor(argument, names, False)
                self._visit(nested, False)

    def _require(self, op: ir.OpView, always: bool) -> None:
        """Check the dims of an operation before the call if they are known there, or else show them where it fails."""
        for low, high in op.limits:
            names = D.symbols_of(low) | D.symbols_of(high)
            if always and self.symbols.is_early(low) and self.symbols.is_early(high):
                self.symbols.checks.append(SizeCheck(low, high, op.what, False, tuple(sorted(names))))
            else:
                self._limits.setdefault(op.what, set()).update(names)

    def _tensor(self, value: ir.Value, names: str, always: bool) -> None:
        """Require that a tensor fits in memory; `always`, for one that is created in every call."""
        tensor = TensorType.from_mlir(value.type) if is_tensor(value) else None
        if tensor is None or D.UNKNOWN in tensor.shape or all(isinstance(dim, int) for dim in tensor.shape):
            return
        self.products.add(tensor.shape, tensor.dtype.bytes, MAX_BYTES, f"{names}: {tensor} is larger than any memory")
        for dim in tensor.shape:
            if not isinstance(dim, int) and not D.is_nonnegative(dim):
                self._require_nonnegative(dim, f"{names}: a dim of {tensor} is negative", always)

    def _require_nonnegative(self, dim: Dim, text: str, always: bool) -> None:
        known = self._dims.get(str(dim))
        if known is None or (always and not known[1]):
            self._dims[str(dim)] = NonnegativeDim(dim, text), always


def _joined(dims: Sequence[Dim]) -> str:
    return " x ".join(map(str, dims))
