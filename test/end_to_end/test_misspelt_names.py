"""Everything that takes a name rejects unknown ones, and suggests the nearest."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper, save

import mirlo
from mirlo.extend.codegen import is_op, rewriter
from mirlo.extend.rules import decline
from mirlo.extend.target import Pipeline, find_target
from mirlo.tools import cli, opt
from mirlo.tools.explain.model import explain_model

ARRAY = np.zeros((4, 8), np.float32)


class Setting:
    """A model in its forms, a plug-in and an array."""

    def __init__(self, folder: Path) -> None:
        value = helper.make_tensor_value_info
        nodes = [
            helper.make_node("MatMul", ["data", "w"], ["m"], name="product"),
            helper.make_node("Relu", ["m"], ["r"], name="activation"),
            helper.make_node("Softmax", ["r"], ["result"], name="distribution"),
        ]
        weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
        graph = helper.make_graph(
            nodes, "g", [value("data", 1, ["batch", 8])], [value("result", 1, ["batch", 8])], [weight]
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        self.folder, self.path, self.ir = folder, folder / "model.onnx", folder / "model.mlir"
        save(self.model, self.path)
        np.save(folder / "x.npy", ARRAY)
        (folder / "plugin.py").write_text("import mirlo\n")
        assert cli.main(["import", str(self.path), "-o", str(self.ir), "--dim", "batch=4"]) == 0
        self.executable = mirlo.compile(self.model, dims={"batch": 4}, cache=False)

    def compile(self, target: str = "llvm", **options: Any) -> None:
        mirlo.compile(self.model, target, cache=False, **{"dims": {"batch": 4}, **options})

    def mirlo(self, *arguments: object) -> None:
        _command(cli.main, arguments)

    def opt(self, *arguments: object) -> None:
        _command(opt.main, (self.ir, *arguments))


def _command(main: Callable[[list[str]], int], arguments: tuple[object, ...]) -> None:
    """Run a command in this process; raise its output as an error if it fails."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(printed):
        try:
            code: Any = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
    if code:
        raise ValueError(printed.getvalue())


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting(tmp_path_factory.mktemp("names"))


def rule(*arguments: Any) -> Any:
    return decline("not today")


GRAPH = '@R.function\ndef main(x: R.Tensor[(4,), "f32"]):\n    return R.{}\n'
PRIM = """
@T.prim_func
def f(x: T.Buffer[(4,), "f32"], y: T.Out[(4,), "f32"]):
    for i in T.grid(4):
        y[i] = T.{}(x[i])
"""
MIXED = "to-mixed-precision{{keep={0}}},legalize,schedule,lower-intrinsics,plan-memory"
SIZE = ("--dim", "batch=4")
Use = Callable[[Setting, str], object]

