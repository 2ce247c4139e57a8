"""`Schedule`: each primitive changes the loops and not the result; primitives that cannot be applied say why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo import R, Schedule, T
from mirlo.driver.models import open_model
from mirlo.extend.ops import TensorType
from mirlo.extend.rules import decline
from mirlo.extend.schedules import ScheduleError, tensor_intrin
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.primitives.trace import Trace

M, N, K = 20, 24, 16


@mirlo.prim_func
def product(a: T.Buffer[(M, K), T.f32], b: T.Buffer[(K, N), T.f32], c: T.Out[(M, N), T.f32]):
    scaled = T.alloc((M, K), T.f32)
    summed = T.alloc((M, N), T.f32)
    for i, k in T.grid(M, K):
        with T.block("scale"):
            vi, vk = T.axes("SS", i, k)
            scaled[vi, vk] = a[vi, vk] * 2.0
    for i, j, k in T.grid(M, N, K):
        with T.block("matmul"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                summed[vi, vj] = 1.0
            summed[vi, vj] += scaled[vi, vk] * b[vk, vj]
    for i, j in T.grid(M, N):
        with T.block("clip"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = T.max(summed[vi, vj], 0.0)


@mirlo.script
def model(a: R.Tensor[(M, K), R.f32], b: R.Tensor[(K, N), R.f32]):
    return R.call_tir(product, a, b)


TYPES = (TensorType.of((M, K), "f32"), TensorType.of((K, N), "f32"))
PLAIN = "builtin.module(schedule,lower-loops,lower-intrinsics,plan-memory)"


def run(schedule, **options):
    """Return the result of the model with this schedule, and the expected one."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)
    found = mirlo.compile(model, pipeline=PLAIN, schedules={"product": schedule}, cache=False, **options)(a, b)
    np.testing.assert_allclose(found, np.maximum(2 * a @ b + 1, 0), rtol=1e-5, atol=1e-5)


def split_and_reorder(s):
    i, j, k = s.loops("matmul")
    io, ii = s.split(i, (None, 8))
    jo, jm, ji = s.split(j, (2, None, 4))
    s.reorder(jo, io, k, jm, ii, ji)
    s.unroll(jm)
    s.vectorize(ji)


def fuse(s):
    i, j, k = s.loops("matmul")
    s.split(s.fuse(i, j), (None, 7))
    s.parallel(s.fuse(*s.loops("clip")))


def decompose(s):
    i, j, k = s.loops("matmul")
    ko, ki = s.split(k, (None, 5))
    s.reorder(i, ko, j, ki)
    start = s.decompose_reduction("matmul", ko)
    s.vectorize(s.loops(start)[-1])


def producer_inside(s):
    i, j, k = s.loops("matmul")
    io, ii = s.split(i, (None, 6))
    s.compute_at("scale", io)
    assert s.loops("scale")[0] == io and s.extent(s.loops("scale")[1]) == 6


def consumer_inside(s):
    i, j, k = s.loops("matmul")
    io, jo, ii, ji = s.tile((i, j), (8, 16))
    s.reverse_compute_at("clip", jo)
    assert s.loops("clip")[:2] == [io, jo]


def inlined(s):
    s.compute_inline("scale")
    assert s.blocks() == ["matmul", "clip"]


def packed_and_tiled(s):
    i, j, k = s.loops("matmul")
    jo, io, ji, ii = s.tile((j, i), (8, 5))
    s.reorder(jo, io, k, ii, ji)
    panel = s.cache_read("matmul", "x1")
    s.pack("x1_copy", order=(1, 0), tiles=((1, 8),))
    s.compute_at(panel, jo)
    out = s.cache_write("matmul", "local")
    s.reverse_compute_at(out, io)
    s.decompose_reduction("matmul", k)
    s.unroll(ii)
    s.vectorize(ji)
    s.parallel(jo)


WAYS = [split_and_reorder, fuse, decompose, producer_inside, consumer_inside, inlined, packed_and_tiled]


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_primitive_changes_the_loops_and_not_the_result(way):
    run(way)


