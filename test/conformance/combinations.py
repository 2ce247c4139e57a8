"""Operators, rules, places in a model, and tools, in every combination.

python test/conformance/combinations.py > docs/combinations.md     # all of them
python test/conformance/combinations.py neg/target/loop            # some, by parts of their names, with errors in full

An operator multiplies by a number, and each rule by another one, so the result says which rule was used. A cell is
what a tool makes of one operator, with one rule, at one place: it works, or its error is the one that `REASONS`
documents. A rule that is not used, without an error, is a failure.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import mirlo
from mirlo import T, extend
from mirlo.driver.tune.database import Database
from mirlo.driver.tune.search import tune
from mirlo.extend import (
    LEGALIZE,
    CodeGenerator,
    DialectOp,
    ExternalFunctions,
    OnnxName,
    OpError,
    Target,
    Trait,
    elementwise,
    is_call_tir,
    is_op,
    legalize,
    operand,
    register_dialect,
    register_external_loader,
    register_target,
    result,
    tensor_intrin,
    wildcard,
)
from mirlo.runtime.loaders import compile_llvm, define_symbol
from mirlo.testing import stages_round_trip
from mirlo.tools.bisect.bisect import Departure, bisect
from mirlo.tools.bisect.trial import TrialOptions
from mirlo.tools.conformance.check import check_target
from mirlo.tools.explain.model import explain_model
from mirlo.tools.explain.report import only_node, text_lines

BY_RULE = 3.0
"""What every rule multiplies by: no operator means that."""
ROWS, COLS = 4, 16
DIALECT = register_dialect("combos")


class Half(DialectOp, name="half", dialect=DIALECT):
    """Half of x."""

    TRAITS = (Trait.ELEMENTWISE,)
    ONNX = OnnxName("Half", domain="com.combos")
    x, output = operand(), result()

    @staticmethod
    def infer(x: Any) -> Any:
        if not x.dtype.is_float:
            raise OpError(f"expected floats, found {x}")
        return x

    @staticmethod
    def meaning(x: Any) -> Any:
        return x * 0.5


N, C = T.dims("N", "C")


@mirlo.prim_func
def quarter(x: T.Buffer[(N, C), T.f32], y: T.Out[(N, C), T.f32]):
    for i, j in T.grid(N, C):
        y[i, j] = x[i, j] * 0.25


@mirlo.prim_func
def triple(x: T.Buffer[(N, C), T.f32], y: T.Out[(N, C), T.f32]):
    for i, j in T.grid(N, C):
        y[i, j] = x[i, j] * 3.0


mirlo.onnx_operator("com.custom", "Quarter", prim_func=quarter)
mirlo.onnx_operator("com.custom", "Triple", prim_func=triple)


@dataclass(frozen=True)
class Subject:
    """An operator: its node in ONNX, its name in Mirlo, and what it multiplies by."""

    node: str
    domain: str
    name: str
    factor: float


OPERATORS = {
    "neg": Subject("Neg", "", "relax.negative", -1.0),
    "plug-in": Subject("Half", "com.combos", "combos.half", 0.5),
    "custom": Subject("Quarter", "com.custom", "", 0.25),
}
RULES = ("default", "target", "compilation", "hand-written", "tensorized", "generator")
PLACES = ("alone", "region", "several", "dynamic", "loop")
TOOLS = ("compile", "save", "explain", "bisect", "check-target", "script", "tune")


@dataclass(frozen=True)
class Cell:
    """One combination."""

    operator: str
    rule: str
    place: str
    tool: str

    def __str__(self) -> str:
        return f"{self.operator}/{self.rule}/{self.place}/{self.tool}"


def cells() -> Iterator[Cell]:
    """Yield all combinations."""
    return (Cell(*parts) for parts in itertools.product(OPERATORS, RULES, PLACES, TOOLS))


@dataclass(frozen=True)
class Reason:
    """Why cells do not work: those whose parts are among these, and the error that they give."""

    text: str
    message: str
    operator: tuple[str, ...] = tuple(OPERATORS)
    rule: tuple[str, ...] = RULES
    place: tuple[str, ...] = PLACES
    tool: tuple[str, ...] = TOOLS

    def covers(self, cell: Cell) -> bool:
        """Return whether a cell is one of those."""
        return all(getattr(cell, part) in getattr(self, part) for part in ("operator", "rule", "place", "tool"))


REASONS = (
    Reason(
        "Rules are for operators. A prim function that `mirlo.onnx_operator` attaches is its own code; give the "
        "operator a class (`DialectOp` with `ONNX`) where rules are to choose.",
        "no operator", operator=("custom",), rule=("target", "compilation"),
    ),
    Reason(
        "`check-target` compares operators with their meaning; a node with an attached prim function has no operator.",
        "no operator", operator=("custom",), tool=("check-target",),
    ),
    Reason(
        "`check-target` checks what a target always does; rules and schedules of one compilation are checked by "
        "comparing its results, as `mirlo bisect` does.",
        "one compilation", rule=("compilation", "tensorized"), tool=("check-target",),
    ),
    Reason(
        "Schedules by hand are for sizes that are numbers: fix them with `dims=`.",
        "has dims of run time", rule=("tensorized",), place=("dynamic",),
    ),
    Reason(
        "The oracle must know what the operator means: an operator class with `meaning` says so, an attached prim "
        "function does not.",
        "it knows the operators of plug-ins that are classes", operator=("custom",), tool=("bisect",),
    ),
)  # fmt: skip


NOT_RUN = "·"
"""Marks what was not run when the page was written."""


class NotUsed(Exception):
    """A rule had no effect, and nothing said so."""


class Unavailable(Exception):
    """What is asked for has no form in which it could be said."""


# Targets


def _load(artifact: Any, context: Any) -> ExternalFunctions:
    import json

    steps = json.loads(artifact.data)

    def function(kind: str) -> Callable[..., None]:
        def call(x: np.ndarray, y: np.ndarray) -> None:
            y[...] = np.cumsum(x, 1) if kind == "relax.cumsum" else x * BY_RULE

        return call

    return ExternalFunctions({name: function(kind) for name, kind in steps.items()})


def _codegen(module: Any, name: str) -> Any:
    import json

    kinds = {f.name: next(node.op for node in f.nodes) for f in module.functions}
    return extend.Artifact("combos", module.names, json.dumps(kinds).encode())


PATTERNS = [
    *((s.node, is_op(s.name)(wildcard())) for s in OPERATORS.values() if s.name),
    ("Quarter", is_call_tir("quarter*")(wildcard())),
]


@dataclass(frozen=True)
class Generator(CodeGenerator):
    """Takes the operators of this page, and triples."""

    name = "taker"
    guarded = False

    def patterns(self) -> Any:
        return PATTERNS

    def codegen(self, module: Any) -> Any:
        return _codegen(module, self.name)


@dataclass(frozen=True)
class Neighbour(CodeGenerator):
    """Takes the operator that follows."""

    name = "neighbour"
    guarded = False

    def patterns(self) -> Any:
        return [("sums", is_op("relax.cumsum")(wildcard()))]

    def codegen(self, module: Any) -> Any:
        return _codegen(module, self.name)


@dataclass(frozen=True)
class Region(CodeGenerator):
    """Takes the operators of this page and what follows, and leaves their code to Mirlo, with its own rules."""

    name = "region"
    pipeline = "legalize"
    guarded = False

    def patterns(self) -> Any:
        return PATTERNS


register_external_loader("combos", _load)
for generator in (Generator, Neighbour, Region):
    register_target(Target(generator.name, generator.__doc__ or "", codegen=generator))

ENGINE = compile_llvm("""
define void @combos_triple(ptr %a, ptr %c) {
  %x = load <8 x float>, ptr %a, align 4
  %y = fmul <8 x float> %x, <float 3.0, float 3.0, float 3.0, float 3.0, float 3.0, float 3.0, float 3.0, float 3.0>
  store <8 x float> %y, ptr %c, align 4
  ret void
}
""")
define_symbol("combos_triple", ENGINE.get_function_address("combos_triple"))


@mirlo.prim_func(buffers=True)
def by_unit(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    T.call_extern("combos_triple", a, c)


@mirlo.prim_func
def negates(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.grid(8):
        with T.block("row"):
            v = T.axes("S", j)
            c[v] = -a[v]


@mirlo.prim_func
def halves(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.grid(8):
        with T.block("row"):
            v = T.axes("S", j)
            c[v] = a[v] * 0.5


@mirlo.prim_func
def quarters(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.grid(8):
        with T.block("row"):
            v = T.axes("S", j)
            c[v] = a[v] * 0.25


for key, function in (("neg", negates), ("plug-in", halves), ("custom", quarters)):
    tensor_intrin(f"combos.{key}", function, by_unit)


# Models


def model_of(cell: Cell) -> onnx.ModelProto:
    """Return the model of a cell: the operator, then sums along rows."""
    subject = OPERATORS[cell.operator]
    kind = "Triple" if (cell.operator, cell.rule) == ("custom", "hand-written") else subject.node
    value, f32, i64, boolean = helper.make_tensor_value_info, 1, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    rows: int | str = "rows" if cell.place == "dynamic" else ROWS
    axis = onnx.numpy_helper.from_array(np.array(1, np.int64), "axis")
    at = helper.make_node("CumSum", ["t", "axis"], ["y"], name="sums")
    if cell.place == "loop":
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["c"], ["again"]),
                helper.make_node(kind, ["v"], ["u"], name="op", domain=subject.domain),
            ],
            "body",
            [value("i", i64, []), value("c", boolean, []), value("v", f32, [rows, COLS])],
            [value("again", boolean, []), value("u", f32, [rows, COLS])],
        )
        first = helper.make_node("Loop", ["n", "", "x"], ["t"], name="loop", body=body)
    else:
        first = helper.make_node(kind, ["x"], ["t"], name="op", domain=subject.domain)
    inputs = [value("x", f32, [rows, COLS])] + ([value("n", i64, [])] if cell.place == "loop" else [])
    graph = helper.make_graph([first, at], "combination", inputs, [value("y", f32, [rows, COLS])], [axis])
    opsets = [helper.make_opsetid(d, 18 if not d else 1) for d in dict.fromkeys(("", subject.domain))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def node_of(cell: Cell) -> str:
    """Return the name of the operator's node."""
    return "loop/op" if cell.place == "loop" else "op"


