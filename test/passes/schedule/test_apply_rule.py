"""`Schedule.apply_rule`: the primitives of a built-in rule make the same kernel again, and take other choices."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import pytest
from onnx_models import F32, make_model, node
from reduced_models import reduced
from schedules import scheduled

import mirlo
from mirlo import Schedule, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.extend.ops import TensorType
from mirlo.extend.rules import decline
from mirlo.extend.schedules import ScheduleError
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.rule_choices import Choice
from mirlo.passes.rules import ANY, SCHEDULE, refused_rules
from mirlo.passes.schedule.primitives.trace import PrimitiveCallRecord, Trace
from mirlo.passes.schedule.schedule import SCHEDULES, ScheduleRecord
from mirlo.passes.session import Session
from mirlo.tools import samples
from mirlo.tools.cli import main
from mirlo.tools.explain.model import explain_model

SAMPLED = ("resnet50",)
"""Models that every run of the tests compiles."""
GENERATED = {
    "contraction": "depthwise convolutions have rows of their own, which no primitive arranges",
    "blocked": "attention takes the panels of a plan of a contraction apart",
    "winograd_input": "as primitives, each of the points of a tile is emitted by itself: 2.1 of the time to compile",
    "winograd_output": "as winograd_input",
}
"""The rules of target `llvm` whose kernels are one primitive, `apply_rule`, and why."""
MOST_GENERATED = {"bert_base": 1, "gpt2": 1, "mobilenetv2": 10, "resnet50": 4, "vit_base": 1}
"""How many kernels of each model they schedule at most; all others are printed as primitives to edit."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("target", ["llvm", "nvvm", "spirv"])
@pytest.mark.parametrize("name", samples.names())
def test_primitives_of_a_model_make_the_same_kernels(name: str, target: str, whole: bool) -> None:
    """Text and JSON of all primitives are handed back: the code after `schedule` is equal, so are its results."""
    if not whole and (name not in SAMPLED or target != "llvm"):
        pytest.skip("in `make nightly`")
    path = reduced(name)
    code, records = scheduled(str(path), {}, target)
    assert all(record.trace.calls and not record.is_given for record in records)
    if target == "llvm":
        generated = [record.rule.name for record in records if record.is_applied]
        assert set(generated) <= GENERATED.keys() and len(generated) <= MOST_GENERATED[name]
    given: dict[str, Any] = {}
    for i, record in enumerate(records):
        if i % 2:
            given[record.function] = Trace.from_json(json.loads(json.dumps(record.trace.as_json())))
        else:
            scope: dict[str, Any] = {}
            exec(str(record.trace), scope)
            given[record.function] = scope["schedule"]
    again, repeated = scheduled(str(path), given, target)
    assert again == code
    assert all(record.is_given for record in repeated)
    assert [str(record.trace) for record in repeated] == [str(record.trace) for record in records]


X = np.random.default_rng(1).standard_normal((29, 40)).astype(np.float32)


def save_model(path: Path, rows: int | str) -> Path:
    """Write a model with a kernel for each rule with choices, except attention."""
    weight = np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)
    nodes = [
        node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("Softmax", "r", "s", axis=-1),
        node("ReduceMax", "s axes", "m", keepdims=0), node("Exp", "x", "e"), node("Neg", "e", "f"),
        node("Transpose", "x", "t", perm=[1, 0]),
    ]  # fmt: skip
    constants = {"w": weight, "axes": np.array([0])}
    onnx.save(make_model(nodes, {"x": (F32, (rows, 40))}, ["m", "f", "t"], constants), path)
    return path


def run(path: Path, given: Mapping[str, Any] | None = None) -> Any:
    return mirlo.compile(path, schedules=given, cache=False, tune=False).run({"x": X})