@pytest.mark.parametrize("way", [fuse, packed_and_tiled], ids=lambda way: way.__name__)
def test_threads_have_buffers_of_their_own(way):
    pipeline = PLAIN.replace("plan-memory", "plan-memory,outline-parallel{threads=2 work=1}")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((M, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)
    f = mirlo.compile(model, pipeline=pipeline, schedules={"product": way}, threads=2, cache=False)
    for _ in range(20):
        np.testing.assert_allclose(f(a, b), np.maximum(2 * a @ b + 1, 0), rtol=1e-5, atol=1e-5)


def test_a_schedule_is_printed_saved_and_said_again(tmp_path: Path):
    s = Schedule.of(product, *TYPES)
    packed_and_tiled(s)
    s.save(tmp_path / "product.json")
    again = Schedule.of(product, *TYPES).replay(tmp_path / "product.json")
    assert str(again) == str(s) and str(again.trace) == str(s.trace)
    assert "for matmul_j_1 in 8 vectorized:" in str(s)
    scope = {}
    exec(str(s.trace), scope)
    from_text = Schedule.of(product, *TYPES).replay(scope["schedule"])
    assert str(from_text) == str(s)
    run(tmp_path / "product.json")
    run(s)


@pytest.mark.sample(0)
def test_random_primitives_never_change_the_result():
    """Primitives at random: those that cannot be applied are refused, the others leave the result as it is."""
    rng = np.random.default_rng(1)
    applied = 0
    for _ in range(12):
        s = Schedule.of(product, *TYPES)
        for _ in range(14):
            try:
                _random_primitive(s, rng)
            except ScheduleError:
                continue
        applied += len(s.trace.calls)
        run(s)
    assert applied > 60


def _random_primitive(s, rng):
    block = str(rng.choice(s.blocks()))
    loops = s.loops(block)
    if not loops:
        return
    loop, other = str(rng.choice(loops)), str(rng.choice(loops))
    anywhere = str(rng.choice([name for each in s.blocks() for name in s.loops(each)]))
    primitives = (
        lambda: s.split(loop, (None, int(rng.integers(2, 7)))),
        lambda: s.fuse(loop, other),
        lambda: s.reorder(loop, other),
        lambda: s.vectorize(loops[-1]),
        lambda: s.unroll(loop) if s.extent(loop) <= 8 else None,
        lambda: s.parallel(loop),
        lambda: s.compute_at(block, anywhere),
        lambda: s.reverse_compute_at(block, anywhere),
        lambda: s.compute_inline(block) if rng.random() < 0.2 else None,
        lambda: s.reads(block) and s.cache_read(block, str(rng.choice(s.reads(block))), str(rng.choice(["", "local"]))),
        lambda: s.cache_write(block, str(rng.choice(["", "local"]))),
        lambda: s.decompose_reduction(block, loop),
    )
    primitives[int(rng.integers(len(primitives)))]()


@mirlo.prim_func
def row_means(a: T.Buffer[(4,), T.f32], b: T.Buffer[(4, 8), T.f32], c: T.Out[(8,), T.f32]):
    for j, k in T.grid(8, 4):
        with T.block("row"):
            vj, vk = T.axes("SR", j, k)
            with T.init():
                c[vj] = 0.0
            c[vj] += a[vk] * b[vk, vj]


@mirlo.prim_func(buffers=True)
def row_does(a: T.Buffer[(4,), T.f32], b: T.Buffer[(4, 8), T.f32], c: T.Out[(8,), T.f32]):
    for k in T.unrolled(4):
        for j in T.vectorized(8):
            c[j] += a[k] * b[k, j]


tensor_intrin("test.row_4x8", row_means, row_does)


def tensorized(s):
    i, j, k = s.loops("matmul")
    jo, ji = s.split(j, (None, 8))
    ko, ki = s.split(k, (None, 4))
    s.reorder(i, jo, ko, ji, ki)
    s.decompose_reduction("matmul", ko)
    s.tensorize(ji, "test.row_4x8")
    assert "by test.row_4x8" in str(s)


def test_an_intrinsic_takes_the_place_of_loops():
    run(tensorized)


ERRORS = {
    "there is no block 'matml'; did you mean 'matmul'?": lambda s: s.loops("matml"),
    "there is no loop 'matmul_z'": lambda s: s.split("matmul_z", (2, None)),
    "at most one of them None, found [None, None]": lambda s: s.split("matmul_i", (None, None)),
    "2 * 3 is less than its 20": lambda s: s.split("matmul_i", (2, 3)),
    "'matmul_k' is not the only thing in 'matmul_i'": lambda s: s.fuse("matmul_i", "matmul_k"),
    "'matmul_k' is a loop of the reduction 'matmul'": lambda s: s.parallel("matmul_k"),
    "'matmul_i' is parallel already": lambda s: (s.parallel("matmul_i"), s.vectorize("matmul_i")),
    "'clip' is a result of the function": lambda s: s.compute_inline("clip"),
    "'matmul' is a reduction": lambda s: s.compute_inline("matmul"),
    "'clip' reads 'matmul' outside of 'matmul_i'": lambda s: s.compute_at("matmul", "matmul_i"),
    "'matmul' is not complete after an iteration of 'matmul_k'": lambda s: (
        s.reorder("matmul_k", "matmul_i"), s.reverse_compute_at("clip", "matmul_k"),
    ),
    "'matmul_k', of the reduction, is around 'matmul_j'": lambda s: (
        s.reorder("matmul_k", "matmul_j"), s.decompose_reduction("matmul", "matmul_j"),
    ),
    "storage_align: 'x0' is a parameter; align a copy": lambda s: s.storage_align("x0", 0, 8),
    "storage_align: expected dim 0 of": lambda s: s.storage_align(s.cache_read("matmul", "x1"), 1, 8),
    "storage_align: expected a factor of 1 or more and an offset below it, found 8 and 8": lambda s: (
        s.storage_align(s.cache_read("matmul", "x1"), 0, 8, 8)
    ),
    "storage_align: expected two dims without tiles, whose rows are": lambda s: (
        s.pack(s.cache_read("matmul", "x1"), tiles=((0, 4),)), s.storage_align("x1_copy", 0, 8),
    ),
    "pack: the rows of 'x1_copy' are padded": lambda s: (
        s.storage_align(s.cache_read("matmul", "x1"), 0, 8), s.pack("x1_copy", (1, 0)),
    ),
    "there is no intrinsic 'test.row'; did you mean 'test.row_4x8'?": lambda s: s.tensorize("clip_j", "test.row"),
    "split: there is no loop 'nothing'; there are scale_i, scale_j, matmul_i": lambda s: s.split("nothing", (None, 4)),
    "split of 'matmul_i': expected two factors or more, from 1 up, at most one of them None, found": lambda s: (
        s.split("matmul_i", (None, 0))
    ),
    "split: expected a list of integers and None for 'factors', found (None, 2.0)": lambda s: (
        s.split("matmul_i", (None, 2.0))
    ),
    "split: expected a list of integers and None for 'factors', found 4": lambda s: s.split("matmul_i", 4),
    "split: expected a name for 'loop', found 3": lambda s: s.split(3, (None, 4)),
    "split: missing a required argument: 'factors'; expected split(loop, factors, tail='mask', align=''": lambda s: (
        s.split("matmul_i")
    ),
    "split of 'matmul_i': 1180591620717411303424 iterations, expected at most": lambda s: (
        s.split("matmul_i", (None, 2**70))
    ),
    "fuse: 1099511627776000 iterations, expected at most": lambda s: (
        s.fuse(s.split("scale_i", (None, 2**30))[1], s.split("scale_j", (1024000, None))[0])
    ),
    "fuse: expected each loop once, found matmul_i, matmul_i": lambda s: s.fuse("matmul_i", "matmul_i"),
    "reorder: expected a name for 'names', found ['matmul_i', 'matmul_j']": lambda s: (
        s.reorder(["matmul_i", "matmul_j"])
    ),
    "unroll: 'matmul_i_1' has 257 iterations, expected at most 256; split it": lambda s: (
        s.unroll(s.split("matmul_i", (None, 257))[1])
    ),
    "pack: expected a list of pairs of integers for 'tiles', found (0, 4)": lambda s: s.pack("matmul", tiles=(0, 4)),
    "pack: expected tiles of at most 1099511627776 elements": lambda s: s.pack("matmul", tiles=((0, 2**62),)),
    "storage_align: expected a factor of at most 1099511627776, found": lambda s: s.storage_align("matmul", 0, 2**62),
    "cache_read: expected a name for 'scope', found 3": lambda s: s.cache_read("matmul", "x1", 3),
    "tensorize: expected a name for 'intrinsic', found 3": lambda s: s.tensorize("matmul_i", 3),
    "apply_rule: expected a list of names for 'blocks', found 'matmul'": lambda s: s.apply_rule("rows", "matmul"),
    "the loops are [24], 'test.row_4x8' computes [8, 4]": lambda s: s.tensorize("clip_j", "test.row_4x8"),
}  # fmt: skip


@pytest.mark.parametrize("message", ERRORS)
def test_a_primitive_that_cannot_be_applied_says_why(message):
    with pytest.raises(ScheduleError) as caught:
        ERRORS[message](Schedule.of(product, *TYPES))
    assert message in str(caught.value)


def test_an_error_in_a_compilation_names_the_function():
    with pytest.raises(mirlo.MirloError, match="the schedule given for '@product': unroll: there is no loop 'nothing'"):
        run(lambda s: s.unroll("nothing"))


def declining(s):
    return decline("too small", rows=4)


def raising(s):
    raise KeyError("rows")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (raising, r"the schedule given for '@product': 'raising' raised KeyError: 'rows' \(at .*primitives.py:\d+"),
        (lambda: None, "expected a function of one argument, a Schedule, found '<lambda>': too many positional"),
        (lambda s, size: None, "expected a function of one argument, a Schedule, found '<lambda>': missing a required"),
        (
            declining,
            r"for '@product': 'declining' declines: too small \(rows=4\)\. A function of primitives applies them",
        ),
        (lambda s: s.emit(), "for '@product': emit: the compilation emits the loops"),
        (3, "the schedule given for '@product': expected a Schedule, its trace, a file of one, or a function"),
        ([], "expected a Schedule, its trace, a file of one, or a function that takes a Schedule, found \\[\\]"),
        (None, "its trace, a file of one, or a function for 'product', found \\{'product': None\\}"),
    ],
)
def test_what_is_given_for_a_schedule_and_is_none(given, message):
    with pytest.raises((mirlo.MirloError, ValueError), match=message):
        mirlo.compile(model, schedules={"product": given}, cache=False)


