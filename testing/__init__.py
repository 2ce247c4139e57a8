"""Helpers for the tests of plug-ins.

    from mirlo.testing import runs_as_numpy, stages_round_trip

    def test_swish():
        runs_as_numpy(MODEL, lambda x: x / (1 + np.exp(-x)), target="npu")
        stages_round_trip(MODEL, target="npu")

In `lit.cfg.py`, `configure_lit(config, __file__, plugin="mirlo_npu")` defines `mirlo`, `mirlo-opt`, `FileCheck` and
`%plugin`. `conformance_case` gives `mirlo check-target` cases of operators without a `meaning`:

    @conformance_case("npu.gemm", kinds=("f32",))
    def gemm(draw: Draw):
        x, weight = draw.array(8, 16), draw.array(16, 12)
        return case(x, weight, expected=x @ weight)

The function draws operands of the element type that is checked, and returns numpy's results for them. Sizes that are
drawn may be rounded up to multiples of a tile, so that rules for whole tiles are reached.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import onnx

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import forget_dialects
from mirlo.dialects.tir.own_intrinsics import forget_intrinsics
from mirlo.driver import build, compiler, model_cache
from mirlo.driver.code import compile_code
from mirlo.driver.compile import compile as compile_model
from mirlo.driver.given import give
from mirlo.driver.models import open_model
from mirlo.driver.place.survey import survey
from mirlo.driver.request import CompileRequest
from mirlo.frontends.script.module import parse_script
from mirlo.frontends.script.printer import script_of
from mirlo.frontends.script.same import same_ir
from mirlo.passes.byoc.rewrite import forget_rewrites
from mirlo.passes.byoc.tables import forget_tables
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import forget_passes
from mirlo.passes.rules import RULE_BOOKS
from mirlo.passes.schedule.primitives.tensorize import find_tensor_intrin
from mirlo.passes.targets import forget_targets, register_target, target_names
from mirlo.runtime.files import write_regular
from mirlo.runtime.locks import held_locks
from mirlo.testing.tool_process import tool_substitutions
from mirlo.tools import samples
from mirlo.tools.conformance.case import TABLE, VARIED, Draw, OperatorCase, case
from mirlo.tools.conformance.case import operator as conformance_case
from mirlo.tools.conformance.instructions import compare_instruction
from mirlo.tools.library_program import run_library
from mirlo.tools.verify.model import verify_model

if TYPE_CHECKING:
    import numpy.typing as npt

    from mirlo.driver.models import OpenedModel
    from mirlo.driver.options import GivenSchedule, RuleFunction
    from mirlo.driver.place.survey import Survey
    from mirlo.passes.schedule.primitives.commands import CommandProgram
    from mirlo.passes.schedule.primitives.tensorize import Instruction
    from mirlo.passes.targets import Target
    from mirlo.runtime.executable import Executable

__all__ = [
    "Draw", "OperatorCase", "after_passes", "assert_commands", "assert_intrinsic", "assert_verified",
    "cached_compilations", "case",
    "configure_lit", "conformance_case", "held_locks", "placement_of", "runs_as_library", "runs_as_numpy",
    "runs_as_onnxruntime", "samples", "stages_round_trip", "temporary_registrations", "use_target",
]  # fmt: skip

RTOL = 1e-4
"""Relative difference of f32 results: sums may be computed in another order."""


def runs_as_numpy(
    model: object,
    function: Callable[..., Any],
    *arrays: np.ndarray,
    target: str = "llvm",
    rtol: float = RTOL,
    atol: float = 1e-5,
    **options: Any,
) -> Executable:
    """Compile a model for a target, compare its results with a function's on arrays, and return the executable.

    The model is anything that `mirlo.compile` takes, or MLIR text. Without arrays, random inputs are drawn. Options go
    to `mirlo.compile`.
    """
    executable = _compile(model, target, options)
    operands = arrays or tuple(executable.random_inputs().values())
    _compare(executable(*operands), function(*operands), rtol, atol)
    return executable


def runs_as_onnxruntime(
    model: object,
    feeds: Mapping[str, np.ndarray] | None = None,
    target: str = "llvm",
    rtol: float = RTOL,
    atol: float = 1e-5,
    **options: Any,
) -> Executable:
    """Compile an ONNX model for a target, compare all outputs with ONNX Runtime's, and return the executable."""
    import onnxruntime

    executable = _compile(model, target, options)
    proto = model if isinstance(model, onnx.ModelProto) else onnx.load(os.fspath(cast(Any, model)))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = dict(feeds) if feeds is not None else executable.random_inputs()
    names = [value.name for value in session.get_outputs()]
    outputs = executable.run(inputs)
    _compare(tuple(outputs[name] for name in names), tuple(session.run(names, inputs)), rtol, atol)
    return executable