def schedule_of(path: Path) -> dict[str, PrimitiveCallRecord]:
    """Return the `apply_rule` of each kernel of a model, also where the rule itself consists of primitives."""
    kernels = {kernel.name: kernel.schedule for kernel in explain_model(str(path), tune=False).kernels}
    made = {name: schedule for name, schedule in kernels.items() if schedule is not None}
    return {
        name: first if (first := schedule.trace.calls[0]).primitive == "apply_rule"
        else PrimitiveCallRecord("apply_rule", (schedule.rule.name,))
        for name, schedule in made.items()
    }  # fmt: skip


def edited(primitive: PrimitiveCallRecord, **choices: Any) -> Trace:
    """Return a primitive with other choices."""
    return Trace([replace(primitive, named={**primitive.named, **choices})])


@pytest.mark.sample(0)
@pytest.mark.parametrize("rows", [29, "n"])
def test_other_choices_compute_the_same_or_say_what_fits(rows: int | str, whole: bool, tmp_path: Path) -> None:
    """Choices at random: those that do not fit a function are rejected, with the others the result stays."""
    path = save_model(tmp_path / "model.onnx", rows)
    primitives, wanted, followed = schedule_of(path), run(path), 0
    assert {primitive.arguments[0] for primitive in primitives.values()} == {
        "contraction",
        "rows",
        "window",
        "elementwise",
    }
    choices = {rule.name: rule.choices for rule in SCHEDULE if rule.target == "llvm"}
    rng = np.random.default_rng(2)
    trials = 8 if whole else 2
    for _ in range(trials):
        given = {}
        for name, primitive in primitives.items():
            offered = choices[primitive.arguments[0]]
            picked = offered[int(rng.integers(len(offered)))]
            given[name] = edited(primitive, **{picked.name: int(rng.choice(np.array(picked.allowed[:9])))})
        while True:
            try:
                found = run(path, given)
                break
            except mirlo.MirloError as error:
                name = next(name for name in given if f" for '@{name}': " in str(error))
                assert any(f" {key}=" in str(error) or f" {key}:" in str(error) for key in given[name].calls[0].named)
                del given[name]
        followed += len(given)
        for key, array in wanted.items():
            np.testing.assert_allclose(found[key], array, rtol=1e-5, atol=1e-6)
    assert followed >= 2 * trials


@pytest.mark.sample(0)
def test_a_choice_changes_the_kernel(tmp_path: Path) -> None:
    path = save_model(tmp_path / "model.onnx", 29)
    name, primitive = next(item for item in schedule_of(path).items() if item[1].arguments[0] == "contraction")
    given = edited(primitive, tile_rows=3, tile_vectors=1)
    explained = explain_model(str(path), schedules={name: given}, kernel=name)
    kernel = next(kernel for kernel in explained.kernels if kernel.name == name)
    assert kernel.schedule is not None
    (followed,) = kernel.schedule.trace.calls
    assert followed.primitive == "apply_rule" and followed.arguments == ("contraction",)
    assert {"tile_rows": 3, "tile_vectors": 1}.items() <= followed.named.items()
    assert any("tile = array<i64: 3, 16>" in stage.text or "tile = array<i64: 3, 8>" in stage.text
               or "tile = array<i64: 3, 4>" in stage.text for stage in explained.stages[name])  # fmt: skip