KEYS: dict[str, tuple[str, Use]] = {
    "target": ("llvm", lambda s, n: s.compile(n)),
    "target of a list": ("onnx", lambda s, n: s.compile(f"{n},llvm")),
    "option of a target": ("cpu", lambda s, n: s.compile(f"llvm{{{n}=native}}")),
    "option of a code generator": ("compiler", lambda s, n: s.compile(f"c{{{n}=cc}},llvm")),
    "legalize= operator": ("relax.softmax", lambda s, n: s.compile(legalize={n: rule})),
    "legalize= node": ("distribution", lambda s, n: s.compile(legalize={f"node:{n}": rule})),
    "legalize= node of explain": ("distribution", lambda s, n: explain_model(s.model, legalize={f"node:{n}": rule})),
    "legalize= node of a region": (
        "distribution", lambda s, n: s.compile("onnx,llvm", legalize={f"node:{n}": rule}),
    ),
    "intrinsics=": ("exp", lambda s, n: s.compile(intrinsics={n: rule})),
    "strategies= operator": ("relax.matmul", lambda s, n: s.compile(strategies={n: "x"})),
    "strategies= name": ("softmax", lambda s, n: s.compile(strategies={"relax.softmax": n})),
    "strategies=": ("measure", lambda s, n: s.compile(strategies=n)),
    "schedules=": ("fused_matmul_relu", lambda s, n: s.compile(schedules={n: lambda words: None})),
    "placement= generator": ("onnx", lambda s, n: s.compile("onnx,llvm", placement={n: [0]})),
    "placement=": ("estimated", lambda s, n: s.compile("onnx,llvm", placement=n)),
    "shapes=": ("data", lambda s, n: s.compile(shapes={n: [4, 8]}, dims=None)),
    "dims=": ("batch", lambda s, n: s.compile(dims={n: 4})),
    "specialize=": ("batch", lambda s, n: s.compile(specialize=[{n: 2}], dims=None)),
    "precision=": ("bf16", lambda s, n: s.compile(precision=n)),
    "activations=": ("exact", lambda s, n: s.compile(activations=n)),
    "pass": ("fold-constant", lambda s, n: s.compile(pipeline=f"simplify,{n},legalize")),
    "option of a pass": ("target", lambda s, n: s.compile(pipeline=f"legalize{{{n}=llvm}}")),
    "option of an upstream pass": ("top-down", lambda s, n: s.compile(pipeline=f"canonicalize{{{n}=true}}")),
    "target of a pass": ("llvm", lambda s, n: s.compile(pipeline=f"legalize{{target={n}}}")),
    "skip of a pass": ("relax.softmax", lambda s, n: s.compile(pipeline=f"legalize{{skip={n}}}")),
    "targets of partition": ("onnx", lambda s, n: s.compile(pipeline=f"partition{{targets={n}}}")),
    "nodes of partition": ("onnx", lambda s, n: s.compile(pipeline=f"partition{{targets=onnx nodes={n}=0}}")),
    "keep operator": ("relax.matmul", lambda s, n: s.compile(pipeline=MIXED.format(n))),
    "keep node": ("product", lambda s, n: s.compile(pipeline=MIXED.format(f"node:{n}"))),
    "dtype of a pass": ("bf16", lambda s, n: s.compile(pipeline=f"to-mixed-precision{{dtype={n}}}")),
    "machine of a pass": ("avx2", lambda s, n: s.compile(pipeline=f"legalize,schedule{{machine={n}}}")),
    "schedule file": (
        "matmul", lambda s, n: s.compile(pipeline=f"legalize,schedule{{given={n}={s.folder}/plugin.py}}"),
    ),
    "cpu of a target": ("x86-64-v3", lambda s, n: s.compile(f"llvm{{cpu={n}}}")),
    "features of a target": ("avx2", lambda s, n: s.compile(f"llvm{{features={n}}}")),
    "chip of a target": ("sm_90a", lambda s, n: s.compile(f"nvvm{{chip={n}}}")),
    "pipeline": ("llvm", lambda s, n: Pipeline.named(n)),
    "insert_before": ("legalize", lambda s, n: Pipeline.named("llvm").insert_before(n, "cse")),
    "insert_after": ("legalize", lambda s, n: Pipeline.named("llvm").insert_after(n, "cse")),
    "remove": ("legalize", lambda s, n: Pipeline.named("llvm").remove(n)),
    "replace": ("legalize", lambda s, n: Pipeline.named("llvm").replace(n, "cse")),
    "find_target": ("llvm", lambda s, n: find_target(n)),
    "is_op": ("relax.softmax", lambda s, n: rewriter(is_op(n))(rule)),
    "word of a schedule": ("reorder", lambda s, n: s.compile(schedules={"softmax": lambda words: getattr(words, n)})),
    "method of a builder": (
        "call_prim", lambda s, n: s.compile(legalize={"relax.softmax": lambda op, b: getattr(b, n)}),
    ),
    "operator of a script": ("softmax", lambda s, n: mirlo.parse_script(GRAPH.format(f"{n}(x)"))),
    "attribute of a script": ("axis", lambda s, n: mirlo.parse_script(GRAPH.format(f"softmax(x, {n}=0)"))),
    "word of a prim function": ("exp", lambda s, n: mirlo.parse_script(PRIM.format(n))),
    "input of a session": ("data", lambda s, n: mirlo.InferenceSession(str(s.path)).run(None, {n: ARRAY})),
    "output of a session": ("result", lambda s, n: mirlo.InferenceSession(str(s.path)).run([n], {"data": ARRAY})),
    "input by run": ("data", lambda s, n: s.executable.run({n: ARRAY})),
    "input by call": ("data", lambda s, n: s.executable(**{n: ARRAY})),
    "kernel of code": ("softmax", lambda s, n: s.executable.code(n)),
    "form of code": ("llvm-ir", lambda s, n: s.executable.code("softmax", n)),
    "mirlo": ("compile", lambda s, n: s.mirlo(n, s.path)),
    "mirlo compile flag": ("--target", lambda s, n: s.mirlo("compile", s.path, n, "llvm")),
    "mirlo --plugin file": ("plugin", lambda s, n: s.mirlo("compile", s.path, "--plugin", s.folder / f"{n}.py")),
    "mirlo --plugin module": ("mirlo.extend", lambda s, n: s.mirlo("compile", s.path, "--plugin", n)),
    "mirlo --sample": ("mobilenetv2", lambda s, n: s.mirlo("compile", "--sample", n)),
    "mirlo --target": ("llvm", lambda s, n: s.mirlo("compile", s.path, "--target", n)),
    "mirlo --dim": ("batch", lambda s, n: s.mirlo("compile", s.path, "--dim", f"{n}=4")),
    "mirlo --shape": ("data", lambda s, n: s.mirlo("compile", s.path, "--shape", f"{n}=4x8")),
    "mirlo --specialize": ("batch", lambda s, n: s.mirlo("compile", s.path, "--specialize", f"{n}=4")),
    "mirlo --strategy": ("relax.matmul", lambda s, n: s.mirlo("compile", s.path, *SIZE, "--strategy", f"{n}=x")),
    "mirlo --emit": ("llvm-ir", lambda s, n: s.mirlo("compile", s.path, *SIZE, "--emit", n)),
    "mirlo --kernel": ("softmax", lambda s, n: s.mirlo("compile", s.path, *SIZE, "--emit", "asm", "--kernel", n)),
    "mirlo --precision": ("bf16", lambda s, n: s.mirlo("compile", s.path, "--precision", n)),
    "mirlo --cost": ("estimated", lambda s, n: s.mirlo("compile", s.path, "--cost", n)),
    "mirlo --pipeline": ("fold-constant", lambda s, n: s.mirlo("compile", s.path, *SIZE, "--pipeline", n)),
    "mirlo run --input": ("data", lambda s, n: s.mirlo("run", s.path, *SIZE, "--input", f"{n}={s.folder}/x.npy")),
    "mirlo explain operator": ("relax.softmax", lambda s, n: s.mirlo("explain", n)),
    "mirlo explain intrinsic": ("tir.exp", lambda s, n: s.mirlo("explain", n)),
    "mirlo explain --node": ("distribution", lambda s, n: s.mirlo("explain", s.path, *SIZE, "--node", n)),
    "mirlo explain --kernel": ("softmax", lambda s, n: s.mirlo("explain", s.path, *SIZE, "--kernel", n)),
    "mirlo explain --target": ("llvm", lambda s, n: s.mirlo("explain", s.path, *SIZE, "--target", n)),
    "mirlo check --target": ("llvm", lambda s, n: s.mirlo("check", s.path, "--target", n)),
    "mirlo check-target": ("llvm", lambda s, n: s.mirlo("check-target", n)),
    "mirlo check-target --operator": (
        "relax.softmax", lambda s, n: s.mirlo("check-target", "llvm", "--operator", n),
    ),
    "mirlo bisect --against": ("onnxruntime", lambda s, n: s.mirlo("bisect", s.path, "--against", n)),
    "mirlo bisect --target": ("llvm", lambda s, n: s.mirlo("bisect", s.path, *SIZE, "--target", n)),
    "mirlo bisect --input": ("data", lambda s, n: s.mirlo("bisect", s.path, "--input", f"{n}={s.folder}/x.npy")),
    "mirlo bisect --dim": ("batch", lambda s, n: s.mirlo("bisect", s.path, "--dim", f"{n}=4")),
    "mirlo bisect --pipeline": ("fold-constant", lambda s, n: s.mirlo("bisect", s.path, *SIZE, "--pipeline", n)),
    "mirlo fuzz": ("graphs", lambda s, n: s.mirlo("fuzz", n, "--count", 1)),
    "mirlo fuzz --target": ("llvm", lambda s, n: s.mirlo("fuzz", "graphs", "--target", n, "--count", 1)),
    "mirlo new": ("operator", lambda s, n: s.mirlo("new", n, "mine", "--into", s.folder)),
    "mirlo tune --target": ("llvm", lambda s, n: s.mirlo("tune", s.path, *SIZE, "--target", n, "--seconds", 1)),
    "mirlo tune --dim": ("batch", lambda s, n: s.mirlo("tune", s.path, "--dim", f"{n}=4", "--seconds", 1)),
    "mirlo partition --target": ("onnx", lambda s, n: s.mirlo("partition", s.path, *SIZE, "--target", f"{n},llvm")),
    "mirlo partition --node": (
        "distribution", lambda s, n: s.mirlo("partition", s.path, *SIZE, "--target", "onnx,llvm", "--node", n),
    ),
    "mirlo bench --against": ("onnxruntime", lambda s, n: s.mirlo("bench", s.path, "--against", n)),
    "mirlo cache": ("clear", lambda s, n: s.mirlo("cache", n)),
    "mirlo completion": ("bash", lambda s, n: s.mirlo("completion", n)),
    "mirlo-opt pass": ("fold-constant", lambda s, n: s.opt(f"--{n}")),
    "mirlo-opt flag": ("--mlir-timing", lambda s, n: s.opt(n)),
    "mirlo-opt --pass-pipeline": ("fold-constant", lambda s, n: s.opt(f"--pass-pipeline={n}")),
    "mirlo-opt --pipeline": ("llvm", lambda s, n: s.opt(f"--pipeline={n}")),
    "mirlo-opt option": ("target", lambda s, n: s.opt(f"--legalize={n}=llvm")),
    "mirlo-opt keep node": ("product", lambda s, n: s.opt(f"--to-mixed-precision=keep=node:{n}")),
    "mirlo-opt --mlir-print-ir-after": ("legalize", lambda s, n: s.opt("--legalize", f"--mlir-print-ir-after={n}")),
    "mirlo-opt --mlir-print-ir-before": ("legalize", lambda s, n: s.opt("--legalize", f"--mlir-print-ir-before={n}")),
    "mirlo-opt --load-pass-plugin": ("plugin", lambda s, n: s.opt(f"--load-pass-plugin={s.folder}/{n}.py")),
    "mirlo-opt --emit-code": ("asm", lambda s, n: s.opt("--pipeline=llvm", f"--emit-code=llvm:{n}")),
    "mirlo-opt --kernel": ("softmax", lambda s, n: s.opt("--pipeline=llvm", "--emit-code=llvm:asm", f"--kernel={n}")),
    "mirlo-opt --help": ("legalize", lambda s, n: _command(opt.main, ("--help", n))),
}  # fmt: skip


