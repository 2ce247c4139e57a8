"""Every preset of the machine: the benchmark models and random operators compile for it and compute the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_models import F32, make_model, node
from presets import compile_for_preset
from weightless import weightless_model

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import PassError
from mirlo.passes.session import Session
from mirlo.runtime.host_cpu import AMX, HostCpu, host_cpu
from mirlo.targets.llvm.intrinsics.x86 import missing_instruction
from mirlo.targets.llvm.machine import PRESETS, Machine
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.object_code import compile_text
from mirlo.targets.llvm.options import find_machine, parse_options
from mirlo.targets.llvm.pipeline import compile_pipeline, lower_to_llvm
from mirlo.targets.llvm.processor import Processor, host_processor

MODELS = ("bert_base", "gpt2", "mobilenetv2", "resnet50", "vit_base")
PASSES = compile_pipeline().removeprefix("builtin.module(").removesuffix(")")
COMMON, AFTER = PASSES.split(",apply-tuning", 1)
"""The passes that no machine changes, and those after them."""
DTYPES = {"f32": F32, "u8": onnx.TensorProto.UINT8, "i8": onnx.TensorProto.INT8, "bf16": onnx.TensorProto.BFLOAT16}


def _distinct() -> list[str]:
    """Return a preset of each kind: some differ in products of low precision only, which the models have none of."""
    kinds: dict[Machine, str] = {}
    for name, machine in PRESETS.items():
        kinds.setdefault(replace(machine, name="", dots=()), name)
    return list(kinds.values())


def _for_machine(passes: str, name: str) -> str:
    """Return a pipeline whose passes plan for a machine."""
    passes = re.sub(r"\b(schedule|lower-intrinsics)\{", rf"\g<0>machine={name} ", passes)
    return re.sub(r"\b(winograd|pack-weights|pack-nbits)\b", rf"\1{{machine={name}}}", passes)


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", MODELS)
def test_models_compile_for_every_preset(name: str, tmp_path: Path) -> None:
    module, store = import_model(weightless_model(name, tmp_path))
    with module.context, ir.Location.unknown():
        Pipeline(f"builtin.module({COMMON})").run(module, Session(store))
        for preset in _distinct():
            copy = module.operation.clone()
            Pipeline(f"builtin.module(apply-tuning{AFTER})").run(copy, Session(store, options={"machine": preset}))
            assert copy.verify()


class Operators:
    """A model of independent random operators, each with its own output."""

    def __init__(self, seed: int):
        self.generator = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.inputs: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.constants: dict[str, np.ndarray] = {}

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.generator.integers(len(choices)))]

    def size(self, largest: int) -> int:
        """Return a size: often 1, a power of two or one off it."""
        near = 1 << int(self.generator.integers(0, largest.bit_length()))
        random = int(self.generator.integers(1, largest + 1))
        return min(largest, max(1, self.pick(1, near - 1, near, near + 1, random)))

    def input(self, dtype: str, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = DTYPES[dtype], shape
        return name

    def weight(self, dtype: str, *shape: int) -> str:
        """Return an operand that is a constant, or an input."""
        if dtype == "bf16" or self.pick(True, False):
            return self.input(dtype, *shape)
        name = f"w{len(self.constants)}"
        self.constants[name] = self.values(DTYPES[dtype], shape)
        return name

    def values(self, kind: int, shape: tuple[int, ...]) -> np.ndarray:
        element = onnx.helper.tensor_dtype_to_np_dtype(kind)
        if np.dtype(element).kind in "ui":
            info = np.iinfo(element)
            return self.generator.integers(info.min, info.max + 1, shape).astype(element)
        return self.generator.standard_normal(shape).astype(element)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> None:
        self.nodes.append(node(operator, " ".join(inputs), f"y{len(self.nodes)}", **attributes))

    def matmul(self, low_precision: bool) -> None:
        left, right = self.pick(("u8", "i8"), ("i8", "i8"), ("bf16", "bf16")) if low_precision else ("f32", "f32")
        m, k, n = self.size(40), self.size(300), self.size(300)
        batch = self.pick((), (), (self.size(3),))
        operator = "MatMul" if left in ("f32", "bf16") else "MatMulInteger"
        self.add(operator, self.input(left, *batch, m, k), self.weight(right, *self.pick((), batch), k, n))

    def convolution(self) -> None:
        groups = self.pick(1, 1, 2, 8)
        cin, cout = groups * self.size(12), groups * self.size(24)
        kernel, stride, image = self.pick(1, 3, 5), self.pick(1, 1, 2), [5 + self.size(20), 5 + self.size(20)]
        weight = self.weight("f32", cout, cin // groups, kernel, kernel)
        pads = [self.pick(0, kernel // 2)] * 4
        self.add("Conv", self.input("f32", 1, cin, *image), weight, group=groups, strides=[stride] * 2, pads=pads)

    def window(self) -> None:
        kernel, x = self.pick(2, 3), self.input("f32", 1, self.size(40), 3 + self.size(30), 3 + self.size(30))
        operator = self.pick("MaxPool", "AveragePool")
        self.add(operator, x, kernel_shape=[kernel] * 2, strides=[self.pick(1, 2)] * 2, pads=[self.pick(0, 1)] * 4)

    def rows(self) -> None:
        operator = self.pick("Softmax", "LogSoftmax", "ReduceMean", "LpNormalization")
        x = self.input("f32", self.size(20), self.size(600))
        self.add(operator, x, **({"keepdims": 1} if operator == "ReduceMean" else {"axis": self.pick(0, 1)}))

    def elementwise(self) -> None:
        x = self.input("f32", self.size(9), self.size(100))
        self.add(self.pick("Sigmoid", "Exp", "Erf", "Tanh", "Softplus", "Gelu"), x)

    def movement(self) -> None:
        x = self.input(self.pick("f32", "i8", "u8"), self.size(20), self.size(40), self.size(70))
        self.add("Transpose", x, perm=self.generator.permutation(3).tolist())

    def model(self, low_precision: bool) -> Any:
        for add in (self.convolution, self.window, self.rows, self.elementwise, self.movement) * 2:
            add()
        for _ in range(3):
            self.matmul(low_precision)
        outputs = [f"y{i}" for i in range(len(self.nodes))]
        return make_model(self.nodes, self.inputs, outputs, self.constants, opset=20)


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(4))
def test_random_operators_are_planned_for_every_preset(seed: int) -> None:
    module, store = import_model(Operators(seed).model(low_precision=True))
    with module.context, ir.Location.unknown():
        Pipeline(f"builtin.module({COMMON})").run(module, Session(store))
        for preset in PRESETS:
            copy = module.operation.clone()
            passes = _for_machine(f"apply-tuning{AFTER}", preset)
            Pipeline(f"builtin.module({passes})").run(copy, Session(store))
            lower_to_llvm(copy.opview, host_processor())
            assert _without_instructions_of_others(str(copy), PRESETS[preset])


def _without_instructions_of_others(text: str, machine: Machine) -> bool:
    """Return whether code asks for nothing that a machine lacks."""
    used = set(_used_instructions(text))
    wide = {name for name in used if name.endswith(".512")}
    has = {"u8xi8": "vpdpbusd", "bf16": "dpbf16ps", "i16": "pmadd"}
    lacked = [word for dot, word in has.items() if dot not in machine.dots]
    return (machine.vector_bytes == 64 or not wide) and not any(word in name for word in lacked for name in used)


def _used_instructions(text: str) -> Iterator[str]:
    return (match.group(1) for match in re.finditer(r'"llvm\.x86\.([\w.]+)"', text))


@pytest.mark.sample(0)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("preset", PRESETS)
def test_random_operators_compute_the_same_for_every_preset(preset: str, seed: int) -> None:
    operators = Operators(100 + seed)
    model = operators.model(low_precision=False)
    arrays = {name: operators.values(*found) for name, found in operators.inputs.items()}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    pipeline = f"builtin.module({_for_machine(PASSES, preset)})"
    executable = compile_for_preset(preset, model, pipeline=pipeline)
    if executable is None:
        return
    for found, wanted in zip(executable.run(arrays).values(), session.run(None, arrays), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.sample(1)
@pytest.mark.processors
def test_kernels_of_all_families_compile_for_each_processor(processor: str) -> None:
    """Code that does not run here is compiled: products, windows, rows, arithmetic and copies."""
    model = make_model(
        [
            node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("MaxPool", "c", "p", kernel_shape=[3, 3]),
            node("Transpose", "p", "t", perm=[0, 2, 3, 1]), node("Softmax", "t", "s"), node("Gelu", "s", "y"),
            node("MatMulInteger", "a b", "z"), node("Cast", "z", "q", to=DTYPES["bf16"]), node("MatMul", "q v", "u"),
        ],
        {"x": (F32, [1, 3, 9, 11]), "a": (DTYPES["u8"], [3, 40]), "v": (DTYPES["bf16"], [17, 20])}, ["y", "u"],
        {"w": np.ones((17, 3, 3, 3), np.float32), "b": np.ones((40, 17), np.int8)}, opset=20,
    )  # fmt: skip
    executable = mirlo.compile(model, target=f"llvm{{{processor}}}", cache=False, jobs=1)
    assert {"contraction", "injective", "row"} <= {kernel.kind for kernel in executable.artifact.kernels}
    described = parse_options(processor).processor
    assert executable.artifact.metadata["triple"] == described.triple
    assert set(executable.artifact.metadata["features"]) == set(described.features) - AMX


def test_presets_take_nothing_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: find_machine(name) for name in PRESETS}
    every = frozenset(("avx2", "avx512f", "avx512vl", "avx512bw", "avx512vnni", "avx512bf16", "avxvnni"))
    for features in (frozenset[str](), every):
        monkeypatch.setattr(
            "mirlo.targets.llvm.processor.host_cpu", lambda features=features: HostCpu("", features, host_cpu().triple)
        )
        assert {name: find_machine(name) for name in PRESETS} == before


@pytest.mark.parametrize(("name", "features", "lacked"), [
    ("avx512.mask.scalef.ps.512", {"avx2"}, "avx512f"),
    ("avx512.mask.range.ps.512", {"avx512f"}, "avx512dq"),
    ("avx512.vpdpbusd.256", {"avx512f", "avx512vnni"}, "avx512vnni and avx512vl"),
    ("avx512.vpdpbusd.256", {"avx2", "avxvnni"}, None),
    ("avx512.vpdpbusd.512", {"avx2", "avxvnni"}, "avx512vnni"),
    ("avx512bf16.dpbf16ps.512", {"avx512f", "avx512bf16"}, None),
    ("avx512.pmaddw.d.512", {"avx512f"}, "avx512bw"),
    ("avx2.pmadd.wd", {"sse2"}, "avx2"),
    ("sse2.pmadd.wd", set(), None),
])  # fmt: skip
def test_instructions_need_features(name: str, features: set[str], lacked: str | None) -> None:
    processor = Processor("x86_64-unknown-linux-gnu", "x86-64", tuple(features))
    found = missing_instruction(f'llvm.call_intrinsic "llvm.x86.{name}"(%0)', processor)
    assert found == (None if lacked is None else (f"llvm.x86.{name}", lacked))


@pytest.mark.parametrize(
    ("processor", "lacked"),
    [
        (Processor("x86_64-unknown-linux-gnu", "haswell", ("avx2",)), "avx512bw"),
        (Processor("aarch64-unknown-linux-gnu", "neoverse-n1", ("dotprod",)), "avx512bw"),
    ],
)
def test_code_for_another_machine_is_refused(processor: Processor, lacked: str) -> None:
    """LLVM would end the process."""
    text = """func.func @kernel(%x: vector<16xi32>, %y: vector<32xi16>) {
      %0 = llvm.call_intrinsic "llvm.x86.avx512.pmaddw.d.512"(%y, %y)
        : (vector<32xi16>, vector<32xi16>) -> vector<16xi32>
      return
    }"""
    with pytest.raises(PassError, match=rf"no instruction for 'llvm.x86.avx512.pmaddw.d.512' .* lacks {lacked}"):
        compile_text(text, CodeSettings(processor))


def test_exp_is_scaled_for_the_machine_of_the_pass() -> None:
    """Not for the host: code for another machine must not use the host's AVX-512."""
    model = make_model([node("Exp", "x", "y")], {"x": (F32, (4, 64))}, ["y"])
    for preset, machine in PRESETS.items():
        module, store = import_model(model)
        with module.context, ir.Location.unknown():
            Pipeline(f"builtin.module({_for_machine(PASSES, preset)})").run(module, Session(store))
            assert ("avx512.mask.scalef" in str(module)) == (machine.vector_bytes == 64)