ERRORS = {
    "there is no rule 'contractoin'; did you mean 'contraction'?": ("contractoin", {}),
    "rule 'contraction' does not choose 'tile_row'; did you mean 'tile_rows'?": ("contraction", {"tile_row": 3}),
    "tile_rows: expected an integer from 1 to 64, found 65": ("contraction", {"tile_rows": 65}),
    "tile_rows: expected an integer from 1 to 64, found True": ("contraction", {"tile_rows": True}),
    "tile_rows: expected an integer from 1 to 64, found [3, 4]": ("contraction", {"tile_rows": [3, 4]}),
    "tile_rows=30 does not fit this function: 'contraction' takes at most 29": (
        "contraction", {"tile_rows": 30, "tile_vectors": 1},
    ),
    "depth_block=64: nothing of this function depends on it; it has pack=": ("contraction", {"depth_block": 64}),
    "tile_rows, tile_vectors: expected 64 accumulators or less, found 20 * 4": (
        "contraction", {"tile_rows": 20, "tile_vectors": 4},
    ),
    "lanes: expected one of 1, 2, 4, 8, 16, 32, 64, or a list of one for each loop, found 3": ("rows", {"lanes": 3}),
    "rule 'rows' declines: the reduction does not run along memory": ("rows", {}),
    "transposed_rows: expected one of 2, 4, 8, 16, 32, 64, or a list of one for each loop, found []": (
        "elementwise", {"transposed_rows": []},
    ),
    "rule 'stages' does not choose 'lanes'; it chooses nothing": ("stages", {"lanes": 8}),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("message", ERRORS)
def test_choices_that_cannot_be_followed(message: str, tmp_path: Path) -> None:
    path = save_model(tmp_path / "model.onnx", 29)
    name = next(name for name, primitive in schedule_of(path).items() if primitive.arguments[0] == "contraction")
    rule, choices = ERRORS[message]
    with pytest.raises(mirlo.MirloError) as caught:
        run(path, {name: lambda s: s.apply_rule(rule, **choices)})
    assert f" for '@{name}': {message}" in str(caught.value)


@mirlo.prim_func
def twice(a: T.Buffer[(8, 8), T.f32], b: T.Out[(8, 8), T.f32]):
    for i, j in T.grid(8, 8):
        with T.block("twice"):
            vi, vj = T.axes("SS", i, j)
            b[vi, vj] = a[vi, vj] * 2.0


def test_a_rule_is_the_only_word(tmp_path: Path) -> None:
    s = Schedule.of(twice, TensorType.of((8, 8), "f32"))
    s.apply_rule("elementwise", lanes=8, unroll=[2])
    assert str(s.trace) == "def schedule(s):\n    s.apply_rule('elementwise', lanes=8, unroll=[2])"
    s.save(tmp_path / "twice.json")
    assert str(Schedule.of(twice, TensorType.of((8, 8), "f32")).replay(tmp_path / "twice.json").trace) == str(s.trace)
    with pytest.raises(ScheduleError, match="parallel: rule 'elementwise' schedules the whole function"):
        s.parallel("twice_i")
    with pytest.raises(ScheduleError, match="apply_rule: a rule schedules the whole function, after 'apply_rule'"):
        s.apply_rule("elementwise")
    with pytest.raises(ScheduleError, match="the rules of a target run in a compilation"):
        s.emit()


@pytest.mark.sample(0)
def test_explain_prints_the_primitives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_model(tmp_path / "model.onnx", 29)
    name, primitive = next(item for item in schedule_of(path).items() if item[1].arguments[0] == "contraction")
    given = edited(primitive, tile_rows=3, tile_vectors=1, pack=1, row_block=0)
    (tmp_path / "given.json").write_text(json.dumps(given.as_json()))
    explain = ["explain", str(path), "--kernel", name, "--schedule", f"{name}={tmp_path / 'given.json'}"]
    assert main(explain) == 0
    text = capsys.readouterr().out
    (call,) = given.calls
    assert f'  trace, for schedules={{"{name}": schedule}}:\n    def schedule(s):\n        {call}\n' in text
    assert main([*explain, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernels"][0]["schedule"]["trace"] == given.as_json()
    assert found["stages"] and found["stages"] == found["way"]


@pytest.mark.sample(0)
def test_explain_prints_loop_primitives_of_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_model(tmp_path / "model.onnx", 29)
    name = next(name for name, primitive in schedule_of(path).items() if primitive.arguments[0] == "window")
    assert main(["explain", str(path), "--kernel", name, "--save-trace", str(tmp_path / "primitives.json")]) == 0
    text = capsys.readouterr().out
    assert f'  trace, for schedules={{"{name}": schedule}}:\n    def schedule(s):\n        s.reorder(' in text
    assert "        s.vectorize(" in text and "in_order=True)" in text
    trace = Trace.load(tmp_path / "primitives.json")
    assert textwrap.indent(str(trace), "    ") in text
    for key, array in run(path).items():
        np.testing.assert_array_equal(run(path, {name: trace})[key], array)


@pytest.mark.sample(0)
def test_primitives_go_through_files_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, primitives = save_model(tmp_path / "model.onnx", 29), tmp_path / "primitives.json"
    name, primitive = next(item for item in schedule_of(path).items() if item[1].arguments[0] == "contraction")
    given = f"{name}={primitives}"
    primitives.write_text(json.dumps(edited(primitive, tile_rows=3, tile_vectors=1).as_json()))
    assert main(["explain", str(path), "--kernel", name, "--schedule", given, "--save-trace", str(primitives)]) == 0
    found = json.loads(primitives.read_text())
    assert found["primitives"][0][2]["tile_rows"] == 3
    found["primitives"][0][2]["tile_rows"] = 2
    primitives.write_text(json.dumps(found))
    capsys.readouterr()
    assert main(["explain", str(path), "--kernel", name, "--schedule", given]) == 0
    assert "tile_rows=2, " in capsys.readouterr().out
    assert main(["compile", str(path), "--no-cache", "-o", str(tmp_path / "model.mirlo"), "--schedule", given]) == 0
    primitives.write_text(json.dumps(found).replace("contraction", "rows"))
    assert main(["compile", str(path), "--no-cache", "--schedule", given]) == 1
    assert f"the schedule given for '@{name}': rule 'rows' does not choose 'tile_rows'" in capsys.readouterr().err
    assert main(["explain", str(path), "--save-trace", str(primitives)]) == 1
    assert "name it with --kernel" in capsys.readouterr().err


FILE_OF_IR = """
func.func private @f(%x: tensor<16xf32>) -> tensor<16xf32> attributes {{tir.prim_func, {attribute}}} {{
  %0 = "tir.block"(%x) ({{
  ^bb0(%i: index, %a: f32):
    %1 = arith.addf %a, %a : f32
    "tir.yield"(%1) {{operandSegmentSizes = array<i32: 1, 0, 0, 0>}} : (f32) -> ()
  }}) {{axes = ["spatial"], domain = [16], init = [unit], maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      name = "twice", operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>,
      resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : (tensor<16xf32>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}}"""


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("tir.tuned = {lanes = 3 : i64}", "lanes: expected one of 1, 2, 4, 8, 16, 32, 64"),
        ("tir.tuned = {lanes = array<i64: 8, 0>}", r"lanes: expected one of .*, found \[8, 0\]"),
        ('tir.tuned = {unroll = "many"}', "tir.tuned: expected integers by name"),
        ("tir.tuned = 3", "tir.tuned: expected integers by name"),
        ("tir.wanted_parts = [3]", "tir.wanted_parts: expected a list of {rule, blocks, choices}"),
        ('tir.wanted_parts = [{rule = "rows", blocks = [3]}]', "tir.wanted_parts: expected a list of {rule, blocks"),
    ],
)
def test_choices_in_a_file_of_ir_are_checked(attribute: str, message: str) -> None:
    text = FILE_OF_IR.format(attribute=attribute)
    refusal = refused_rules(lambda rule, _: rule.name == "elementwise" and "wanted" in text)  # parts are for `stages`
    with make_context(), ir.Location.unknown(), refusal, pytest.raises(mirlo.MirloError, match=message):
        Pipeline("builtin.module(schedule)").run(ir.Module.parse(text), Session())


def test_choices_of_another_compilation_are_dropped() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(FILE_OF_IR.format(attribute='tir.choices = "none"'))
        Pipeline("builtin.module(schedule)").run(module, Session())
        assert "tir.choices = {lanes = " in str(module)


def test_a_rule_of_primitives_has_choices_of_its_own() -> None:
    """A rule that is written in primitives declares what callers may choose, and states what it chose."""

    def tiles(kernel: Any, context: Any, size: Annotated[int, Choice(range(1, 9), "rows of a tile")] = 4) -> Any:
        s = Schedule(kernel.view.op)
        s.tile(s.loops("twice"), (size, size))
        return s.emit(choices={"size": size})

    rules = SCHEDULE.add(ANY, "llvm", tiles, 1000)
    try:
        for choices, size in (({}, 4), ({"size": 8}, 8)):
            session = Session()
            session.options[SCHEDULES] = {"twice": lambda s, given=choices: s.apply_rule("tiles", **given)}
            with make_context(), ir.Location.unknown():
                module = ir.Module.create()
                kind = TensorType.of((8, 8), "f32")
                module.body.append(twice.specialize([kind], None, "twice", {})[0].operation)
                Pipeline("builtin.module(schedule)").run(module, session)
                assert f"s.tile('twice_i', [None, {size}])" in str(module).replace("s.split", "s.tile")
            (record,) = (note for note in session.notes if isinstance(note, ScheduleRecord))
            assert str(record.trace.calls[0]) == f"s.apply_rule('tiles', size={size})"
    finally:
        SCHEDULE._rules[ANY, "llvm"].remove(rules)


def scheduled_by(rule: Any, primitives: dict[str, Any] | None = None) -> tuple[str, ScheduleRecord]:
    """Return a function that a user's rule, or its printed primitives, schedule, and how."""
    rule.__module__ = "plugin"
    rules = SCHEDULE.add(ANY, "llvm", rule, 1000)
    session = Session()
    session.options[SCHEDULES] = primitives or {}
    try:
        with make_context(), ir.Location.unknown():
            module = ir.Module.create()
            module.body.append(twice.specialize([TensorType.of((8, 8), "f32")], None, "twice", {})[0].operation)
            Pipeline("builtin.module(schedule)").run(module, session)
            (record,) = (note for note in session.notes if isinstance(note, ScheduleRecord))
            return str(module), record
    finally:
        SCHEDULE._rules[ANY, "llvm"].remove(rules)


def emits_first(kernel: Any, context: Any) -> Any:
    Schedule(kernel.view.op).emit()
    return decline("too late", rows=8)


def in_fours(kernel: Any, context: Any, size: Annotated[int, Choice(range(1, 9), "rows of a tile")] = 4) -> Any:
    s = Schedule(kernel.view.op)
    s.tile(s.loops("twice"), (size, size))
    return s.emit(choices={"size": size})


def never(kernel: Any, context: Any) -> Any:
    return decline("never")


@pytest.mark.parametrize(
    "given", [{"twice": [in_fours]}, {"*": [in_fours]}, {"twice": (never,), "*": [never, in_fours]}]
)
def test_rules_may_be_given_to_a_compilation(given: dict[str, Any]) -> None:
    """They are tried before those of the target: for the function, then for every function."""
    _, record = scheduled_by(never, given)
    assert (record.rule.name, record.rule.target, record.is_given) == ("in_fours", "custom", False)
    assert str(record.trace.calls[0]) == "s.apply_rule('in_fours', size=4)"
    tried = [attempt.rule.name for attempt in record.attempts]
    assert tried == ["never"] * (len(given) if len(given) > 1 else 0)


def test_rules_that_are_given_may_decline() -> None:
    code, record = scheduled_by(never, {"twice": [never]})
    assert record.rule.name == "elementwise" and str(record.attempts[0]) == "never [custom]: never"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"twice": [3]}, "expected rules, functions of a kernel and its context, in the list for 'twice'"),
        ({"*": in_fours}, "expected a list of rules, functions of a kernel and its context, for '\\*'"),
        ({"nothing": [in_fours]}, "a schedule is given for 'nothing', but no prim function of that name"),
        ({"twice": [emits_first]}, "rule 'emits_first for twice on custom' at .* declines '@twice'"),
        ({"twice": [lambda kernel, context: None]}, "rule '<lambda> for twice on custom' at .* returned nothing"),
    ],
)
def test_what_is_given_for_rules_and_is_none(given: Any, message: str) -> None:
    @mirlo.script
    def program(x: mirlo.R.Tensor[(8, 8), mirlo.R.f32]):
        return mirlo.R.call_tir(twice, x)

    with pytest.raises((mirlo.MirloError, ValueError), match=message):
        mirlo.compile(program, schedules=given, cache=False)


