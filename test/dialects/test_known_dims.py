"""Dims of tensor types are read once for each type of a context."""

from __future__ import annotations

import gc
import weakref

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType, dims_of


def test_types_of_contexts_that_come_and_go() -> None:
    """Memory of types is used again for those of the next context."""
    for number in range(30):
        context = make_context()
        with context, ir.Location.unknown():
            kinds = [TensorType.of([f"n{number}_{i}", i, "2*batch"], "f32") for i in range(20)]
            types = [kind.to_mlir() for kind in kinds]
            assert len({hash(each) for each in types}) == len(types)
            for _ in range(2):
                assert [TensorType.from_mlir(each) for each in types] == kinds
                assert [dims_of(each) for each in types] == [kind.shape for kind in kinds]


def test_contexts_are_freed() -> None:
    context = make_context()
    with context, ir.Location.unknown():
        assert str(dims_of(TensorType.of(["n", 3], "f32").to_mlir())[0]) == "n"
    gone = weakref.ref(context)
    del context
    gc.collect()
    assert gone() is None


def test_equal_types_have_one_hash() -> None:
    with make_context(), ir.Location.unknown():
        kind = TensorType.of(["n", 3], "f32")
        assert hash(kind.to_mlir()) == hash(kind.to_mlir())
        vector = ir.VectorType.get([4], ir.F32Type.get())
        assert dims_of(vector) == (4,)