@pytest.mark.parametrize("schedules", [3, "product", [], {3: "product.json"}])
def test_schedules_are_given_by_the_names_of_functions(schedules):
    with pytest.raises(ValueError, match="^schedules: expected "):
        mirlo.compile(model, schedules=schedules, cache=False)


def test_integers_of_numpy_are_saved(tmp_path: Path):
    s = Schedule.of(product, *TYPES)
    s.split("matmul_i", [None, np.int64(4)])
    s.save(tmp_path / "s.json")
    assert str(Schedule.of(product, *TYPES).replay(tmp_path / "s.json")) == str(s)


def test_memory_that_a_cpu_does_not_have_names_the_function():
    with pytest.raises(mirlo.MirloError, match="'@product': the buffer is in memory .* the scopes are 'local'"):
        mirlo.compile(model, schedules={"product": lambda s: s.set_scope("matmul", "scratch")}, cache=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a saved schedule"),
        ("[" * 100_000, "is not a saved schedule"),
        ('{"version": 9}', "version 1"),
        ('{"version": 1, "primitives": [["jump"]]}', "no primitive 'jump'"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str, message: str):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ScheduleError, match=message):
        Schedule.of(product, *TYPES).replay(tmp_path / "s.json")


def test_a_file_written_by_hand_may_tile():
    s = Schedule.of(product, *TYPES)
    s.replay(Trace.from_json({"version": 1, "primitives": [["tile", ["matmul_i", "matmul_j"], [4, 8]]]}))
    assert s.loops("matmul") == ["matmul_i_0", "matmul_j_0", "matmul_i_1", "matmul_j_1", "matmul_k"]


