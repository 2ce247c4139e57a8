"""Rules for some blocks of a function on GPUs, primitives for others, the target's own rules for the rest."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from devices import needs_vulkan
from schedules import scheduled
from staged_program import assert_staged, random_primitive, staged, staged_model

import mirlo
from mirlo import R, Schedule, T
from mirlo.extend.ops import TensorType
from mirlo.extend.schedules import ScheduleError
from mirlo.passes.schedule.primitives.trace import Trace
from mirlo.testing.ptx.driver import emulated

TARGETS = ["nvvm", pytest.param("spirv", marks=needs_vulkan())]


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with emulated("sm_80", races=True):
        yield


def bind(s: Schedule, block: str, threads: int = 8) -> None:
    """Compute each row of a block by a block of threads."""
    s.bind(s.split(f"{block}_j", (None, threads))[1], "threadIdx.x")
    s.bind(f"{block}_i", "blockIdx.x")


def by_parts(s: Schedule) -> None:
    s.apply_rule("threads", ["scale"])
    s.apply_rule("stages", ["product"])
    s.apply_rule("stages", ["total", "divide"])


def beside_loops(s: Schedule) -> None:
    """Give the product to a rule, and arrange the loops of the other blocks."""
    s.apply_rule("stages", ["product"])
    s.compute_at("total", s.loops("divide")[0])
    s.set_scope("total", "local")
    s.bind(s.split("total_j", (None, 8))[1], "threadIdx.x")
    bind(s, "divide")
    s.parallel("scale_i")


def shared_copy(s: Schedule) -> None:
    """Use shared memory in one kernel, next to the memory of rules."""
    copy = s.cache_read("divide", "product", "shared")
    s.compute_at(copy, "divide_i")
    s.bind(s.loops(copy)[-1], "threadIdx.x")
    s.bind("divide_i", "blockIdx.x")
    s.bind("divide_j", "threadIdx.x")


def the_last(s: Schedule) -> None:
    """Leave all other blocks to the rules of the target."""
    bind(s, "divide")


def the_first(s: Schedule) -> None:
    bind(s, "scale")


def in_the_middle(s: Schedule) -> None:
    s.bind("total_i", "blockIdx.x")
    s.bind("total_j", "threadIdx.x")


def inlined(s: Schedule) -> None:
    s.compute_inline("scale")
    bind(s, "divide")


def inlined_alone(s: Schedule) -> None:
    s.compute_inline("scale")


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    "primitives",
    [by_parts, beside_loops, shared_copy, the_last, the_first, in_the_middle, inlined, inlined_alone, lambda s: None],
)
@pytest.mark.parametrize("target", TARGETS)
def test_parts_have_rules_of_their_own(target: str, primitives: Callable[[Schedule], None]) -> None:
    """The recorded primitives name the rules of all other blocks, and make the same code again."""
    assert_staged(primitives, target)
    code, (record,) = scheduled(staged_model, {"staged": primitives}, target)
    given = [said.arguments[1] for said in record.trace if said.primitive == "apply_rule"]
    assert all(isinstance(blocks, tuple) for blocks in given)
    again, (repeated,) = scheduled(staged_model, {"staged": record.trace}, target)
    assert again == code and str(repeated.trace) == str(record.trace)
    assert "tir.target" not in code and "tir.given" not in code


def test_blocks_without_primitives_have_the_rules_of_the_target() -> None:
    _, (record,) = scheduled(staged_model, {"staged": the_last}, "nvvm")
    last = "    s.apply_rule('products', ['scale', 'product', 'total'])"
    assert str(record.trace).splitlines()[-1] == last


N = 1024


@mirlo.prim_func
def clipped(a: T.Buffer[(N, N), T.f32], b: T.Buffer[(N, N), T.f32], c: T.Out[(N, N), T.f32]):
    product = T.alloc((N, N), T.f32)
    for i, j, k in T.grid(N, N, N):
        with T.block("product"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                product[vi, vj] = 0.0
            product[vi, vj] += a[vi, vk] * b[vk, vj]
    for i, j in T.grid(N, N):
        with T.block("clip"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = T.min(product[vi, vj], 9.0)


@mirlo.script
def clipped_model(a: R.Tensor[(N, N), R.f32], b: R.Tensor[(N, N), R.f32]):
    return R.call_tir(clipped, a, b)


def test_rules_of_a_target_take_choices_for_parts() -> None:
    def primitives(s: Schedule, **choices: int) -> None:
        s.apply_rule("products", ["product"], **choices)
        bind(s, "clip", 256)

    _, (record,) = scheduled(clipped_model, {"clipped": primitives}, "nvvm")
    chosen = record.trace.calls[0].named
    assert chosen["way"] == 2 and chosen["tile"] != 1
    _, (record,) = scheduled(clipped_model, {"clipped": partial(primitives, way=2, tile=1)}, "nvvm")
    assert "s.apply_rule('products', ['product'], parts=1, tile=1, way=2)" in str(record.trace)
    with pytest.raises(mirlo.MirloError, match="=0 does not fit this function: 'products' takes"):
        scheduled(clipped_model, {"clipped": partial(primitives, way=0, tile=0)}, "nvvm")


PART_ERRORS: dict[str, Callable[[Schedule], object]] = {
    "rule 'contractoin'": lambda s: s.apply_rule("contractoin", ["product"]),
    "rule 'scalar_nest' does not schedule parts of a function; these do: ": lambda s: (
        s.apply_rule("scalar_nest", ["product"])
    ),
    "rule 'stages' declines: 'attention' declines blocks product: not two products and a softmax": lambda s: (
        s.apply_rule("attention", ["product"])
    ),
    "apply_rule: rule 'stages' schedules 'scale' already": lambda s: (
        s.apply_rule("stages", ["scale"]), s.apply_rule("threads", ["scale"]),
    ),
    "'total' is 'local' memory of the kernel of 'total', and 'divide' uses it in another one": lambda s: (
        s.set_scope("total", "local"), bind(s, "divide"), s.bind("total_i", "blockIdx.x"),
    ),
    "bind: no loop of 'total', 'divide' is bound to an axis of target": lambda s: (
        s.compute_at("total", "divide_i")
    ),
    "bind: no loop of 'total' is bound to an axis of target": lambda s: s.set_scope("total", "local"),
}  # fmt: skip


@pytest.mark.parametrize("message", PART_ERRORS)
@pytest.mark.parametrize("target", ["nvvm", "spirv"])
def test_parts_that_cannot_be_scheduled(target: str, message: str) -> None:
    with pytest.raises(mirlo.MirloError) as caught:
        mirlo.compile(staged_model, target, schedules={"staged": lambda s: PART_ERRORS[message](s) and None})
    assert "the schedule given for '@staged': " in str(caught.value) and message in str(caught.value)


RULES = {"scale": "threads", "product": "stages", "total": "stages", "divide": "threads"}


@pytest.mark.sample(16)
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("target", TARGETS)
def test_rules_and_primitives_in_random_order(target: str, seed: int) -> None:
    """Apply rules to some blocks, random primitives to others: the result stays, or an error says why not."""
    rng = np.random.default_rng(seed)
    while True:
        s = Schedule.of(staged, TensorType.of((9, 24), "f32"), TensorType.of((24, 40), "f32"))
        for _ in range(int(rng.integers(1, 6))):
            try:
                random_primitive(s, rng, RULES)
            except ScheduleError:
                continue
        for block in s.blocks():
            if rng.random() < 0.6 and s.loops(block):
                bind_random_loops(s, block, rng)
        try:
            assert_staged(Trace.from_json(json.loads(json.dumps(s.trace.as_json()))), target)
        except mirlo.MirloError as error:
            assert "the schedule given for '@staged'" in str(error), s.trace
            continue
        break


def bind_random_loops(s: Schedule, block: str, rng: np.random.Generator) -> None:
    try:
        loops = s.loops(block)
        if rng.random() < 0.3:
            s.parallel(loops[0])
            return
        s.bind(s.split(loops[-1], (None, int(rng.choice([4, 7, 32]))))[1], "threadIdx.x")
        s.bind(loops[0], "blockIdx.x")
    except ScheduleError:
        return


@pytest.mark.parametrize("target", ["spirv", "nvvm"])
def test_scalar_loops_are_declined(target: str) -> None:
    """The rule for all targets leaves kernels with loops to those of GPUs; it raises nothing."""
    with warnings.catch_warnings(), pytest.raises(mirlo.MirloError, match="one thread of a GPU would run all"):
        warnings.simplefilter("error")
        scheduled(clipped_model, {"clipped": lambda s: s.apply_rule("scalar_nest")}, target)
