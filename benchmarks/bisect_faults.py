"""One hundred planted faults, and what `mirlo bisect` blames for them: the table in docs/mirlo.md.

    python -m benchmarks.bisect_faults [--count 20] [--keep FILE] [KIND...]

A fault is planted into the compilation of a drawn graph, for all nodes of one operator: in a rule of operators, a rule
of intrinsics, the loops of scheduled kernels, a pass of the graph, as rounding of operands to bf16, or in the device of
an accelerator (`test/support/broken_accelerators.py`). Models with such faults also run on a board, a runner on this
machine (`--remote`), and on an emulated NVIDIA GPU. Blamed rightly is the first node with that operator, and the
pass or pattern with the fault. Of the kind `harmless` are perturbations within the tolerance, the last of which are
amplified: there is no node to blame. `--keep` continues where a run was interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.dialects.bindings import arith, ir
from mirlo.dialects.core.surgery import blocks, operations, replace_op
from mirlo.dialects.relax import DIALECT
from mirlo.dialects.tir.compute import tanh
from mirlo.extend.ops import elementwise
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.session import Session
from mirlo.testing.ptx.driver import emulated
from mirlo.tools.bisect.bisect import Departure, bisect
from mirlo.tools.bisect.compare import Tolerance, difference
from mirlo.tools.bisect.trial import TrialOptions
from mirlo.tools.cli import main as run_command
from mirlo.tools.remote import BoardOptions

sys.path.insert(0, str(Path(__file__).parent.parent / "test" / "support"))

import broken_accelerators as units
from runners import TOKEN, started

RIGHT, WRONG, MISSED = "right", "wrong", "missed"
SHAPE = (5, 16)
FEED = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
"""The input of drawn graphs."""
UNARY = ("Tanh", "Sigmoid", "Exp", "Erf", "Abs", "Neg", "Softplus", "Relu")
BINARY = ("Add", "Sub", "Mul", "Max")
RULES: dict[str, tuple[str, Sequence[Callable[[Any], Any]]]] = {
    name: (f"relax.{name.lower()}", (lambda x: x * 0.75, lambda x: x + 0.125, lambda x: x * 1.01))
    for name in ("Tanh", "Sigmoid", "Exp", "Erf", "Softplus")
}
"""By ONNX operator, the operator of relax and what wrong rules compute in its place."""
INTRINSICS = {"Tanh": "tanh", "Erf": "erf", "Exp": "exp"}
REPLACED = {"Tanh": ("relax.tanh", "relax.sigmoid"), "Sub": ("relax.subtract", "relax.add"),
            "Mul": ("relax.multiply", "relax.maximum"), "Neg": ("relax.negative", "relax.abs"),
            "Max": ("relax.maximum", "relax.minimum")}  # fmt: skip
"""By ONNX operator, what the wrong pass replaces, and by what."""
SCHEDULED = {"Sub": "arith.subf", "Mul": "arith.mulf", "Neg": "arith.negf", "Tanh": "tir.tanh",
             "Erf": "tir.erf", "Max": "arith.maximumf"}  # fmt: skip
"""By ONNX operator, the operation of scheduled kernels that only its nodes have in a graph of `OTHERS`."""
OTHERS = ("Add", "Abs", "Mul", "Max", "Tanh")


@register_pass
@dataclass(frozen=True)
class PlantGraphFault(Pass):
    """Replace operators by others, or round their operands: for `benchmarks.bisect_faults`."""

    name = "plant-graph-fault"
    operator: str = option("", "the operator")
    by: str = option("", "what replaces it; nothing to round its first operand")
    dtype: str = option("bf16", "the type that operands are rounded to")

    def run(self, op: ir.OpView, session: Session) -> None:
        for function in op.operation.regions[0].blocks[0].operations:
            for each in operations(function):
                if each.name == self.operator:
                    self._change(each)

    def _change(self, each: ir.Operation) -> None:
        with ir.InsertionPoint(each), each.location:
            first, *others = each.operands
            if self.by:
                replace_op(each, [DIALECT.operations[self.by].make(first, *others)])
                return
            cast = DIALECT.operations["relax.cast"]
            each.operands[0] = cast.make(cast.make(first, dtype=self.dtype), dtype="f32")


@register_pass
@dataclass(frozen=True)
class PlantLoopFault(Pass):
    """Replace an operation of scheduled kernels by twice its first operand: for `benchmarks.bisect_faults`."""

    name = "plant-loop-fault"
    operation: str = option("", "the operation")

    def run(self, op: ir.OpView, session: Session) -> None:
        for function in op.operation.regions[0].blocks[0].operations:
            for each in [op.operation for block in blocks(function) for op in block.operations]:
                if each.name != self.operation:
                    continue
                with ir.InsertionPoint(each), each.location:
                    doubled = arith.AddFOp(each.operands[0], each.operands[0]).result
                each.results[0].replace_all_uses_with(doubled)


@dataclass
class Graph:
    """A drawn graph: nodes of a chain with operands from earlier ones."""

    model: onnx.ModelProto
    first: dict[str, str]
    """By operator, the first node with it."""


def draw(seed: int, operators: Sequence[str], operator: str, count: int = 12) -> Graph:
    """Draw a graph that has an operator, after some others."""
    random = np.random.default_rng(seed)
    weight = numpy_helper.from_array((random.standard_normal((SHAPE[1], SHAPE[1])) / 4).astype(np.float32), "w")
    values, nodes, first = ["x"], [], dict[str, str]()
    planted = int(random.integers(2, count - 2))
    for number in range(count):
        kind = operator if number == planted else str(random.choice(["MatMul", *operators]))
        if kind == operator and number < planted:
            kind = "MatMul"
        operands = [values[-1]]
        operands += ["w"] if kind == "MatMul" else [str(random.choice(values))] if kind in BINARY else []
        if kind in BINARY and operands[0] == operands[1]:
            operands[1] = values[max(0, len(values) - 2)] if len(values) > 1 else "x"
        name = f"{kind.lower()}{number}"
        if kind == "Exp":  # of small numbers
            nodes.append(helper.make_node("Clip", [operands[0], "low", "high"], [f"c{number}"], name=f"clip{number}"))
            operands = [f"c{number}"]
        nodes.append(helper.make_node(kind, operands, [f"v{number}"], name=name))
        values.append(f"v{number}")
        first.setdefault(kind, name)
    constants = [weight, *(numpy_helper.from_array(np.float32(v), n) for n, v in (("low", -1), ("high", 1)))]
    inputs = [helper.make_tensor_value_info("x", 1, SHAPE)]
    outputs = [helper.make_tensor_value_info(values[-1], 1, SHAPE)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), first)


@dataclass
class Fault:
    """A fault: the model, how it is compiled, and what is right to blame."""

    name: str
    model: onnx.ModelProto
    settings: TrialOptions
    nodes: Sequence[str]
    """The nodes that may be blamed; none if no node is to blame."""
    culprits: Sequence[str] = ()
    """Texts one of which the blamed pass, rule or pattern has."""
    feeds: dict[str, np.ndarray] = field(default_factory=dict)


def with_pass(text: str, behind: str) -> str:
    """Return the pipeline of the target with a pass after another one."""
    steps = [str(step) for step in Pipeline(Targets.parse("llvm").pipeline(1))]
    at = max(i for i, step in enumerate(steps) if step.partition("{")[0] == behind)
    return f"builtin.module({','.join([*steps[: at + 1], text, *steps[at + 1 :]])})"


def of_rules(seed: int) -> Fault:
    """Return a wrong rule of an operator."""
    operator = list(RULES)[seed % len(RULES)]
    relax, wrong = RULES[operator]
    body = wrong[seed % len(wrong)]
    graph = draw(seed, [o for o in UNARY if o not in ("Softplus", "Exp")] + list(BINARY), operator)

    def rule(op: Any, b: Any) -> Any:
        return elementwise(op, b, [op.x], body)

    settings = TrialOptions(legalize={relax: rule})
    return Fault(f"{operator} {seed}", graph.model, settings, [graph.first[operator]], [f"{relax}: rule"])


def of_intrinsics(seed: int) -> Fault:
    """Return a wrong expansion of an intrinsic."""
    operator = list(INTRINSICS)[seed % len(INTRINSICS)]
    graph = draw(seed + 100, ("Add", "Sub", "Mul", "Relu", "Neg"), operator)

    def expand(op: Any, b: Any) -> Any:
        return op.nums[0] * 0.5

    settings = TrialOptions(intrinsics={INTRINSICS[operator]: expand})
    return Fault(f"{operator} {seed}", graph.model, settings, [graph.first[operator]], ["lower-intrinsics"])


def of_loops(seed: int) -> Fault:
    """Return a wrong operation in scheduled kernels."""
    operator = list(SCHEDULED)[seed % len(SCHEDULED)]
    graph = draw(seed + 200, OTHERS, operator)
    text = with_pass(f"plant-loop-fault{{operation={SCHEDULED[operator]}}}", "lower-loops")
    return Fault(
        f"{operator} {seed}", graph.model, TrialOptions(pipeline=text), [graph.first[operator]], ["plant-loop"]
    )


def of_passes(seed: int) -> Fault:
    """Return a wrong pass of the graph."""
    operator = list(REPLACED)[seed % len(REPLACED)]
    graph = draw(seed + 300, (*UNARY, *BINARY), operator)
    before, by = REPLACED[operator]
    text = with_pass(f"plant-graph-fault{{operator={before} by={by}}}", "require-dims")
    return Fault(
        f"{operator} {seed}", graph.model, TrialOptions(pipeline=text), [graph.first[operator]], ["plant-graph"]
    )


ROUNDED: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "Sub": ("relax.subtract", np.subtract), "Mul": ("relax.multiply", np.multiply), "Tanh": ("relax.tanh", np.tanh),
    "Sigmoid": ("relax.sigmoid", lambda x: 1 / (1 + np.exp(-x))),
}  # fmt: skip
"""By ONNX operator, that of relax and its meaning."""


def of_rounding(seed: int) -> Fault:
    """Return operands that are rounded to bf16."""
    operator = list(ROUNDED)[seed % len(ROUNDED)]
    relax, meaning = ROUNDED[operator]
    graph = draw(seed + 400, (*UNARY, *BINARY), operator)
    text = with_pass(f"plant-graph-fault{{operator={relax} dtype=bf16}}", "require-dims")
    nodes = list(first_rounded(graph.model, operator, meaning))
    return Fault(f"{operator} {seed}", graph.model, TrialOptions(pipeline=text), nodes, ["plant-graph"])


def first_rounded(model: onnx.ModelProto, operator: str, meaning: Callable[..., np.ndarray]) -> Iterator[str]:
    """Yield the first node with an operator whose result differs by more than the tolerance for a rounded operand."""
    values = ReferenceEvaluator(model).run(None, {"x": FEED}, intermediate=True)
    for node in model.graph.node:
        if node.op_type != operator:
            continue
        first, *others = [np.asarray(values[name]) for name in node.input]
        rounded = first.astype(ml_dtypes.bfloat16).astype(np.float32)
        if difference(meaning(rounded, *others), meaning(first, *others), Tolerance()) is not None:
            yield node.name
            return


def of_nothing(seed: int) -> Fault:
    """Return a perturbation that no node is to blame for: rounding, which `Floor` amplifies in every second case."""
    random = np.random.default_rng(seed)
    if seed % 2:
        whole = np.tile(np.arange(1, 33)[:, None] / 300, (1, 300)).astype(np.float32)
        nodes = [
            helper.make_node("ReduceSum", ["x", "axes"], ["s"], name="total", keepdims=0),
            helper.make_node("Floor", ["s"], ["f"], name="floor"),
            helper.make_node(str(random.choice(["Neg", "Abs", "Tanh"])), ["f"], ["y"], name="behind"),
        ]
        inputs = [helper.make_tensor_value_info("x", 1, whole.shape)]
        axes = numpy_helper.from_array(np.array([1]), "axes")
        graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", 1, [32])], [axes])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return Fault(f"amplified {seed}", model, TrialOptions(), [], feeds={"x": whole})
    graph = draw(seed + 500, (*UNARY, *BINARY), "Tanh")

    def rule(op: Any, b: Any) -> Any:
        return elementwise(op, b, [op.x], lambda x: tanh(x) * 1.00001)

    return Fault(f"tiny {seed}", graph.model, TrialOptions(legalize={"relax.tanh": rule}), [])


ENDS = ("a0_quantize", "a1_quantize", "a2_quantize", "difference", "product", "y_quantize")
DEVICES = (*units.SHOWN_BY_QUANTIZED, *units.SHOWN_BY_RESIDUAL)


def of_devices(seed: int) -> Fault:
    """Return a wrong device of an accelerator, of which a quantized network shows the fault."""
    fault = DEVICES[seed % len(DEVICES)]
    target, model = units.accelerator(fault), units.network_of(fault)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(5 + seed).uniform(-2.3, 2.7, shape).astype(np.float32)
    return Fault(fault, model, TrialOptions(f"{target},llvm"), ENDS, [f"{target}."], {model.graph.input[0].name: x})


BOARD: list[BoardOptions] = []
"""The runner on this machine, while it runs."""


def of_boards(seed: int) -> Fault:
    """Return a fault of a rule, an intrinsic, a kernel or a pass in what a board runs."""
    plant = (of_rules, of_intrinsics, of_loops, of_passes)[seed % 4]
    fault = plant(seed + 700)
    return replace(fault, settings=replace(fault.settings, board=BOARD[0]))


def of_gpus(seed: int) -> Fault:
    """Return a wrong rule of an operator in what an emulated GPU runs."""
    fault = of_rules(seed + 800)
    return replace(fault, settings=replace(fault.settings, target="nvvm"))


@contextmanager
def devices(kinds: Sequence[str]) -> Iterator[None]:
    """Start the runner of a board, and emulate a GPU, for faults of these kinds."""
    with ExitStack() as stack:
        if BOARDS in kinds:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run_command(["remote", "-o", str(folder / "runner")])
            (folder / "token").write_text(f"{TOKEN}\n")
            (folder / "models").mkdir()
            runner = stack.enter_context(started([folder / "runner"], folder / "models"))
            BOARD[:] = [BoardOptions(str(runner.address), str(folder / "token"))]
        if GPUS in kinds:
            stack.enter_context(emulated())
        yield


BOARDS, GPUS = "board", "emulated GPU"
KINDS: dict[str, tuple[int, Callable[[int], Fault]]] = {
    "rule of an operator": (18, of_rules),
    "rule of an intrinsic": (12, of_intrinsics),
    "scheduled kernel": (18, of_loops),
    "pass": (18, of_passes),
    "rounding": (14, of_rounding),
    "device": (20, of_devices),
    BOARDS: (8, of_boards),
    GPUS: (4, of_gpus),
    "harmless": (10, of_nothing),
}
"""By kind, how many there are, and the function that plants one."""


def judge(fault: Fault) -> tuple[str, str]:
    """Search a fault; return whether it was blamed rightly, and what was blamed."""
    feeds = fault.feeds or {"x": FEED}
    with tempfile.TemporaryDirectory() as folder:
        departure = bisect(
            fault.model, feeds, against="reference", settings=fault.settings, bundle=Path(folder) / "bundle",
            progress=lambda text: None,
        )  # fmt: skip
    if not isinstance(departure, Departure):
        text = "no node" if departure is None else f"rounding at {departure.node}"
        return (RIGHT if not fault.nodes else MISSED), text
    culprit = departure.culprit
    blamed = f"{culprit.name} {culprit.rule} {culprit.pattern}"
    text = f"{departure.node}: {blamed}"
    if not fault.nodes or departure.node not in fault.nodes:
        return WRONG, text
    if any(each in blamed for each in fault.culprits):
        return RIGHT, text
    return (MISSED if culprit.name is None else WRONG), text


def main() -> None:
    """Search the faults, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--count", type=int)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    kept = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else {}
    chosen = [kind for kind in KINDS if not arguments.kinds or any(each in kind for each in arguments.kinds)]
    pending = [(seed, kind) for kind in chosen for seed in range(min(KINDS[kind][0], arguments.count or 1000))]
    with devices(chosen):
        for seed, kind in sorted(pending, key=lambda each: each[0]):
            key = f"{kind} {seed}"
            if key in kept:
                continue
            start = time.monotonic()
            fault = visible(KINDS[kind][1], seed)
            kept[key] = judge(fault)
            print(f"{key} ({fault.name}): {kept[key]} {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            if arguments.keep:
                arguments.keep.write_text(json.dumps(kept, indent=1))
    print(table(kept))


def visible(plant: Callable[[int], Fault], seed: int) -> Fault:
    """Plant a fault that the results show, if it may be blamed: in the first graphs drawn, later nodes may hide it."""
    for drawn in (seed, *(seed + 1009 * again for again in range(1, 21))):
        fault = plant(drawn)
        if plant in (of_nothing, of_devices) or fault.nodes and shows(fault):
            return fault
    return fault


def shows(fault: Fault) -> bool:
    """Return whether the results of a model differ with its fault by three times the tolerance."""
    settings = fault.settings
    feeds = {"x": FEED}
    planted = mirlo.compile(
        fault.model, settings.target, pipeline=settings.pipeline, legalize=settings.legalize,
        intrinsics=settings.intrinsics, cache=False, jobs=1,
    )  # fmt: skip
    pairs = zip(planted.run(feeds).values(), mirlo.compile(fault.model, jobs=1).run(feeds).values(), strict=True)
    return any(np.abs(a - b).max() > 7e-4 * np.abs(b).max() for a, b in pairs)


def table(kept: dict[str, Sequence[str]]) -> str:
    """Return the table of what was blamed, by kind."""
    lines = [
        "| fault in | planted | blamed rightly | nothing blamed | blamed wrongly |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    totals = [0, 0, 0, 0]
    for kind in KINDS:
        results = [each[0] for key, each in kept.items() if key.rpartition(" ")[0] == kind]
        if not results:
            continue
        row = [len(results), *(results.count(each) for each in (RIGHT, MISSED, WRONG))]
        totals = [a + b for a, b in zip(totals, row, strict=True)]
        lines.append(f"| {kind} | {' | '.join(map(str, row))} |")
    return "\n".join([*lines, f"| all | {' | '.join(map(str, totals))} |"])


if __name__ == "__main__":
    main()