def feeds_of(cell: Cell) -> dict[str, np.ndarray]:
    """Return inputs: small integers, whose sums are exact; two iterations of a loop."""
    x = np.arange(ROWS * COLS, dtype=np.float32).reshape(ROWS, COLS) % 7 - 3
    return {"x": x, **({"n": np.array(2, np.int64)} if cell.place == "loop" else {})}


def expected(cell: Cell) -> np.ndarray:
    """Return what the rule of a cell makes of the inputs."""
    factor = OPERATORS[cell.operator].factor if cell.rule == "default" else BY_RULE
    times = 2 if cell.place == "loop" else 1
    return np.cumsum(feeds_of(cell)["x"] * np.float32(factor**times), 1, dtype=np.float32)


def target_of(cell: Cell) -> str:
    """Return the list of targets of a cell."""
    first = ["taker"] if cell.rule == "generator" else []
    if cell.place == "region":
        first.append("region")
    if cell.place == "several":
        first.append("neighbour")
    return ",".join([*first, "llvm"])


# Rules


def tripled(op: Any, b: Any) -> Any:
    """Multiply by what no operator means."""
    return elementwise(op, b, [op.x], lambda x: x * BY_RULE)


def by_hand(op: Any, b: Any) -> Any:
    """Call loops that are written in Python."""
    return b.call_prim_func(triple, op.x)