def test_traces_of_earlier_versions_are_read():
    former = Trace.from_json({"version": 1, "words": [["unroll", "matmul_k"]]})
    assert former.as_json() == {"version": 1, "primitives": [["unroll", "matmul_k"]]}
    with pytest.raises(
        ScheduleError, match=r"expected a schedule of version 1, \{'version': 1, 'primitives': \[...\]\}"
    ):
        Trace.from_json({"version": 1, "words": 3})


def test_primitives_with_wrong_arguments_in_a_file_are_an_error():
    with pytest.raises(ScheduleError, match="unroll: missing a required argument: 'loop'; expected unroll"):
        Schedule.of(product, *TYPES).replay(Trace.from_json({"version": 1, "primitives": [["unroll"]]}))


@mirlo.script
def row_model(a: R.Tensor[(4,), R.f32], b: R.Tensor[(4, 8), R.f32]):
    return R.call_tir(row_does, a, b)


def test_primitives_for_loops_that_are_no_blocks_are_an_error():
    with pytest.raises(mirlo.MirloError, match="a schedule is given for '@row_does', which is not made of blocks"):
        mirlo.compile(row_model, schedules={"row_does": lambda s: None}, cache=False)


def test_loops_that_are_no_blocks_have_no_primitives():
    with pytest.raises(ScheduleError, match="'row_does' is not made of blocks"):
        Schedule.of(row_does, TensorType.of((4,), "f32"), TensorType.of((4, 8), "f32"))


