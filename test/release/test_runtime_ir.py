"""The LLVM IR of the run time is the translation of its C sources."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from mirlo.release import runtime_ir
from mirlo.runtime.object_loader import llvm_binding

SYSTEMS = {
    "linux": "{}-unknown-linux-gnu", "windows": "{}-w64-windows-gnu", "posix": "{}-apple-macosx13",
    "wasm32": "{}-unknown-wasi-threads",
}  # fmt: skip
FEATURES = {"riscv64": "+m,+a,+f,+d,+c", "wasm32": "+atomics,+bulk-memory"}
texts = pytest.mark.parametrize("text", runtime_ir.ALL, ids=lambda text: text.name)


@texts
def test_texts_are_those_of_the_sources(text: runtime_ir.Text) -> None:
    assert runtime_ir.is_current(text), f"{text.path.name}: run `make runtime-ir`"


def test_every_text_has_a_source() -> None:
    assert {path.stem for path in runtime_ir.TEXTS.iterdir()} == {text.name for text in runtime_ir.ALL}


@texts
@pytest.mark.skipif(not runtime_ir.has_compiler(), reason=f"there is no ziglang {runtime_ir.ZIGLANG}")
def test_the_compiler_writes_the_same(text: runtime_ir.Text) -> None:
    assert runtime_ir.translate(text) == text.path.read_text(encoding="utf-8")


def test_a_changed_source_or_text_is_noticed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = runtime_ir.ALL[0]
    content = text.path.read_text(encoding="utf-8")
    folder = tmp_path / "ir"
    folder.mkdir()
    monkeypatch.setattr(runtime_ir, "TEXTS", folder)
    text.path.write_text(content, encoding="utf-8")
    assert runtime_ir.is_current(text)
    text.path.write_text(content.replace("ret ptr", "ret  ptr", 1), encoding="utf-8")
    assert not runtime_ir.is_current(text)
    text.path.write_text(content, encoding="utf-8")
    monkeypatch.setattr(runtime_ir, "FLAGS", (*runtime_ir.FLAGS, "-O1"))
    assert not runtime_ir.is_current(text)


@texts
def test_texts_name_no_processor_and_have_no_assembly(text: runtime_ir.Text) -> None:
    content = text.path.read_text(encoding="utf-8")
    assert not re.search(r"^target |^attributes |^!", content, re.MULTILINE)
    assert bool(re.search(r"\basm\b", content)) == text.has_assembly


def test_assembly_is_refused() -> None:
    with pytest.raises(SystemExit, match="assembly is for one processor"):
        runtime_ir.plain('define void @f() {\n  call void asm sideeffect "pause", ""()\n  ret void\n}\n')


def _triples(text: runtime_ir.Text) -> list[str]:
    """Return triples of the processors and systems of a text."""
    _, _, of = text.name.partition("-")
    machine, _, system = of.partition("-")
    machines, systems = (
        ([machine], [system or machine]) if of else (["x86_64", "aarch64"], ["linux", "posix", "windows"])
    )
    return [SYSTEMS[each].format(name) for name in machines for each in systems]


@texts
def test_texts_compile_for_the_processors_and_systems_of_their_abi(text: runtime_ir.Text) -> None:
    llvm_binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for triple in _triples(text):
        module = llvm.parse_assembly(text.path.read_text(encoding="utf-8"), llvm.create_context())
        features = FEATURES.get(triple.partition("-")[0], "")
        machine = llvm.Target.from_triple(triple).create_target_machine(
            opt=1, reloc="pic", codemodel="default", features=features
        )
        module.triple, module.data_layout = triple, str(machine.target_data)
        assert machine.emit_object(module)