def runs_as_library(
    model: object,
    function: Callable[..., Any],
    *arrays: np.ndarray,
    target: str = "llvm",
    sources: Sequence[str | os.PathLike[str]] = (),
    shared: bool = False,
    rtol: float = RTOL,
    atol: float = 1e-5,
) -> None:
    """Compare the results of a C program, without Python, that runs a library of a model with those of a function.

    `sources` are C files of the program, such as drivers that it links. `shared` lets it open a shared library in place
    of linking object files. It needs a C compiler.
    """
    with _as_file(model) as opened:
        artifact, store = compile_code(CompileRequest(opened, target, form="llvm-ir", cache=False))
    names = [spec.name for spec in artifact.inputs]
    results = run_library(artifact, store, dict(zip(names, arrays, strict=True)), sources, shared)
    _compare(tuple(results.values()), function(*arrays), rtol, atol)


def after_passes(model: object, passes: str) -> str:
    """Return the module as text after a pipeline such as "simplify,fold-constant" ran on it."""
    opened = _opened(model)
    module, session = opened.module, opened.session
    Pipeline(passes).run(module, session)
    return str(module)


def assert_verified(model: object, target: str = "llvm", **options: Any) -> None:
    """Assert that each kernel of a model is equal to its definition, in every element, over finite fields.

    Options are those of `verify_model`: schedules by hand, shapes, sizes of threads. A kernel that is not compared, as
    it has no definition or no exact meaning, fails as well.
    """
    with _as_file(model) as opened:
        verification = verify_model(opened, target, **options)
    wrong = [str(verdict) for verdict in verification.verdicts if verdict.status != "equal"]
    assert verification.verdicts, "the model has no kernels"
    assert not wrong, "\n".join(wrong)


def assert_intrinsic(name: str) -> None:
    """Assert that an instruction is equal to its description, exactly.

    Of a tensor intrinsic that is its implementation, of a command intrinsic its simulation. One that is not compared,
    as it calls a function of another language or has no simulation, fails as well.
    """
    _assert_equal(find_tensor_intrin(name))


def assert_commands(program: CommandProgram) -> None:
    """Assert that a simulator computes with a program's commands what the function means that it schedules, exactly."""
    _assert_equal(program)


def _assert_equal(instruction: Instruction | CommandProgram) -> None:
    verdict = compare_instruction(instruction)
    assert verdict is not None and verdict.status == "equal", str(verdict)


def stages_round_trip(
    model: object,
    target: str = "llvm",
    *,
    legalize: Mapping[str, RuleFunction] | None = None,
    schedules: Mapping[str, GivenSchedule] | None = None,
) -> list[str]:
    """Check that the module reads back equal, as MLIR and as script, after each step of the pipeline of targets.

    Rules and schedules are given as to `mirlo.compile`. Return the names of the steps.
    """
    opened = _opened(model)
    module, session = opened.module, opened.session
    give(opened, opened.module if _is_text(model) else model, legalize=legalize, schedules=schedules)
    done: list[str] = []
    targets = Targets.parse(target)
    host = targets.host
    assert host is not None, f"'{target}' has no target that compiles what code generators leave"
    passes = targets.placed(Pipeline.named(host.name))
    for step in (None, *passes.steps):
        if step is not None:
            Pipeline((step,)).run(module, session)
        done.append("import" if step is None else str(Pipeline((step,))))
        again = ir.Module.parse(str(module), module.context)
        assert str(again) == str(module), f"after {done[-1]}, the module as MLIR reads back as another"
        text = script_of(module)
        try:
            read = parse_script(text, context=module.context)
        except Exception as error:
            raise AssertionError(
                f"after {done[-1]}, the script of the module does not read: {error}\n{text}"
            ) from error
        assert same_ir(again, read), f"after {done[-1]}, the script reads back as another module:\n{text}"
    return done