def misspelt(name: str) -> str:
    """Return a name with its last two characters exchanged, or without the last one where they are the same."""
    return name[:-1] if name[-1] == name[-2] else f"{name[:-2]}{name[-1]}{name[-2]}"


@pytest.mark.sample(6)
@pytest.mark.parametrize("key", KEYS)
def test_a_misspelt_name(key: str, setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, use = KEYS[key]
    with pytest.raises(Exception) as raised:  # noqa: PT011 # of each part its own
        use(setting, misspelt(name))
    text = str(raised.value)
    assert misspelt(name) in text and name in text.replace(misspelt(name), ""), text
    assert "Traceback" not in text and type(raised.value) not in (KeyError, AttributeError), text


def test_what_became_of_a_node_is_told(setting: Setting, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule for a node of the model that no operator comes from is no error, but a warning that says why."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["v"], name="of weights"),
        helper.make_node("MatMul", ["data", "v"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["a"], name="first"),
        helper.make_node("Relu", ["m"], ["b"], name="second"),
        helper.make_node("Exp", ["m"], ["c"], name="unneeded"),
        helper.make_node("Add", ["a", "b"], ["result"], name="sum"),
    ]
    value = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "g", [value("data", 1, [4, 8])], [value("result", 1, [4, 8])], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    fates = {
        "of weights": "the import computed it, or it changes nothing",
        "unneeded": "no output of the model needs it",
        "second": "after pass 'cse' there is none",
    }
    given = {f"node:{node.name}": rule for node in nodes}
    mirlo.compile(model, legalize=given, cache=False)
    warnings = capsys.readouterr().err.splitlines()
    start = "warning: the rule given for 'node:{}' was never tried: no operator comes from this node: {}"
    assert sorted(warnings) == sorted(start.format(name, why) for name, why in fates.items())
    mirlo.compile(model, "onnx,llvm", legalize={"node:product": rule}, cache=False)
    assert "the code generator of 'onnx' took the node, with pattern 'matmul'" in capsys.readouterr().err
