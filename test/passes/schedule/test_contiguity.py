"""`contiguous_loops` and `memory_order`, compared with the addresses that the blocks access."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dynamic_programs import schedule_of

from mirlo import Schedule
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.schedules import ScheduleError

SHAPES = ((3, 4, 5), (3, 1, 5), (1, 4, 1), (3, 4, 1))
RANK = 3
LAYOUTS = [*itertools.permutations(range(RANK)), (0, 1), (0, 2), (1, 2), (0,), (1,), (2,), ()]
"""Which axes an operand has, and in which order; the others are broadcast."""


def block_text(shape: tuple[int, ...], operand: tuple[int, ...], result: tuple[int, ...], uses: int | None) -> str:
    """Return a function that copies an operand to a result, and may use the index of an axis."""

    def kind(axes: tuple[int, ...]) -> str:
        return f"tensor<{''.join(f'{shape[axis]}x' for axis in axes)}f32>"

    def access(axes: tuple[int, ...]) -> str:
        dims = ", ".join(f"d{axis}" for axis in range(RANK))
        return f"affine_map<({dims}) -> ({', '.join(f'd{axis}' for axis in axes)})>"

    spatial = ", ".join(['"spatial"'] * RANK)
    body = (
        ""
        if uses is None
        else f"""
        %i = arith.index_cast %d{uses} : index to i32
        %f = arith.sitofp %i : i32 to f32
    """
    )
    return f"""
    func.func private @f(%x: {kind(operand)}) -> {kind(result)} attributes {{tir.prim_func}} {{
      %0 = "tir.block"(%x) ({{
      ^bb0(%d0: index, %d1: index, %d2: index, %a: f32):
        {body}
        %v = arith.addf %a, {"%a" if uses is None else "%f"} : f32
        "tir.yield"(%v) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : (f32) -> ()
      }}) {{axes = [{spatial}], domain = [{", ".join(map(str, shape))}], init = [unit], maps = [{access(operand)},
        {access(result)}], name = "b",
        operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
        resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : ({kind(operand)}) -> {kind(result)}
      return %0 : {kind(result)}
    }}"""


def addresses(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """Return the position in memory that each iteration accesses."""
    dims = [shape[axis] for axis in axes]
    flat = np.arange(math.prod(dims)).reshape(dims)
    in_order = flat.transpose(np.argsort(axes)) if axes else flat
    return np.broadcast_to(in_order.reshape([n if axis in axes else 1 for axis, n in enumerate(shape)]), shape)


def are_one_loop(places: np.ndarray, count: int) -> bool:
    """Return whether the last loops access a place that has the same step from each iteration to the next."""
    steps = np.diff(places.reshape(*places.shape[: places.ndim - count], -1), axis=-1)
    return steps.size == 0 or bool((steps == steps.flat[0]).all())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_contiguous_loops_are_those_of_the_addresses(shape: tuple[int, ...]) -> None:
    texts = []
    for result in itertools.permutations(range(RANK)):
        for operand, uses in itertools.product(LAYOUTS, (None, 2)):
            texts.append((operand, result, uses))
    with make_context(), ir.Location.unknown():
        for operand, result, uses in texts:
            module = ir.Module.parse(block_text(shape, operand, result, uses))
            s = Schedule(module.body.operations[0], module)
            places = [addresses(shape, operand), addresses(shape, result)]
            if uses is not None:
                places.append(np.broadcast_to(np.arange(shape[uses]), shape))
            count = max(n for n in range(1, RANK + 1) if all(are_one_loop(place, n) for place in places))
            step = np.diff(places[1].reshape(*shape[: RANK - count], -1), axis=-1)
            names = s.loops("b")
            loops = s.contiguous_loops("b")
            assert loops == (names[RANK - count :] if (step == 1).all() else []), (operand, result, uses)
            assert [names.index(name) for name in s.memory_order("b")] == list(result), (operand, result, uses)
            if len(loops) > 1:
                fused = s.fuse(*loops)
                assert s.contiguous_loops("b")[-1] == fused, (operand, result, uses)  # without divisions


def test_dims_of_run_time() -> None:
    s = schedule_of("rows")
    assert s.contiguous_loops("result") == ["result_j"]  # it reads beyond an edge, and a total for each row
    assert s.contiguous_loops("transposed") == ["transposed_j"]
    s.reorder("transposed_j", "transposed_i")
    assert s.contiguous_loops("transposed") == []
    assert s.contiguous_loops("total") == ["total_j"]
    assert s.memory_order("transposed") == ["transposed_i", "transposed_j"]


def test_loops_that_primitives_arranged() -> None:
    s = schedule_of("product")
    assert s.contiguous_loops("scale") == ["scale_i", "scale_j"]
    assert s.memory_order("matmul") == ["matmul_i", "matmul_j", "matmul_k"]
    s.reorder("scale_j", "scale_i")
    assert s.contiguous_loops("scale") == []
    s.reorder(*s.memory_order("scale"))
    outer, inner = s.split(s.fuse(*s.contiguous_loops("scale")), (None, 8))
    assert s.contiguous_loops("scale") == [outer, inner]
    s.vectorize(inner)
    assert s.contiguous_loops("scale") == []


def test_names_of_blocks_are_checked() -> None:
    with pytest.raises(ScheduleError, match="there is no block 'scales'; did you mean 'scale'"):
        schedule_of("product").contiguous_loops("scales")