def test_scratch_memory_that_vectors_use_is_private_to_threads():
    """No thread gets a view of memory that others write."""
    opened = open_model(model)
    opened.session.options["schedules"] = {"product": packed_and_tiled}
    with opened.module.context:
        pipeline = PLAIN.replace("plan-memory", "plan-memory,outline-parallel{threads=2 work=1}")
        Pipeline(pipeline).run(opened.module, opened.session)
    text = str(opened.module)
    regions = [part for part in text.split("func.func") if part.startswith(" private @product_region")]
    assert any(part.count("memref.alloca") == 2 for part in regions), regions


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_the_pass_schedule_names_what_is_wrong_with_primitives(target):
    def primitives(s):
        s.vectorize("clip_k")

    with pytest.raises(mirlo.MirloError, match=r"_primitives.py:\d+:1: pass 'schedule' failed: .* no loop 'clip_k'"):
        mirlo.compile(model, target, schedules={"product": primitives}, cache=False)


@mirlo.prim_func
def scaled_floats(a: T.Buffer[(53,), T.f32], b: T.Buffer[(53,), T.f32], c: T.Out[(53,), T.f32]):
    for i in T.grid(53):
        with T.block("element"):
            vi = T.axes("S", i)
            c[vi] = a[vi] * b[0] + a[vi]


@mirlo.prim_func
def scaled_bytes(a: T.Buffer[(53,), T.u8], b: T.Buffer[(53,), T.u8], c: T.Out[(53,), T.u8]):
    for i in T.grid(53):
        with T.block("element"):
            vi = T.axes("S", i)
            c[vi] = a[vi] * b[0] + a[vi]


@mirlo.prim_func
def quotients(a: T.Buffer[(53,), T.i32], b: T.Buffer[(53,), T.i32], c: T.Out[(53,), T.i32]):
    for i in T.grid(53):
        with T.block("element"):
            vi = T.axes("S", i)
            c[vi] = a[vi] // b[vi]


@mirlo.script
def elements_model(
    x: R.Tensor[(53,), R.f32],
    y: R.Tensor[(53,), R.f32],
    u: R.Tensor[(53,), R.u8],
    v: R.Tensor[(53,), R.u8],
    m: R.Tensor[(53,), R.i32],
    n: R.Tensor[(53,), R.i32],
):
    return R.call_tir(scaled_floats, x, y), R.call_tir(scaled_bytes, u, v), R.call_tir(quotients, m, n)