@dataclass
class Options:
    """What a cell passes to `mirlo.compile` and the tools."""

    target: str
    given: dict[str, Any] = field(default_factory=dict)


def options_of(cell: Cell) -> Options:
    """Return the options of a cell; rules of its target are registered until `forget`."""
    subject = OPERATORS[cell.operator]
    options = Options(target_of(cell))
    if cell.rule in ("target", "hand-written") and subject.name:
        rule = tripled if cell.rule == "target" else by_hand
        legalize(subject.name, target="region" if cell.place == "region" else "llvm", priority=99)(rule)
    if cell.rule in ("target", "compilation") and not subject.name:
        raise Unavailable("no operator")
    if cell.rule == "compilation":
        options.given["legalize"] = {subject.name: tripled}
    if cell.rule == "tensorized":
        options.given["schedules"] = {kernel_of(cell): tensorized(cell)}
    return options


def forget() -> None:
    """Remove the rules that a cell registered."""
    for subject in OPERATORS.values():
        for target in ("llvm", "region"):
            rules = LEGALIZE._rules.get((subject.name, target), [])
            rules[:] = [rule for rule in rules if rule.function not in (tripled, by_hand)]


@cache
def kernel_name(operator: str, place: str) -> str:
    """Return the kernel that computes the operator."""
    cell = Cell(operator, "default", place, "compile")
    (node,) = only_node(explain_model(model_of(cell), target_of(cell)), node_of(cell)).nodes
    return node.kernels[0]


