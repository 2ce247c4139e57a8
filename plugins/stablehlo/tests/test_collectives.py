"""Collectives of StableHLO on ranks compute what numpy computes of the operands of all processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mirlo_ranks.testing import run_ranks
from mirlo_stablehlo.errors import StablehloImportError
from mirlo_stablehlo.importer import import_stablehlo

import mirlo
from mirlo.extend.target import PassError
from mirlo.testing.commands import run_command

RANKS, SHAPE = 4, (4, 8)
GROUPS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((0, 1, 2, 3),), ((3, 1, 0, 2),), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((3, 0), (1, 2)), ((0,), (1,), (2,), (3,)),
)  # fmt: skip
UNEQUAL = ((0, 2, 1), (3,))
FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
INTEGERS = {"i8": np.int8, "ui8": np.uint8, "i32": np.int32, "ui64": np.uint64}
ELEMENTS: dict[str, Any] = {**FLOATS, **INTEGERS, "i1": np.bool_}
Array = np.ndarray
Exchange = Callable[[list[Array]], list[Array]]
"""Takes the operands of a group, returns the result of each of its processes."""


@dataclass(frozen=True)
class Case:
    """An operation on %x, its result type, and its reference in numpy on the operands of all processes."""

    text: str
    result: str
    expected: Callable[[list[Array]], list[Array]]


def _grouped(groups: Sequence[Sequence[int]], exchange: Exchange) -> Callable[[list[Array]], list[Array]]:
    def expected(xs: list[Array]) -> list[Array]:
        results = list(xs)
        for group in groups:
            for rank, result in zip(group, exchange([xs[each] for each in group]), strict=True):
                results[rank] = result
        return results

    return expected


def _attributes(groups: Sequence[Sequence[int]], *others: str) -> str:
    width = max(map(len, groups))
    rows = [[*group, *[-1] * (width - len(group))] for group in groups]
    handle = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>"
    table = f"replica_groups = dense<{rows}> : tensor<{len(rows)}x{width}xi64>"
    return "{" + ", ".join([handle, table, *others]) + "}"


def _type(shape: Sequence[int], element: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def _region(body: str, element: str) -> str:
    return f"({{ ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):\n{body}\n }})"


def _reduction(name: str, element: str) -> str:
    scalar = f"tensor<{element}>"
    return _region(
        f"%c = stablehlo.{name} %a, %b : {scalar}\nstablehlo.return %c : {scalar}",
        element,
    )


COMBINATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
FLAT = "use_global_device_ids"


def _combined(name: str, xs: list[Array]) -> Array:
    total = xs[0].astype(np.float32) if xs[0].dtype.itemsize == 2 else xs[0]
    for each in xs[1:]:
        total = COMBINATIONS[name](total, each.astype(total.dtype))
    return total.astype(xs[0].dtype)


def _reductions(element: str, groups: Sequence[Sequence[int]]) -> list[Case]:
    names = [*COMBINATIONS] if element not in FLOATS else [*COMBINATIONS][:4]
    cases = []
    for i, name in enumerate(names):
        region, operand = _reduction(name, element), _type(SHAPE, element)
        attributes = _attributes(groups, FLAT)
        text = f'"stablehlo.all_reduce"(%x) {region} {attributes} : ({operand}) -> {operand}'
        cases.append(Case(text, operand, _grouped(groups, lambda own, name=name: [_combined(name, own)] * len(own))))
        size, axis = len(groups[0]), i % 2
        if any(len(group) != size for group in groups):
            continue
        part = _type([dim // size if at == axis else dim for at, dim in enumerate(SHAPE)], element)
        attributes = _attributes(groups, FLAT, f"scatter_dimension = {axis} : i64")
        text = f'"stablehlo.reduce_scatter"(%x) {region} {attributes} : ({operand}) -> {part}'
        exchange: Exchange = lambda own, name=name, axis=axis: np.split(_combined(name, own), len(own), axis)  # noqa: E731
        cases.append(Case(text, part, _grouped(groups, exchange)))
    return cases


def _moves(element: str, groups: Sequence[Sequence[int]]) -> list[Case]:
    operand, size, cases = _type(SHAPE, element), len(groups[0]), []
    for axis in (0, 1):
        whole = _type([dim * size if at == axis else dim for at, dim in enumerate(SHAPE)], element)
        attributes = _attributes(groups, FLAT, f"all_gather_dim = {axis} : i64")
        text = f'"stablehlo.all_gather"(%x) {attributes} : ({operand}) -> {whole}'
        gathered: Exchange = lambda own, axis=axis: [np.concatenate(own, axis)] * len(own)  # noqa: E731
        cases.append(Case(text, whole, _grouped(groups, gathered)))
        for concat in (0, 1):
            shape = list(SHAPE)
            shape[axis] //= size
            shape[concat] *= size
            axes = f"split_dimension = {axis} : i64, concat_dimension = {concat} : i64, split_count = {size} : i64"
            result = _type(shape, element)
            text = f'"stablehlo.all_to_all"(%x) {_attributes(groups, axes)} : ({operand}) -> {result}'

            def exchanged(own: list[Array], axis: int = axis, concat: int = concat) -> list[Array]:
                parts = [np.split(x, len(own), axis) for x in own]
                return [np.concatenate([each[at] for each in parts], concat) for at in range(len(own))]

            cases.append(Case(text, result, _grouped(groups, exchanged)))
    text = f'"stablehlo.collective_broadcast"(%x) {_attributes(groups)} : ({operand}) -> {operand}'
    cases.append(Case(text, operand, _grouped(groups, lambda own: [own[0]] * len(own))))
    return cases


def _permutations(element: str) -> list[Case]:
    operand, cases = _type(SHAPE, element), []
    for pairs in (((0, 1), (1, 2), (2, 3), (3, 0)), ((2, 1), (0, 2)), ((3, 3),)):
        handle = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>"
        table = f"source_target_pairs = dense<{[list(pair) for pair in pairs]}> : tensor<{len(pairs)}x2xi64>"
        text = f'"stablehlo.collective_permute"(%x) {{{handle}, {table}}} : ({operand}) -> {operand}'

        def expected(xs: list[Array], pairs: Sequence[tuple[int, int]] = pairs) -> list[Array]:
            sources = {target: source for source, target in pairs}
            return [xs[sources[r]] if r in sources else np.zeros_like(xs[r]) for r in range(RANKS)]

        cases.append(Case(text, operand, expected))
    number = "stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>"
    cases.append(Case(number, "tensor<i32>", lambda xs: [np.array(r, np.int32) for r in range(RANKS)]))
    return cases


def _program(cases: Sequence[Case], element: str, attributes: str = "mhlo.num_partitions = 4 : i32") -> str:
    lines = [f"%r{i} = {case.text}" for i, case in enumerate(cases)]
    names, types = ", ".join(f"%r{i}" for i in range(len(cases))), ", ".join(case.result for case in cases)
    body = "\n".join(['%id = "stablehlo.partition_id"() : () -> tensor<ui32>', *lines])
    return (
        f"module attributes {{{attributes}}} {{\nfunc.func @main(%x: {_type(SHAPE, element)}) -> ({types}) {{\n"
        f"{body}\nreturn {names} : {types}\n}}\n}}\n"
    )


def _operands(element: str, seed: int) -> list[Array]:
    random = np.random.default_rng(seed)
    low = 0 if element.startswith("ui") or element == "i1" else -3
    high = 2 if element == "i1" else 4
    return [random.integers(low, high, SHAPE).astype(ELEMENTS[element]) for _ in range(RANKS)]


def _compare(program: str, cases: Sequence[Case], xs: list[Array], folder: Path) -> None:
    path = folder / "program.mlir"
    path.write_text(program)
    model = mirlo.compile(path, ranks=RANKS, opt_level=0)
    results = run_ranks(lambda rank: list(model.executables[rank].run({"arg0": xs[rank]}).values()), RANKS)
    for number, case in enumerate(cases):
        for rank, expected in enumerate(case.expected(xs)):
            result = results[rank][number]
            assert result.dtype == expected.dtype and np.array_equal(result, expected), (case.text, rank)


@pytest.mark.sample(0)
@pytest.mark.parametrize("element", ELEMENTS)
def test_groups_of_all_kinds(element: str, tmp_path: Path) -> None:
    """All operations in one program: with groups, along axes, with known and other reductions."""
    cases = [*_permutations(element), *_reductions(element, UNEQUAL)[:4]]
    for groups in GROUPS:
        cases += [*_reductions(element, groups), *_moves(element, groups)]
    _compare(_program(cases, element), cases, _operands(element, len(element)), tmp_path)


def _channelless(text: str) -> str:
    return text.replace("channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, ", "")


def _reduce_of(groups: Sequence[Sequence[int]], *, flat: bool, channel: bool = True) -> str:
    attributes = _attributes(groups, *[FLAT] * flat)
    operand = _type(SHAPE, "i32")
    text = f'"stablehlo.all_reduce"(%x) {_reduction("add", "i32")} {attributes} : ({operand}) -> {operand}'
    return text if channel else _channelless(text)


def test_replicas_and_partitions(tmp_path: Path) -> None:
    """Groups are of replicas, of both, or of processes; a process is its replica's partition."""
    operand = _type(SHAPE, "i32")
    add: Exchange = lambda own: [_combined("add", own)] * len(own)  # noqa: E731
    permute = _permutations("i32")[0].text.replace("[[0, 1], [1, 2], [2, 3], [3, 0]]", "[[0, 1]]").replace("4x2", "1x2")
    cases = [
        Case(_reduce_of([[0, 1]], flat=False, channel=False), operand, _grouped([(0, 2), (1, 3)], add)),
        Case(_reduce_of([[0], [1]], flat=False), operand, _grouped([(0, 1), (2, 3)], add)),
        Case(_reduce_of([[0, 3], [1, 2]], flat=True), operand, _grouped([(0, 3), (1, 2)], add)),
        Case(_channelless(permute), operand, lambda xs: [np.zeros_like(xs[0])] * 2 + xs[:2]),
        Case(permute, operand, lambda xs: [np.zeros_like(xs[0]), xs[0], np.zeros_like(xs[0]), xs[2]]),
        Case("stablehlo.replica_id : tensor<ui32>", "tensor<ui32>", lambda xs: [np.uint32(r // 2) for r in range(4)]),
        Case("stablehlo.partition_id : tensor<ui32>", "tensor<ui32>", lambda xs: [np.uint32(r % 2) for r in range(4)]),
    ]  # fmt: skip
    program = _program(cases, "i32", "mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32")
    _compare(program, cases, _operands("i32", 0), tmp_path)


def test_a_reduction_without_an_operator(tmp_path: Path) -> None:
    """Regions without an operator are applied to the operands in the group's order, also in a loop."""
    operand = _type(SHAPE, "i32")
    region, groups = _reduction("subtract", "i32"), ((3, 0), (1, 2))
    half = _type((4, 4), "i32")
    scattered = _attributes(groups, FLAT, "scatter_dimension = 1 : i64")
    difference = lambda own: own[0] - own[1]  # noqa: E731
    cases = [
        Case(
            f'"stablehlo.all_reduce"(%x) {region} {_attributes(groups, FLAT)} : ({operand}) -> {operand}',
            operand, _grouped(groups, lambda own: [difference(own)] * 2),
        ),
        Case(
            f'"stablehlo.reduce_scatter"(%x) {region} {scattered} : ({operand}) -> {half}',
            half, _grouped(groups, lambda own: np.split(difference(own), 2, 1)),
        ),
    ]  # fmt: skip
    _compare(_program(cases, "i32"), cases, _operands("i32", 1), tmp_path)


@pytest.mark.sample(0)
def test_a_loop(tmp_path: Path) -> None:
    """A ring: each step of a loop passes operands on, and adds."""
    x, i = _type(SHAPE, "i32"), "tensor<i32>"
    move = _permutations("i32")[0].text.replace("%x)", "%a)")
    loop = f"""stablehlo.constant dense<0> : {i}
%n = stablehlo.constant dense<3> : {i}
%one = stablehlo.constant dense<1> : {i}
%l:3 = "stablehlo.while"(%r0, %x, %x) ({{ ^bb0(%k: {i}, %a: {x}, %s: {x}):
  %p = stablehlo.compare LT, %k, %n : ({i}, {i}) -> tensor<i1>
  "stablehlo.return"(%p) : (tensor<i1>) -> ()
}}, {{ ^bb0(%k: {i}, %a: {x}, %s: {x}):
  %m = {move}
  %t = stablehlo.add %s, %m : {x}
  %j = stablehlo.add %k, %one : {i}
  "stablehlo.return"(%j, %m, %t) : ({i}, {x}, {x}) -> ()
}}) : ({i}, {x}, {x}) -> ({i}, {x}, {x})"""
    cases = [
        Case(loop, i, lambda xs: [np.array(0, np.int32)] * RANKS),
        Case(f"stablehlo.abs %l#2 : {x}", x, lambda xs: [np.abs(sum(xs[1:], xs[0]))] * RANKS),
    ]
    _compare(_program(cases, "i32"), cases, _operands("i32", 2), tmp_path)


@pytest.mark.sample(0)
def test_processes_that_collectives_name(tmp_path: Path) -> None:
    """A module that declares no processes has those that its collectives name."""
    case = Case(_reduce_of([[0, 1, 2, 3]], flat=False, channel=False), _type(SHAPE, "i32"), lambda xs: [sum(xs)] * 4)
    _compare(_program([case], "i32", ""), [case], _operands("i32", 3), tmp_path)


def test_one_process() -> None:
    """Collectives of one process disappear."""
    cases = [*_moves("f32", ((0,),)), *_reductions("f32", ((0,),))]
    number = Case("stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>", "tensor<i32>", lambda xs: [])
    module, _ = import_stablehlo(_program([*cases, number], "f32", ""))
    assert not any(name in str(module) for name in ("all_", "reduce_scatter", "collective_permute", "rank_id"))


@pytest.mark.parametrize(
    ("text", "attributes", "message"),
    [
        (_reduce_of([[0, 1, 2, 3, 4]], flat=True), "mhlo.num_partitions = 4 : i32", "has 1 replicas and 4 part"),
        (_reduce_of([[0, 1]], flat=True), "mhlo.num_partitions = 4 : i32", "expected each of the 4 processes in one"),
        (_reduce_of([[0, 1]], flat=True), "mhlo.num_partitions = 9999 : i32", "expected 1 to 1024"),
        (_permutations("i32")[0].text.replace("[3, 0]", "[3, 2000]"), "",
         "the program has 1 replicas of 2001 partitions: at most 1024"),
        (_reduce_of([[0, 1], [2, -1]], flat=True).replace("stablehlo.add", "stablehlo.subtract"), "",
         "reduces groups of 1, 2 processes with a function that is not a sum"),
        (_permutations("i32")[0].text.replace("[3, 0]", "[3, 7]"), "mhlo.num_partitions = 4 : i32",
         "but the program has 4 partitions"),
    ],
)  # fmt: skip
def test_programs_that_are_refused(text: str, attributes: str, message: str) -> None:
    operand = _type(SHAPE, "i32")
    with pytest.raises(StablehloImportError, match=message) as error:
        import_stablehlo(_program([Case(text, operand, lambda xs: xs)], "i32", attributes))
    assert "\n" not in str(error.value)


def test_other_ranks_than_the_program_has(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(_program(_permutations("f32")[:1], "f32"))
    with pytest.raises(
        PassError, match="the model has collectives of 4 ranks, but ranks is 2: compile it with ranks=4"
    ):
        mirlo.compile(path, ranks=2)
    with pytest.raises(mirlo.MirloError, match="compile for 'collectives,llvm', or with ranks"):
        mirlo.compile(path)


@pytest.mark.sample(0)
def test_files_and_report(tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(_program(_moves("f32", GROUPS[2])[:1], "f32"))
    done = run_command("compile", "program.mlir", "--ranks", "4", "-o", "out.mirlo", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "out.rank3.mirlo").exists(), done.stderr
    explained = run_command("explain", "program.mlir", "--ranks", "4", cwd=tmp_path).stdout
    row = next(line for line in explained.splitlines() if line.startswith("relax.all_gather"))
    assert row.endswith("128 bytes")
