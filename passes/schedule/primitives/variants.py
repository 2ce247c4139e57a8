"""Loops of their own for one value of some sizes: `specialize`, and the code that chooses between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.core.value import compare, index
from mirlo.dialects.tir.buffers import INPLACE
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.specialize import copy_with_dims
from mirlo.dialects.tir.view import PrimView
from mirlo.passes.schedule.buffers import BufferFunction, TensorBuffers
from mirlo.passes.schedule.loops import either
from mirlo.passes.schedule.primitives.tree import Root, ScheduleError
from mirlo.passes.schedule.primitives.tree_passes import run_passes
from mirlo.runtime.errors import nearest
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class SizeVariant:
    """The loops of a function for one value of each of some sizes."""

    sizes: tuple[str, ...]
    value: int
    root: Root


def view_with_sizes(view: PrimView, sizes: Sequence[str], value: int) -> PrimView:
    """Return a copy of a function in which each of some sizes has this value."""
    if not sizes:
        raise ScheduleError("specialize: expected the name of a size, or of several, found none")
    symbols = {symbol for tensor in view.arguments for dim in dims_of(tensor.type) for symbol in D.symbols_of(dim)}
    for size in sizes:
        if size not in symbols:
            hint = nearest(size, symbols) or f"; there are {', '.join(sorted(symbols)) or 'none'}"
            raise ScheduleError(f"specialize: the function has no size '{size}'{hint}")
    with view.op.context, view.op.location:
        return PrimView(copy_with_dims(view.op, dict.fromkeys(sizes, value)))


def emit_variants(
    function: BufferFunction,
    variants: Sequence[SizeVariant],
    loops: Callable[[Root, TensorBuffers], None],
    otherwise: Callable[[], None],
) -> None:
    """Emit a choice between the loops for values of sizes, and those for all other values; `loops` emits a tree."""
    if not variants:
        otherwise()
        return
    variant, *others = variants
    memory, view = TensorBuffers(function), variant.root.view
    outside = zip((*function.view.arguments, *function.view.returned), (*view.arguments, *view.returned), strict=True)
    for value, own in outside:
        memory.place(own, function.buffer(value))
    tests = [compare("eq", index(D.symbol(size)), index(variant.value)) for size in variant.sizes]
    has_values = reduce(lambda one, other: create("arith.andi", one.type, one, other), tests)
    either(has_values, lambda: loops(variant.root, memory), lambda: emit_variants(function, others, loops, otherwise))


def run_passes_of_variants(root: Root, variants: Sequence[SizeVariant]) -> None:
    """Run the passes over the trees of variants of a function; its results are in place if all of them permit that."""
    for variant in variants:
        run_passes(variant.root)
        if INPLACE not in variant.root.view.op.attributes and INPLACE in root.view.op.attributes:
            del root.view.op.attributes[INPLACE]
