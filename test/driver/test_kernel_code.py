"""The code of kernels in every form of every target: files, `Executable.code`, `explain --kernel`, `mirlo-opt`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import BOOL, F32, I64, make_model, node

import mirlo
from mirlo.driver.code import kernel_listings
from mirlo.driver.request import CompileRequest
from mirlo.passes.code_forms import CodeForm, KernelText, with_comments
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.targets import Target, TargetError, code_form, find_target
from mirlo.runtime.program import Program
from mirlo.targets.llvm import LlvmTarget
from mirlo.tools.cli import main
from mirlo.tools.opt import main as opt

HOSTILE = 'act */ ?> \n.globl evil\r\n"; ]]> \\ \x1b[2J 𝔘'
FORMS = [(target, form) for target in ("llvm", "nvvm", "spirv") for form in find_target(target).forms]
FORM_IDS = [f"{target}:{form.name}" for target, form in FORMS]


def _model() -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((16, 12)).astype(np.float32)
    nodes = [
        node("MatMul", "x w", "h", name="fc0"), node("Relu", "h", "r", name=HOSTILE),
        node("Softmax", "r", "y", name="rows", axis=-1),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F32, ("n", 16))}, ["y"], {"w": weight}, output_types={"y": (F32, ("n", 12))})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(_model(), path)
    return path


@pytest.mark.sample(5)
@pytest.mark.parametrize(("target", "form"), FORMS, ids=FORM_IDS)
def test_each_kernel_is_a_file_with_its_nodes(target: str, form: CodeForm, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    assert main(["compile", str(model), "--target", target, "--emit", form.name, "-o", str(folder)]) == 0
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert all(name.endswith(form.suffix) for name in files)
    rows = next(content for name, content in files.items() if "softmax" in name)
    product = next(content for name, content in files.items() if "matmul" in name)
    if not form.is_text:
        assert rows[:4] in (b"\x7fELF", b"\x03\x02\x23\x07", b"\xcf\xfa\xed\xfe")
        return
    assert f"{form.comment} kernel softmax\n{form.comment} node rows\n".encode() in rows
    assert f"{form.comment} node fc0\n".encode() in product
    # The name of a node must not become code: it stays on its line, in characters that end no comment.
    lines = [line for line in product.split(b"\n") if b"evil" in line]
    assert lines and all(line.startswith(form.comment.encode()) and b"*" not in line for line in lines)
    assert b"\x1b" not in product and b"\r" not in product


def test_the_llvm_ir_defines_the_kernel(model: Path) -> None:
    listings = kernel_listings(CompileRequest(str(model)), "llvm-ir")
    import llvmlite.binding as binding

    for listing in listings:
        module = binding.parse_assembly(listing.content.decode(), binding.create_context())
        assert any(f.name == listing.symbol and not f.is_declaration for f in module.functions)
        module.close()


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", ["llvm", "nvvm", "spirv"])
def test_an_executable_has_the_code_of_its_kernels(target: str) -> None:
    made = mirlo.compile(_model(), target)
    texts = {form.name: made.code("softmax", form.name) for form in find_target(target).forms}
    assert made.code("softmax") == [texts[form.name] for form in find_target(target).forms if form.is_text][-1]
    assert len({str(text) for text in texts.values()}) == len(texts)
    with pytest.raises(KeyError, match="no kernel 'sofmax'; did you mean 'softmax'\\?; its kernels: "):
        made.code("sofmax")
    with pytest.raises(TargetError, match=f"target '{target}' does not generate code of the form 'assm'.*its forms: "):
        made.code("softmax", "assm")


def test_a_file_has_no_code_for_people(tmp_path: Path) -> None:
    mirlo.compile(_model()).save(tmp_path / "m.mirlo")
    with pytest.raises(mirlo.MirloError, match="mirlo compile MODEL --emit asm"):
        mirlo.load(tmp_path / "m.mirlo").code("softmax")


def _loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            node("Identity", "c", "again"),
            node("Tanh", "v", "t", name="inside"),
            node("Softmax", "t", "u", name="rows", axis=-1),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", I64, []),
            helper.make_tensor_value_info("c", BOOL, []),
            helper.make_tensor_value_info("v", F32, [4, 8]),
        ],
        [helper.make_tensor_value_info("again", BOOL, []), helper.make_tensor_value_info("u", F32, [4, 8])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    return make_model([loop], {"n": (I64, ()), "x": (F32, (4, 8))}, ["y"], output_types={"y": (F32, (4, 8))})


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["llvm", "nvvm", "spirv"])
def test_kernels_in_the_body_of_a_loop(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listings = kernel_listings(CompileRequest(_loop(), target), find_target(target).forms[0].name)
    assert any("rows" in node for listing in listings for node in listing.nodes)
    path = tmp_path / "loop.onnx"
    onnx.save(_loop(), path)
    name = next(listing.function for listing in listings if any("rows" in node for node in listing.nodes))
    assert main(["explain", str(path), "--target", target, "--kernel", name]) == 0
    assert "relax.softmax" in capsys.readouterr().out


def test_a_program_has_the_kernels_of_its_parts() -> None:
    nodes = [
        node("Softmax", "x", "s", name="first"), node("SplitToSequence", "s", "q", axis=0, name="split"),
        node("SequenceAt", "q i", "c", name="element"), node("Tanh", "c", "y", name="second"),
    ]  # fmt: skip
    inputs = {"x": (F32, (2, 3)), "i": (I64, ())}
    program = make_model(nodes, inputs, ["y"], output_types={"y": (F32, (1, 3))})
    made = mirlo.compile(program)
    assert isinstance(made, Program)
    listings = kernel_listings(CompileRequest(program), "asm")
    assert "first" in str(made.code(next(each.function for each in listings if "first" in each.nodes)))
    assert {"first", "second"} <= {node for listing in listings for node in listing.nodes}


STAGES = {
    "llvm": ("relax.matmul", "after legalize", "after fuse-tir", "after schedule", "llvm.func", "define", ".text"),
    "nvvm": ("relax.matmul", "after legalize", "after fuse-tir", "after schedule", "llvm.func", "define", ".visible"),
    "spirv": ("relax.matmul", "after legalize", "after fuse-tir", "after schedule", "spirv.func"),
}


@pytest.mark.sample(0)
@pytest.mark.parametrize("target", STAGES)
def test_explain_prints_the_way_of_a_kernel(target: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(model), "--target", target, "--kernel", "fused_matmul_relu"]) == 0
    text = capsys.readouterr().out
    at = text.index("--- relax")
    for wanted in STAGES[target]:
        at = text.index(wanted, at)
    assert "softmax" not in text.split("--- after fuse-tir")[1].split("--- after schedule")[0]
    assert main(["explain", str(model), "--target", target, "--kernel", "fused_matmul"]) == 1
    assert "did you mean 'fused_matmul_relu'?" in capsys.readouterr().err


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "form"), FORMS, ids=FORM_IDS)
def test_mirlo_opt_goes_to_the_end(target: str, form: CodeForm, model: Path, tmp_path: Path) -> None:
    imported, out = tmp_path / "model.mlir", tmp_path / "out"
    assert main(["import", str(model), "-o", str(imported)]) == 0
    command = [str(imported), f"--pipeline={target}", f"--emit-code={target}:{form.name}", "-o", str(out)]
    assert opt([*command, "--kernel=softmax"]) == 0
    (listing,) = kernel_listings(CompileRequest(str(model), target), form.name, "softmax")
    assert out.read_bytes() == listing.content


@pytest.mark.parametrize("target", ["llvm", "nvvm", "spirv"])
def test_the_dialect_is_a_named_pipeline(target: str, model: Path, tmp_path: Path) -> None:
    dialect = find_target(target).forms[0].name
    assert len(Pipeline.named(f"{target}:{dialect}")) == len(Pipeline.named(target)) + 1
    imported, out = tmp_path / "model.mlir", tmp_path / "out.mlir"
    assert main(["import", str(model), "-o", str(imported)]) == 0
    assert opt([str(imported), f"--pipeline={target}:{dialect}", "-o", str(out)]) == 0
    text = out.read_text()
    assert "softmax" in text and "fused_matmul_relu" in text
    assert not any(word in text for word in ("relax.call", "tir.for", "scf.for", "vector.transfer"))


def test_stages_are_saved_to_the_end(model: Path, tmp_path: Path) -> None:
    mirlo.compile(str(model), save_ir=tmp_path / "stages")
    found = {path.name for path in (tmp_path / "stages" / "code").iterdir()}
    assert {"softmax.mlir", "softmax.ll", "softmax.s", "main.s", "fused_matmul_relu.ll"} <= found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--emit", "asmm"], "does not generate code of the form 'asmm'; did you mean 'asm'?"),
        (["--emit", "ptx"], "its forms: llvm-dialect, llvm-ir, asm, obj"),
        (["--emit", "asm", "--kernel", "soft"], "the model has no kernel 'soft'"),
        (["--emit", "library", "--kernel", "softmax"], "'--kernel' is for forms of code"),
        (["--emit", "library", "--target", "nvvm"], "target 'nvvm' does not build libraries"),
    ],
)
def test_errors(words: list[str], message: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), *words]) == 1
    assert message in capsys.readouterr().err


class _Child(Target):
    emit = LlvmTarget.emit


class _Other(Target):
    def emit(self, module: Any, options: Any) -> Any:
        return None


def test_a_target_that_emits_as_its_parent_has_its_forms() -> None:
    child = _Child("child", "", parent="llvm")
    assert code_form(child, "asm").suffix == ".s"
    other = _Other("other", "", parent="llvm")
    with pytest.raises(TargetError, match="target 'other' does not generate code of the form 'asm'; its forms: none"):
        code_form(other, "asm")


def test_comments_are_for_text_only() -> None:
    text = KernelText("k", "k", b"code")
    assert with_comments(text, ["a"], CodeForm("bin", ".bin")) == b"code"
    assert with_comments(text, ["a\nb"], CodeForm("txt", ".txt", "#")) == b"# kernel k\n# node a_b\ncode"