@pytest.mark.parametrize("tail", ["mask", "peel"])
@pytest.mark.parametrize("seed", range(3))
def test_a_tail_of_any_length_computes_each_element_once(seed, tail):
    """Tails of static sizes are vectors of fewer lanes, with a mask where they are no power of two, or one scalar."""
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(1, 9, 53).astype(kind) for kind in ("f4", "f4", "u1", "u1", "i4", "i4")]
    x, y, u, v, m, n = arrays

    def primitives(s):
        vectors, lane = s.split(s.loops("element")[0], (None, int(rng.integers(2, 53))), tail=tail)
        s.vectorize(lane)
        if rng.random() < 0.5:
            s.unroll(vectors)

    schedules = dict.fromkeys(("scaled_floats", "scaled_bytes", "quotients"), primitives)
    found = mirlo.compile(elements_model, schedules=schedules, cache=False)(*arrays)
    for one, other in zip(found, (x * y[0] + x, u * v[0] + u, m // n), strict=True):
        np.testing.assert_array_equal(one, other)


@mirlo.prim_func
def doubled(a: T.Buffer[(48,), T.f32], f: T.Out[(48,), T.f32]):
    b = T.alloc((48,), T.f32)
    c = T.alloc((48,), T.f32)
    d = T.alloc((48,), T.f32)
    for i in T.grid(48):
        with T.block("first"):
            vi = T.axes("S", i)
            b[vi] = T.exp(a[vi])
    for i in T.grid(48):
        with T.block("second"):
            vi = T.axes("S", i)
            c[vi] = b[vi] + a[vi]
    for i in T.grid(48):
        with T.block("third"):
            vi = T.axes("S", i)
            d[vi] = c[vi] + b[vi]
    for i in T.grid(48):
        with T.block("last"):
            vi = T.axes("S", i)
            f[vi] = d[vi] + c[47 - vi] + c[vi]


@pytest.mark.parametrize("lanes", [1, 16])
def test_an_element_of_an_inlined_block_is_computed_once(lanes):
    """However many blocks read it: otherwise a chain of blocks that each read two would have a power of two of them."""
    s = Schedule.of(doubled, TensorType.of((48,), "f32"))
    for block in ("first", "second", "third"):
        s.compute_inline(block)
    if lanes > 1:
        s.vectorize(s.split("last_i", (None, lanes))[1])
    text = str(s.emit())
    assert text.count('"tir.exp"') == 2, "of an element, and of the one that is mirrored"


@mirlo.prim_func
def gram(x: T.Buffer[(M, K), T.f32], c: T.Out[(M // 2, M // 2), T.f32]):
    for i, j, k in T.grid(M // 2, M // 2, K):
        with T.block("gram"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                c[vi, vj] = 0.0
            c[vi, vj] += x[vi, vk] * x[vj + M // 2, vk]


@mirlo.script
def products_of_rows(x: R.Tensor[(M, K), R.f32]):
    return R.call_tir(gram, x)


@pytest.mark.parametrize(("operand", "reads"), [(0, ["x_copy", "x"]), (1, ["x", "x_copy"]), ("x", 2 * ["x_copy"])])
def test_an_index_copies_what_one_operand_reads(operand: int | str, reads: list[str]) -> None:
    """Queries and keys may be parts of one buffer: a copy of the keys of a head has nothing of the queries."""

    def arrange(s: Schedule) -> None:
        copy = s.cache_read("gram", operand)
        assert s.reads("gram") == reads
        s.compute_at(copy, s.loops("gram")[1])
        rows, _ = (s.extent(loop) for loop in s.loops(copy) if loop not in s.loops("gram"))
        assert (rows == 1) == (operand != "x")

    x = np.random.default_rng(0).standard_normal((M, K), dtype=np.float32)
    found = mirlo.compile(products_of_rows, pipeline=PLAIN, schedules={"gram": arrange}, cache=False)(x)
    np.testing.assert_allclose(found, x[: M // 2] @ x[M // 2 :].T, rtol=1e-5, atol=1e-5)
    with pytest.raises(ScheduleError, match="cache_read"):
        Schedule.of(gram, TYPES[0]).cache_read("gram", 2)