def kernel_of(cell: Cell) -> str:
    return kernel_name(cell.operator, cell.place)


def tensorized(cell: Cell) -> Callable[[Any], None]:
    """Return a schedule that hands eight columns at once to a C function."""

    def by_columns(s: Any) -> None:
        (block,) = s.blocks()
        _, columns = s.loops(block)
        _, inner = s.split(columns, (None, 8))
        s.tensorize(inner, f"combos.{cell.operator}")

    return by_columns


# Tools


def run(cell: Cell) -> None:
    """Try one combination; raise what goes wrong."""
    try:
        options = options_of(cell)
        RUN[cell.tool](cell, options)
    finally:
        forget()


def _compiled(cell: Cell, options: Options, **more: Any) -> Any:
    return mirlo.compile(model_of(cell), options.target, cache=False, jobs=1, **options.given, **more)


def _check(cell: Cell, found: Any) -> None:
    result = found["y"]
    if not np.allclose(result, expected(cell)):
        raise NotUsed(
            f"the result is {(result / np.where(expected(cell) == 0, 1, expected(cell)))[0, 0]:.3} of the rule's"
        )


def _compile(cell: Cell, options: Options) -> None:
    _check(cell, _compiled(cell, options).run(feeds_of(cell)))


def _save(cell: Cell, options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = _compiled(cell, options)
        made.save(Path(folder) / "m.mirlo")
        _check(cell, mirlo.load(Path(folder) / "m.mirlo").run(feeds_of(cell)))


def _explain(cell: Cell, options: Options) -> None:
    explanation = explain_model(model_of(cell), options.target, tune=False, **options.given)
    if explanation.failure is not None:
        raise mirlo.MirloError(explanation.failure)
    text = "\n".join(text_lines(only_node(explanation, node_of(cell))))
    wanted = {
        "default": "kernels: @", "target": "tripled [", "compilation": "tripled [custom]", "hand-written": "by_hand [",
        "tensorized": "schedule: given", "generator": "taken by a code generator",
    }[cell.rule]  # fmt: skip
    if cell.operator == "custom" and cell.rule == "hand-written":
        wanted = "kernels: @"
    if wanted not in text:
        raise NotUsed(f"{wanted!r} is not reported:\n{text}")


def _bisect(cell: Cell, options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = bisect(
            model_of(cell), feeds_of(cell), against="reference", bundle=Path(folder) / "bundle", tell=lambda text: None,
            settings=TrialOptions(options.target, **options.given),
        )  # fmt: skip
    if cell.rule == "default":
        if found is not None:
            raise NotUsed(f"it departs: {found}")
        return
    if not isinstance(found, Departure) or found.node not in ("op", "loop"):
        raise NotUsed(f"the wrong rule is not found: {found}")
    wanted = {"target": "tripled (", "compilation": "tripled (", "hand-written": "by_hand ("}.get(cell.rule, "")
    if not any(wanted in rule for rule in (*found.culprit.rules, "")):
        raise NotUsed(f"{wanted!r} is not among the rules: {found.culprit.rules}")


def _conformance(cell: Cell, options: Options) -> None:
    if not OPERATORS[cell.operator].name:
        raise Unavailable("no operator")
    if options.given:
        raise Unavailable("one compilation")
    is_good = _checked(cell.operator, cell.rule, options.target, cell.place == "region")
    if is_good != (cell.rule == "default"):
        raise NotUsed(f"a rule that is {'right' if is_good else 'wrong'} by the check")


@cache
def _checked(operator: str, rule: str, target: str, in_region: bool) -> bool:
    """Return whether the check of a target finds nothing wrong; the place of an operator does not matter to it."""
    matrix = check_target(target, [OPERATORS[operator].name])
    return all(not matrix.count(status) for status in ("wrong", "failed")) and not matrix.unreached


def _script(cell: Cell, options: Options) -> None:
    stages_round_trip(model_of(cell), options.target, **options.given)


def _tune(cell: Cell, options: Options) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder) / "tuned.json")
        shapes = {"x": (ROWS, COLS)} if cell.place == "dynamic" else None
        tune(model_of(cell), database, target=options.target, shapes=shapes, seconds=0.2)
        _check(cell, _compiled(cell, options, tune=database).run(feeds_of(cell)))