def placement_of(
    model: object, target: str | Sequence[str], shapes: Mapping[str, Sequence[int | str] | None] | None = None
) -> Survey:
    """Return the placement of a model: shares of the work, regions, and declined nodes with the reasons."""
    with _as_file(model) as path:
        return survey(path, target, shapes)


def use_target(target: Target) -> None:
    """Register a target for tests, unless a package that is installed offers it."""
    if target.name not in target_names():
        register_target(target)


@contextmanager
def cached_compilations() -> Iterator[list[str]]:
    """Keep all models in the requested cache, and yield a list with the target of each compilation.

    Models that compile quickly are kept as well, and those of processes whose tests extend the compiler.
    """
    compiled: list[str] = []
    run, saved = compiler.Compiler.run, (build.MIN_COMPILE_SECONDS, model_cache.extended)

    def recorded(self: compiler.Compiler) -> Any:
        compiled.append(str(self.target))
        return run(self)

    build.MIN_COMPILE_SECONDS, model_cache.extended = 0.0, lambda target: None
    compiler.Compiler.run = recorded  # type: ignore[method-assign]
    try:
        yield compiled
    finally:
        compiler.Compiler.run = run  # type: ignore[method-assign]
        build.MIN_COMPILE_SECONDS, model_cache.extended = saved


@contextmanager
def temporary_registrations(module: str) -> Iterator[None]:
    """Undo at the end of the block the registrations of a module: pass `__name__`, and register in the block.

    Dialects with their operators and cases, intrinsics, rules, rewrites, tables of patterns, passes and targets are
    removed: other tests of the process do not see them.
    """
    try:
        yield
    finally:
        namespaces = forget_dialects(module)
        for table in (TABLE, VARIED):
            table.forget(namespaces)
        forget_intrinsics(module)
        for book in RULE_BOOKS:
            book.forget(module)
        forget_rewrites(module)
        forget_tables(module)
        forget_passes(module)
        forget_targets(module)


def configure_lit(config: Any, file: str, plugin: str = "", name: str = "") -> None:
    """Set up lit for a folder of `.mlir` tests; call it in the folder's `lit.cfg.py`, with its `__file__`.

    `plugin` is a Python file, relative to that folder, or a module, that `%plugin` stands for.
    """
    import lit.formats

    folder = Path(file).resolve().parent
    config.name = name or folder.parent.name
    config.test_format = lit.formats.ShTest(execute_external=False)
    config.suffixes = [".mlir", ".test"]
    config.excludes = ["Inputs"]
    config.test_source_root = str(folder)
    config.test_exec_root = str(Path(tempfile.gettempdir()) / f"lit-{config.name}-{os.getpid()}")
    paths = [path for path in (os.environ.get("PYTHONPATH"), str(folder.parent)) if path]
    config.environment["PYTHONPATH"] = os.pathsep.join(paths)
    # Threads of the numeric libraries cost each tool more to start than they save.
    config.environment["OPENBLAS_NUM_THREADS"] = "1"
    config.substitutions += tool_substitutions(config.environment)
    path = folder / plugin
    config.substitutions.append(("%plugin", str(path) if plugin and path.exists() else plugin))


def _compile(model: object, target: str, options: dict[str, Any]) -> Executable:
    with _as_file(model) as opened:
        executable: Executable = compile_model(opened, target, **options)
        return executable


def _opened(model: object) -> OpenedModel:
    with _as_file(model) as opened:
        return open_model(opened)


@contextmanager
def _as_file(model: object) -> Iterator[object]:
    """Yield a model as the compiler opens it: a file where it is MLIR text."""
    if not _is_text(model):
        yield model
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mlir"
        write_regular(path, model)
        yield path


def _is_text(model: object) -> TypeGuard[str]:
    return isinstance(model, str) and "\n" in model


def _compare(actual: npt.ArrayLike, expected: npt.ArrayLike, rtol: float, atol: float) -> None:
    left = actual if isinstance(actual, tuple) else (actual,)
    right = expected if isinstance(expected, tuple) else (expected,)
    assert len(left) == len(right), f"{len(left)} results instead of {len(right)}"
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
