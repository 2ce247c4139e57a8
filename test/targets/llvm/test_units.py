"""Models compiled kernel by kernel: shared kernels, keys, and workers."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.registry import PassError
from mirlo.passes.schedule.loops import ROLLED, for_loop
from mirlo.runtime import archive
from mirlo.runtime.cache import Cache
from mirlo.targets.llvm import processes, units
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.object_code import EntryInterface
from mirlo.targets.llvm.processes import CompileTask, compile_all, receive, send
from mirlo.targets.llvm.processor import host_processor
from mirlo.targets.llvm.units import CompilationUnit, split

CHAIN = """
func.func @main(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = "relax.matmul"(%x, %w) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = "relax.softmax"(%0) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = "relax.matmul"(%1, %w) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %2 : tensor<64x64xf32>
}
"""
PLANNED = """
memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>
func.func @main(%a: memref<4xf32>, %b: memref<4xf32>, %arena: memref<16xi8>) {
  call @first(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
  call @second(%b, %a) : (memref<4xf32>, memref<4xf32>) -> ()
  call @third(%b, %a) : (memref<4xf32>, memref<4xf32>) -> ()
  return
}
func.func private @first(%a: memref<4xf32>, %b: memref<4xf32>) attributes {tir.prim_func} {
  call @first_help(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
  return
}
func.func private @first_help(%a: memref<4xf32>, %b: memref<4xf32>) { return }
func.func private @second(%a: memref<4xf32>, %b: memref<4xf32>) attributes {tir.prim_func} {
  call @second_help(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
  return
}
func.func private @second_help(%a: memref<4xf32>, %b: memref<4xf32>) { return }
func.func private @third(%a: memref<4xf32>, %b: memref<4xf32>) attributes {tir.prim_func, note = "@first"} {
  %t = memref.get_global @table : memref<4xf32>
  %c = arith.constant 0 : index
  %v = memref.load %t[%c] : memref<4xf32>
  memref.store %v, %b[%c] : memref<4xf32>
  return
}
"""
WITHOUT_HELPERS = "\n".join(line for line in PLANNED.splitlines() if "_help" not in line)
"""Without functions that LLVM may inline: kernels that share object files have none."""
SETTINGS = CodeSettings(host_processor())
NO_ENTRY = EntryInterface(2, 0, (), False)


@pytest.fixture(autouse=True)
def cut(monkeypatch) -> None:
    """Small models are not cut, and their kernels share object files: those of the models here do not."""
    monkeypatch.setattr(units, "SMALL", 0)
    monkeypatch.setattr(units, "BUNDLED", 0)


def _units(text: str, opt_level: int = 2):
    with make_context(), ir.Location.unknown():
        return split(ir.Module.parse(text), NO_ENTRY, CodeSettings(host_processor(), opt_level))


def test_kernels_that_differ_in_names_are_one() -> None:
    main, first, third = _units(PLANNED)
    assert (main.name, first.name, third.name) == ("main", "first", "third")
    assert main.text.count(f"call @{first.symbol}(") == 2
    assert f"@{first.symbol}.1" in first.text and "second" not in main.text + first.text


@pytest.mark.parametrize(
    "pairs", [(("a", "b"), ("z", "c")), (("m", "n"), ("n", "m")), (("q", "p"), ("batch", "s0000"))]
)
def test_kernels_that_differ_in_names_of_symbols_are_one(pairs, tmp_path) -> None:
    """Also where the order of the names differs: neither parameters nor arithmetic depend on it."""

    def kind(*dims: str) -> str:
        return f"tensor<?x?x64xf32, #relax.dims<[{', '.join(map(repr, dims))}, 64]>>".replace("'", '"')

    arguments = ", ".join(f"%x{i}: {kind(p, q)}" for i, (p, q) in enumerate(pairs))
    body = "".join(
        f"""%t{i} = "relax.permute"(%x{i}) {{axes = array<i64: 1, 0, 2>}} : ({kind(p, q)}) -> {kind(q, p)}
        %y{i} = "relax.softmax"(%t{i}) {{axis = 1 : i64}} : ({kind(q, p)}) -> {kind(q, p)}
        """
        for i, (p, q) in enumerate(pairs)
    )
    results = ", ".join(f"%y{i}" for i in range(len(pairs)))
    kinds = ", ".join(kind(q, p) for p, q in pairs)
    text = f"func.func @main({arguments}) -> ({kinds}) {{ {body} return {results} : {kinds} }}"
    with make_context(), ir.Location.unknown():
        compiled = mirlo.compile(ir.Module.parse(text), cache=tmp_path)
    assert len(archive.unpack(compiled.artifact.code)) == 3  # main, the permute, the softmax
    sizes: dict[str, int] = {}
    for pair in pairs:
        for name in pair:
            sizes.setdefault(name, 3 + 2 * len(sizes))
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal((sizes[p], sizes[q], 64), dtype=np.float32) for p, q in pairs]
    for x, y in zip(xs, compiled(*xs), strict=True):
        e = np.exp(x.transpose(1, 0, 2))
        np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_kernel_has_what_it_uses_and_strings_are_left_alone() -> None:
    main, _, third = _units(PLANNED)
    assert "memref.global" in third.text and "memref.global" not in main.text
    assert 'note = "@first"' in third.text


def test_functions_of_others_keep_their_names() -> None:
    body = "call @somebody_elses(%a) : (memref<4xf32>) -> ()\n  %t = memref.get_global"
    text = PLANNED.replace("%t = memref.get_global", body)
    _, _, third = _units(text + "func.func private @somebody_elses(memref<4xf32>)")
    assert "call @somebody_elses(" in third.text and "func.func private @somebody_elses(" in third.text


def test_keys_hold_the_text_and_the_options() -> None:
    keys = [unit.key for unit in _units(PLANNED)]
    assert keys == [unit.key for unit in _units(PLANNED)]
    other = _units(PLANNED, opt_level=3)
    assert not set(keys) & {unit.key for unit in other}
    assert [unit.text for unit in other] == [unit.text for unit in _units(PLANNED)]
    changed = [unit.key for unit in _units(PLANNED.replace("4.0]", "5.0]"))]
    assert keys[1] == changed[1] and keys[2] != changed[2]


def _chain(**options):
    with make_context(), ir.Location.unknown():
        return mirlo.compile(ir.Module.parse(CHAIN), **options)


def test_a_second_compilation_compiles_nothing(tmp_path, monkeypatch) -> None:
    cold = _chain(cache=tmp_path)
    monkeypatch.setattr(processes, "compile_text", None)
    warm = _chain(cache=tmp_path)
    assert warm.artifact.code == cold.artifact.code
    assert len(Cache(tmp_path).entries()) == len(archive.unpack(cold.artifact.code)) == 3


def test_a_damaged_kernel_is_compiled_again(tmp_path) -> None:
    cold = _chain(cache=tmp_path)
    for entry in Cache(tmp_path).entries():
        content = bytearray(entry.path.read_bytes())
        content[len(content) // 2] ^= 1
        entry.path.write_bytes(bytes(content))
    cache = Cache(tmp_path)
    again = _chain(cache=cache)
    assert cache.counts.damaged == 3 and cache.counts.stored == 3
    x, w = np.random.default_rng(0).standard_normal((2, 64, 64), dtype=np.float32)
    assert np.array_equal(cold(x, w), again(x, w))
    assert not Cache(tmp_path).verify()


def test_a_small_model_is_one_unit(monkeypatch) -> None:
    parts = _chain(cache=False)
    monkeypatch.undo()
    whole = _chain(cache=False)
    assert [name for name, _ in archive.unpack(whole.artifact.code)] == ["main.o"]
    assert len(archive.unpack(parts.artifact.code)) == 3
    x, w = np.random.default_rng(0).standard_normal((2, 64, 64), dtype=np.float32)
    assert np.array_equal(whole(x, w), parts(x, w))
    assert len(whole.profile(x, w)) == len(parts.profile(x, w)) == 3


def test_kernels_of_a_small_model_are_there_once(monkeypatch) -> None:
    monkeypatch.undo()
    (whole,) = _units(PLANNED)
    assert whole.name == "main" and whole.text.count("memref.global") == 1
    # @first and @second are one kernel with one helper, @third is another.
    assert whole.text.count("func.func") == 1 + 2 + 1


def test_what_threads_run_counts_as_part_of_a_kernel(monkeypatch) -> None:
    """The bodies of parallel loops are functions of their own, in which nearly all of a kernel's text is."""
    monkeypatch.setattr(units, "SMALL", 1500)
    body = "".join(f"  %c{number} = arith.constant 0 : index\n" for number in range(20))
    assert len(_units(PLANNED.replace("{ return }", f"{{\n{body}return }}"))) == 3


@pytest.mark.sample(0)
def test_no_cache_keeps_nothing(tmp_path, monkeypatch) -> None:
    _chain(cache=False)  # what each process keeps, whatever it compiles: the processor, code of the run time
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _chain(cache=False)
    assert not list(tmp_path.iterdir())
    _chain()
    assert len(Cache(tmp_path / "mirlo" / "compiled").entries()) == 3


@pytest.fixture
def tasks():
    return [CompileTask(unit.name, f"{unit.text}\n// {i}", unit.entry) for i in range(3) for unit in _units(PLANNED)]


def compile_here(tasks) -> list[bytes]:
    with make_context():
        return compile_all(tasks, SETTINGS, jobs=1)


@pytest.mark.sample(0)
def test_processes_make_what_this_one_makes(tasks) -> None:
    with make_context():
        there = compile_all(tasks, SETTINGS, jobs=3)
    assert there == compile_here(tasks)


def test_a_large_kernel_does_not_end_a_process(tasks) -> None:
    large = [CompileTask(task.name, f"{task.text}\n// {'x' * 500_000}", task.entry) for task in tasks]
    with make_context():
        made = compile_all(large, SETTINGS, jobs=2)
    assert processes._processes[0].is_alive()
    assert made == compile_here(tasks)


@pytest.mark.sample(0)
def test_large_tasks_and_large_answers_do_not_wait_for_each_other() -> None:
    """A process that has an answer to give takes the next task meanwhile: neither pipe holds all of it."""
    text = (
        "memref.global constant @table : memref<50000xf32> = dense<{numbers}>\n"
        "func.func @k{i}() -> memref<50000xf32> {{\n  %0 = memref.get_global @table : memref<50000xf32>\n"
        "  return %0 : memref<50000xf32>\n}}\n"
    )
    hexes = [f'"0x{np.full(50000, i, np.float32).tobytes().hex()}"' for i in range(1, 7)]
    large = [CompileTask(f"k{i}", text.format(i=i, numbers=numbers), None) for i, numbers in enumerate(hexes)]
    made: list[list[bytes]] = []

    def compiled() -> None:
        with make_context():
            made.append(compile_all(large, SETTINGS, jobs=2))

    thread = threading.Thread(target=compiled, daemon=True)
    thread.start()
    thread.join(timeout=100)
    assert made and all(len(content) > 100_000 for content in made[0])


@pytest.mark.parametrize("cut", [4, 20])
def test_half_a_message_is_not_the_end(cut: int) -> None:
    whole = io.BytesIO()
    send(whole, ("text", 2, None))
    with pytest.raises(OSError, match="within a message"):
        receive(io.BytesIO(whole.getvalue()[:cut]))
    with pytest.raises(EOFError):
        receive(io.BytesIO())


def test_an_error_in_a_process_names_the_kernel(tasks) -> None:
    bad = CompileTask("sad", 'func.func @k(%x: index) { "no.such"(%x) : (index) -> () return }' + " " * 9000, None)
    with make_context(), pytest.raises(PassError, match="@sad"):
        compile_all([*tasks, bad], SETTINGS, jobs=2)
    with make_context():
        assert len(compile_all(tasks, SETTINGS, jobs=2)) == len(tasks)


@pytest.mark.sample(0)
def test_processes_that_ended_are_replaced(tasks) -> None:
    with make_context():
        compile_all(tasks, SETTINGS, jobs=2)
        for process in processes._processes:
            process.popen.stdin.close()
            process.popen.wait(timeout=60)
        assert len(compile_all(tasks, SETTINGS, jobs=2)) == len(tasks)


def test_a_process_that_is_killed_is_an_error(tasks, monkeypatch) -> None:
    with make_context():
        compile_all(tasks, SETTINGS, jobs=2)
        process = processes._processes[0]
        monkeypatch.setattr(process, "is_alive", lambda: True)
        process.popen.kill()
        process.popen.wait(timeout=60)
        with pytest.raises(PassError, match="SIGKILL.*memory"):
            compile_all(tasks, SETTINGS, jobs=2)


FORKS = """
import os, sys, threading
import numpy
from mirlo.dialects.context import make_context
from mirlo.targets.llvm import processes
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.processor import host_processor

square = numpy.ones((300, 300), numpy.float32)
assert (square @ square == 300).all()
if sys.argv[1] == "several":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
text = "func.func @k{i}(%x: memref<4xf32>) {{ return }}"
tasks = [processes.CompileTask(f"k{i}", text.format(i=i), None) for i in range(4)]
reading, writing = os.pipe()
with make_context():
    process = processes._running(1)[0]
    os.close(writing)
    assert os.read(reading, 1) == b"", "the worker has the file too"
    settings = CodeSettings(host_processor())
    made = processes.compile_all(tasks, settings, jobs=2)
    assert processes._running(1)[0] is process and made == processes.compile_all(tasks, settings, jobs=1)
assert (square @ square == 300).all()
print(type(process.popen).__name__)
process.popen.stdin.close()
assert process.popen.wait(timeout=60) == 0
"""


@pytest.mark.sample(0)
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not list threads")
@pytest.mark.parametrize(
    ("threads", "of_blas", "kind"),
    [("one", 1, "ForkedProcess"), ("one", 2, "ForkedProcess"), ("several", 1, "Popen"), ("several", 2, "Popen")],
)
def test_workers_are_forks_where_no_thread_may_hold_a_lock(threads: str, of_blas: int, kind: str) -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(of_blas)}
    command = [sys.executable, "-c", FORKS, threads]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=100)
    assert (done.returncode, done.stdout) == (0, f"{kind}\n"), done.stderr


@pytest.mark.sample(0)
def test_two_models_at_once(tasks) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def compiled(_: int):
        with make_context():
            return compile_all(tasks, SETTINGS, jobs=2)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(compiled, range(2))
    assert first == second


def test_small_kernels_share_object_files(monkeypatch) -> None:
    monkeypatch.setattr(units, "BUNDLED", 0)
    alone = _units(WITHOUT_HELPERS)
    monkeypatch.setattr(units, "BUNDLED", 10_000)
    main, *joined = _units(WITHOUT_HELPERS)
    assert len(alone) == 3 and len(joined) == 1 and main.text == alone[0].text
    assert all(unit.symbol in joined[0].text for unit in alone[1:])
    assert joined[0].key not in {unit.key for unit in alone}
    monkeypatch.setattr(units, "BUNDLE", 1)
    assert [unit.key for unit in _units(WITHOUT_HELPERS)] == [unit.key for unit in alone]


def test_kernels_that_are_shared_with_none_are_in_few_object_files(monkeypatch) -> None:
    def split_units(text: str, shared: bool) -> list[CompilationUnit]:
        with make_context(), ir.Location.unknown():
            return split(ir.Module.parse(text), NO_ENTRY, CodeSettings(host_processor()), shared=shared)

    alone = split_units(WITHOUT_HELPERS, shared=True)
    main, *joined = split_units(WITHOUT_HELPERS, shared=False)
    assert len(alone) == 3 and len(joined) == 1 and main.text == alone[0].text
    assert joined[0].parts == (*alone[1].parts, *alone[2].parts)
    monkeypatch.setattr(units, "WHOLE_BUNDLE", 1)
    split_again = split_units(WITHOUT_HELPERS, shared=False)
    assert [unit.text for unit in split_again] == [unit.text for unit in alone]
    # Keys of what is kept depend on the compiler.
    assert {unit.key for unit in split_again}.isdisjoint(unit.key for unit in alone)


@pytest.mark.parametrize("shared", [True, False])
def test_kernels_with_functions_of_their_own_share_no_object_file(monkeypatch, shared: bool) -> None:
    monkeypatch.setattr(units, "BUNDLED", 10_000)
    with make_context(), ir.Location.unknown():
        main, first, third = split(ir.Module.parse(PLANNED), NO_ENTRY, SETTINGS, shared=shared)
    assert first.has_helpers and len(first.parts) == 2 and not third.has_helpers and main.entry == NO_ENTRY


def test_kernels_with_loops_that_stay_rolled_are_known_by_an_attribute() -> None:
    """The schedule that emits such a loop marks its function."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @k(%n: index) attributes {tir.prim_func} { return }")
        (function,) = module.body.operations
        with ir.InsertionPoint.at_block_begin(function.operation.regions[0].blocks[0]):
            for_loop(0, function.operation.regions[0].blocks[0].arguments[0], 1, lambda i: None, rolled=True)
        operations = {"k": function.operation}
        texts = {"k": str(function)}
        assert units._kernel_unit("k", operations, texts, {"k": []}, "").has_tiles
        del function.operation.attributes[ROLLED]
        assert not units._kernel_unit("k", operations, texts, {"k": []}, "").has_tiles


def test_units_that_use_a_matrix_unit() -> None:
    """They are those with functions that emitted its instructions, also where kernels share an object file."""
    attributes = "attributes {tir.prim_func}"
    texts = [WITHOUT_HELPERS, WITHOUT_HELPERS.replace(attributes, "attributes {tir.prim_func, tir.matrix_unit}")]
    by_name = [{unit.name: unit.uses_matrix_unit for unit in _units(text)} for text in texts]
    assert by_name == [{"main": False, "first": False, "third": False}, {"main": False, "first": True, "third": False}]
    named = [WITHOUT_HELPERS.replace('"@first"', '"llvm.x86.tilezero"'), texts[1]]
    for text, is_used in zip(named, (False, True), strict=True):
        for apart in (None, False):
            with make_context(), ir.Location.unknown(), pytest.MonkeyPatch.context() as patch:
                patch.setattr(units, "BUNDLED", 4000)
                joined = split(ir.Module.parse(text), NO_ENTRY, SETTINGS, apart)
            assert any(unit.uses_matrix_unit for unit in joined) == is_used


def test_kernels_with_register_tiles_share_no_object_file_with_others() -> None:
    """LLVM's option for loops of tiles holds for an object file."""

    def kernel(name: str, is_tiled: bool, has_helpers: bool = False) -> CompilationUnit:
        text = f"func.func @{name}() {{}}"
        return CompilationUnit(name, name, name, text, parts=(text,), has_helpers=has_helpers, has_tiles=is_tiled)

    kernels = [kernel(f"k{i}", is_tiled=i % 2 == 0) for i in range(5)]
    joined = units._bundled([*kernels, kernel("calls", True, has_helpers=True)], "", shared=False)
    assert [unit.parts for unit in joined] == [
        (joined[0].text,), tuple(each.text for each in kernels[::2]), tuple(each.text for each in kernels[1::2])
    ]  # fmt: skip
    assert joined[0].name == "calls" and not units._bundled([], "", shared=False)


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("func.func private @f(%a: f32) {}", ["f"]),
        ('func.func @"a b"(%a: f32) {}', ["a b"]),
        ('func.func @f() attributes {note = "@g"} {}', ["f"]),
        ("func.func @f() {\n  call @g() : () -> ()\n}", ["f", "g"]),
        ('memref.global "private" constant @g : memref<f32>', ["g"]),
        ('"llvm.func"() {sym_name = "f", note = "@g"} : () -> ()', []),
        ("module {}", []),
    ],
)
def test_references_of_an_operation(text: str, references: list[str]) -> None:
    known = dict.fromkeys(("f", "g", "a b"))
    assert units._references(text, known) == references
    renamed = units._renamed(text, {name: f"new{i}" for i, name in enumerate(known)})
    assert [name for name in ("new0", "new1", "new2") if f"@{name}" in renamed] == [
        f"new{list(known).index(name)}" for name in references
    ]
    assert '"@g"' not in text or '"@g"' in renamed