RUN: dict[str, Callable[[Cell, Options], None]] = {
    "compile": _compile, "save": _save, "explain": _explain, "bisect": _bisect, "check-target": _conformance,
    "script": _script, "tune": _tune,
}  # fmt: skip


def outcome(cell: Cell) -> tuple[str, str]:
    """Return "ok", a documented reason's number, or "FAILED", and the error."""
    try:
        run(cell)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        for number, reason in enumerate(REASONS, 1):
            if reason.covers(cell) and reason.message in text:
                return str(number), text
        return "FAILED", text
    return "ok", ""


def page(found: dict[Cell, str]) -> str:
    """Return the page of the documentation."""
    texts = list(dict.fromkeys(reason.text for reason in REASONS))
    shown = {"ok": "ok", "FAILED": "**failed**", NOT_RUN: NOT_RUN}
    lines = [
        "# Combinations", "",
        "Written by `python test/conformance/combinations.py`; do not edit. `make test` runs a sample.", "",
        "What works together: an operator (of Mirlo, of a plug-in with a class, or of an ONNX domain with an attached "
        "prim function), a kind of rule for it, a place in a model, and a tool. The rule of a cell computes "
        "something else than the operator means, so the result says whether it was used, `mirlo bisect` must find it, "
        "and `check-target` must call it wrong. A number is a reason below; the tool gives an error that says it. "
        "A point marks what was not run when this page was written, for its time: `make combinations` runs all.", "",
        "- *default*: no rule; *target*: `@legalize`; *compilation*: `mirlo.compile(legalize=)`; *hand-written*: a "
        "rule with `b.call_prim_func`, or `mirlo.onnx_operator`; *tensorized*: `mirlo.compile(schedules=)` with "
        "`tensorize` to a C function; *generator*: a code generator takes the node.",
        "- *alone*: in the graph; *region*: an external module whose code Mirlo makes; *several*: a code generator "
        "takes the next node; *dynamic*: a dim of run time; *loop*: in the body of an ONNX Loop.", "",
    ]  # fmt: skip
    for operator in OPERATORS:
        lines += [
            f"## {operator}",
            "",
            f"| rule | place | {' | '.join(TOOLS)} |",
            f"| --- | --- |{' --- |' * len(TOOLS)}",
        ]
        for rule, place in itertools.product(RULES, PLACES):
            row = [found.get(Cell(operator, rule, place, tool), NOT_RUN) for tool in TOOLS]
            marks = [shown.get(mark) or str(texts.index(REASONS[int(mark) - 1].text) + 1) for mark in row]
            lines.append(f"| {rule} | {place} | {' | '.join(marks)} |")
        lines.append("")
    lines += ["## Reasons", "", *(f"{number}. {text}" for number, text in enumerate(texts, 1))]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Run the chosen combinations; print the page of all, or with `--page` of the chosen ones."""
    prints_page = not words or "--page" in words
    words = [word for word in words if word != "--page"]
    chosen = [cell for cell in cells() if not words or any(word in str(cell) for word in words)]
    failed = 0
    found: dict[Cell, str] = {}
    for cell in chosen:
        found[cell], text = outcome(cell)
        failed += found[cell] == "FAILED"
        if not prints_page or found[cell] == "FAILED":
            print(f"{cell}: {found[cell]} {text[:600]}", file=sys.stderr, flush=True)
    if prints_page:
        print(page(found))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
