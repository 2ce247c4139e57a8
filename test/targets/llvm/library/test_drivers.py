"""Regions of code generators in libraries: as C, as object code, and as programs of a driver, all without Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import emulated_aarch64
import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler, sanitizer_flags
from libraries import Program, make_program, make_source_program
from library_models import compiler, require_same
from native_units import DRIVER, compile_object, register_units
from onnx_models import F32, make_model, node

import mirlo
from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.extend.codegen import Artifact, CodeGenerator, is_op, wildcard
from mirlo.extend.target import Target, register_target
from mirlo.runtime.artifact import load
from mirlo.targets.llvm.library.build import link_model, write_library
from mirlo.targets.llvm.library.description import LibraryError
from mirlo.tools.cli import main

pytestmark = needs_c_compiler
UNIT_DRIVER = Path(__file__).parents[3] / "support" / "unit_driver.c"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 8)).astype(np.float32)
FORMS = ("driver", "shipped", "source", "object")


@pytest.fixture(autouse=True)
def _units() -> None:
    register_units()


def model(rows: int | str = "n") -> onnx.ModelProto:
    """Return a model of two products for the unit, between which there is a buffer, and of two regions in C."""
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((8, 16)).astype(np.float32), "v": rng.standard_normal((16, 6)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("MatMul", "b v", "c"), node("Neg", "c", "d"),
        node("Softmax", "d", "e"), node("Neg", "e", "y"),
    ]  # fmt: skip
    return make_model(nodes, {"x": (F32, (rows, 8))}, ["y"], weights)


def targets(form: str = "driver", host: str = "llvm") -> str:
    return f"unit{{form={form}}},shifter,{host}"


def linked(folder: Path, form: str = "driver", rows: int | str = "n", **options: object) -> Program:
    """Make a program of the model, with which the driver is linked where the library has none."""
    flags = [str(UNIT_DRIVER)] if form == "driver" else []
    flags += options.pop("flags", [])  # type: ignore[call-overload]
    return make_program(model(rows), folder, compiler(), targets(form), flags=flags, **options)  # type: ignore[arg-type]


@pytest.mark.sample(0)
@pytest.mark.parametrize("rows", ["n", 5])
@pytest.mark.parametrize("form", FORMS)
def test_objects(form: str, rows: int | str, tmp_path: Path) -> None:
    program = linked(tmp_path, form, rows)
    require_same(program, model(rows), {"x": X}, target=targets(form))
    assert program.run({"x": X}, threads=4, calls=20)[0].shape == (5, 6)
    if rows == "n":
        require_same(program, model(rows), {"x": X[:0]}, target=targets(form))


@pytest.mark.sample(0)
@pytest.mark.parametrize("form", FORMS)
def test_shared_libraries(form: str, tmp_path: Path) -> None:
    """Call a driver of the program from a library, or that of the library; the weights are in a file."""
    program = linked(tmp_path, form, shared=True, weights="beside", flags=["-rdynamic"] if form == "driver" else [])
    require_same(program, model(), {"x": X}, target=targets(form))
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", str(tmp_path / "libmodel.so")], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[-1] for line in exported.splitlines()] == ["mirlo_model_model"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weights", ["embed", "beside"])
def test_source(weights: str, form: str, tmp_path: Path) -> None:
    program = make_source_program(
        model(), tmp_path, compiler(), target=targets(form, "c"), weights=weights,
        sources=[UNIT_DRIVER] if form == "driver" else [],
    )  # fmt: skip
    path = [str(tmp_path / "model.weights")] if weights == "beside" else []
    expected = mirlo.compile(model(), targets(form, "c"), cache=False, jobs=1)(X)
    np.testing.assert_array_equal(program.run({"x": X}, 1, 3, *path)[0], expected)


REGISTERED = """
#define unit_run own_unit_run
#include "unit_driver.c"
static int code = CODE;
#define OWN_FUNCTIONS {"NAME", NULL, own_unit_run, &code}
"""


def registered(folder: Path, code: int = 0, name: str = "unit_run", **options: object) -> Program:
    """Make a program that registers the driver when it runs, with a context: the code that it returns."""
    folder.mkdir(parents=True, exist_ok=True)
    text = REGISTERED.replace("CODE", str(code)).replace("NAME", name)
    (folder / "functions.h").write_text(text)
    flags = [f'-DFUNCTIONS="{folder / "functions.h"}"', f"-I{UNIT_DRIVER.parent}"]
    form = str(options.pop("form", "driver"))
    return make_program(model(), folder, compiler(), targets(form), flags=flags, **options)  # type: ignore[arg-type]


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["unit_run", "unit.unit_0"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_registered_driver(shared: bool, name: str, tmp_path: Path) -> None:
    require_same(registered(tmp_path, name=name, shared=shared), model(), {"x": X}, target=targets())


@pytest.mark.parametrize("form", ["driver", "shipped"])
def test_the_error_of_a_driver(form: str, tmp_path: Path) -> None:
    """A registered driver, in place of one in the library too, has a context that makes it fail."""
    with pytest.raises(
        AssertionError, match=r"the driver 'unit_run' of the region 'unit.unit_0' failed: it returned 77"
    ):
        registered(tmp_path, 77, form=form).run({"x": X})


@pytest.mark.parametrize("shared", [False, True])
def test_a_missing_driver(shared: bool, tmp_path: Path) -> None:
    program = make_program(model(), tmp_path, compiler(), targets(), shared=shared)
    done = program.start()
    assert done.returncode == 3
    assert (
        "status 7: 'model' calls the driver 'unit_run' for the region 'unit.unit_0': link it, or name it in "
        "options.functions"
    ) in done.stderr
    header = (tmp_path / "model.h").read_text()
    assert "It calls the driver unit_run for unit.unit_0: link it, or name it in options.functions." in header
    assert "int unit_run(const mirlo_region *region, DLTensor **tensors, int64_t count);" in header


TWO_DEVICES = r"""
#include "model.h"
#include "unit_driver.c"
#include <stdio.h>
#include <string.h>
static int open_unit(mirlo_model **model, mirlo_context **context, int *code) {
  mirlo_function function = {"unit_run", NULL, unit_run, code};
  mirlo_options options = {0};
  char error[256];
  options.size = sizeof options, options.functions = &function, options.function_count = 1;
  if (mirlo_create(&mirlo_model_model, &options, model, error, sizeof error)) return puts(error), 1;
  return mirlo_context_create(*model, context);
}
int main(void) {
  static float x[5 * 8], y[5 * 6];
  int64_t from[] = {5, 8}, to[] = {5, 6};
  DLTensor input = {x, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, from, NULL, 0};
  DLTensor output = {y, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, to, NULL, 0};
  mirlo_model *one, *other;
  mirlo_context *first, *second;
  int good = 0, bad = 9;
  if (open_unit(&one, &first, &good) || open_unit(&other, &second, &bad)) return 1;
  printf("%d %d", mirlo_run(first, &input, &output), mirlo_run(second, &input, &output));
  mirlo_context_destroy(second);
  mirlo_close(other);
  printf(" %d\n", mirlo_run(first, &input, &output));
  mirlo_context_destroy(first);
  mirlo_close(one);
  return 0;
}
"""


@pytest.mark.sample(0)
def test_models_of_one_code_have_devices_of_their_own(tmp_path: Path) -> None:
    flags = sanitizer_flags(compiler(), "address,undefined", tmp_path / "probe")
    make_program(model(), tmp_path, compiler(), targets())
    (tmp_path / "two.c").write_text(TWO_DEVICES)
    objects = [str(path) for path in tmp_path.glob("*.o")]
    command = [compiler(), *flags, f"-I{tmp_path}", f"-I{UNIT_DRIVER.parent}", str(tmp_path / "two.c")]
    libraries = ["-lm", "-ldl", "-lpthread"]
    subprocess.run([*command, str(tmp_path / "mirlo.c"), *objects, "-o", str(tmp_path / "two"), *libraries], check=True)
    done = subprocess.run([str(tmp_path / "two")], capture_output=True, text=True, check=True)
    assert done.stdout == "0 7 0\n"


@pytest.mark.sample(0)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("form", ["driver", "shipped", "source"])
def test_sanitizers_find_nothing(form: str, sanitizer: str, tmp_path: Path) -> None:
    flags = sanitizer_flags(compiler(), sanitizer, tmp_path / "probe")
    linked(tmp_path, form, flags=flags).run({"x": X}, 8, 20)


@pytest.mark.sample(0)
@pytest.mark.skipif(bool(emulated_aarch64.missing()), reason=emulated_aarch64.missing() or "there is")
@pytest.mark.parametrize("form", ["driver", "shipped"])
def test_an_emulated_aarch64(form: str, tmp_path: Path) -> None:
    flags = ["-static", *([str(UNIT_DRIVER)] if form == "driver" else [])]
    program = make_program(
        model(), tmp_path, emulated_aarch64.COMPILER, targets(form, emulated_aarch64.TARGET), flags=flags,
        runner=[emulated_aarch64.EMULATOR],
    )  # fmt: skip
    expected = mirlo.compile(model(), cache=False, jobs=1)(X)
    np.testing.assert_allclose(program.run({"x": X}, 2, 3)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sample(0)
def test_compiled_models_are_linked(tmp_path: Path) -> None:
    program = linked(tmp_path, "shipped", shared=True)
    mirlo.compile(model(), targets("shipped"), cache=False, jobs=1).save(tmp_path / "m.mirlo")
    (tmp_path / "libmodel.so").unlink()
    link_model(*load(tmp_path / "m.mirlo"), tmp_path / "libmodel.so", "model")
    require_same(program, model(), {"x": X}, target=targets("shipped"))


NOT_LINKED = {
    "symbol": (
        "source",
        "target 'unit' returned C source or object files that do not define 'unit_0', the function of its region",
    ),
    "triple": ("object", "target 'unit' returned object files for riscv64-unknown-linux-gnu, and the library is"),
}


@pytest.mark.parametrize("damage", NOT_LINKED)
def test_code_that_cannot_be_linked(damage: str, tmp_path: Path) -> None:
    form, message = NOT_LINKED[damage]
    target = f"unit{{form={form} damage={damage}}},llvm"
    artifact, store = compile_code(CompileRequest(model(), target, form="llvm-ir", jobs=1, cache=False))
    with pytest.raises(LibraryError, match=message):
        write_library(artifact, store, tmp_path, "model", shared=False)


def test_the_command(tmp_path: Path) -> None:
    """Write the whole model as C, with the files of its regions in folders."""
    onnx.save(model(), tmp_path / "m.onnx")
    command = ["compile", str(tmp_path / "m.onnx"), "--emit", "source", "-o", str(tmp_path / "out"), "--targets"]
    assert main([*command, targets("shipped", "c")]) == 0
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    assert {"m.c", "m.h", "mirlo.c", "m_unit1/driver.c", "m_shifter0/shifter.c", "m_shifter0/shifter.h"} <= found
    assert "m_unit1/driver.c" in (tmp_path / "out" / "CMakeLists.txt").read_text()


def test_what_python_alone_calls_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Numpy(CodeGenerator):
        name = "numpy-unit"
        guarded = False

        def patterns(self):
            return [("negate", is_op("relax.negative")(wildcard()))]

        def codegen(self, module):
            return Artifact("numpy-unit", module.names)

    register_target(Target("numpy-unit", "", codegen=Numpy))
    onnx.save(model(), tmp_path / "m.onnx")
    for host, emit in (("llvm", "library"), ("llvm", "object"), ("c", "source")):
        command = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "out"), "--targets", f"numpy-unit,{host}"]
        assert main([*command, "--emit", emit]) == 1
        message = capsys.readouterr().err
        assert "the code generator of target 'numpy-unit' compiled parts of the model that only its loader" in message
        assert "its 'codegen' must return NativeCode: C source, object files, or programs and the name" in message


def test_object_files_of_an_archive(tmp_path: Path) -> None:
    """Link the members of an archive that `ar` made, whose names need not be those of files here."""
    if shutil.which("ar") is None:
        pytest.skip("there is no ar")
    from mirlo.targets.llvm.library.description import defined_symbols, object_members

    for name in ("one", "a_member_with_a_long_name"):
        (tmp_path / f"{name}.o").write_bytes(compile_object(DRIVER.replace("unit_run", f"{name}_run")))
    members = sorted(os.path.basename(path) for path in tmp_path.glob("*.o"))
    subprocess.run(["ar", "rcs", "both.a", *members], cwd=tmp_path, check=True)
    content = (tmp_path / "both.a").read_bytes()
    assert sorted(name for name, _ in object_members("both.a", content)) == members
    assert defined_symbols(content) == {"one_run", "a_member_with_a_long_name_run"}