def marks_first(kernel: Any, context: Any) -> Any:
    kernel.view.op.attributes["mine.mark"] = ir.UnitAttr.get()
    return decline("too late", rows=8)


@pytest.mark.parametrize("rule", [emits_first, marks_first])
def test_a_rule_that_declines_leaves_the_function_as_it_is(rule: Any) -> None:
    """The rule that declines is named, and not the next one, which finds a function that was replaced."""
    message = (
        rf"rule '{rule.__name__} for any on llvm' at .*test_apply_rule.py:\d+ declines '@twice' \(too late \(rows=8\)\)"
    )
    with pytest.raises(mirlo.MirloError, match=f"{message}, but has changed it: a rule declines before Schedule.emit"):
        scheduled_by(rule)


def test_a_built_in_rule_does_not_replace_a_function_and_decline() -> None:
    def erases(kernel: Any, context: Any) -> Any:
        Schedule(kernel.view.op).emit()
        return decline("too late")

    erases.__module__ = "mirlo.targets.llvm.mine"
    added = SCHEDULE.add(ANY, "llvm", erases, 1000)
    try:
        with pytest.raises(
            mirlo.MirloError, match=r"rule 'erases for any on llvm' at .* declines '@twice' \(too late\)"
        ):
            scheduled_by(lambda kernel, context: decline("never"))
    finally:
        SCHEDULE._rules[ANY, "llvm"].remove(added)


def test_a_rule_of_primitives_schedules_functions_that_have_no_primitives() -> None:
    def tiles(kernel: Any, context: Any) -> Any:
        s = Schedule(kernel.view.op)
        s.tile(s.loops("twice"), (4, 4))
        return s.emit()

    code, record = scheduled_by(tiles)
    assert "s.split('twice_i', [None, 4])" in code and record.rule.name == "tiles"


@pytest.mark.parametrize("primitives", [{}, {"twice": lambda s: s.apply_rule("forgets")}], ids=["alone", "primitives"])
def test_a_rule_that_does_not_return_the_function_is_an_error(primitives: dict[str, Any]) -> None:
    def forgets(kernel: Any, context: Any) -> Any:
        return Schedule(kernel.view.op)

    with pytest.raises(mirlo.MirloError, match="'forgets .* returned <.*: return the scheduled function, as Sch"):
        scheduled_by(forgets, primitives)


def test_stored_weights_of_a_given_kernel_are_the_same(tmp_path: Path) -> None:
    """Weights that a GPU stores along K are stored so for the primitives that were printed, too."""
    w = np.random.default_rng(0).integers(-100, 101, (96, 72)).astype(np.int8)
    nodes = [node("MatMulInteger", "x w", "y")]
    onnx.save(make_model(nodes, {"x": (onnx.TensorProto.INT8, [64, 96])}, ["y"], {"w": w}), tmp_path / "m.onnx")
    code, records = scheduled(str(tmp_path / "m.onnx"), {}, "nvvm")
    assert "transposed" in code
    given = {record.function: Trace.from_json(json.loads(json.dumps(record.trace.as_json()))) for record in records}
    again, repeated = scheduled(str(tmp_path / "m.onnx"), given, "nvvm")
    assert again == code and all(record.is_given for record in repeated)
