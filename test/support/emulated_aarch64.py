"""An emulated AArch64: models for it are linked to libraries and run by qemu.

python test/support/emulated_aarch64.py [OPERATOR ...]     # mirlo check-target, there
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from libraries import FLAGS, SOURCE, Program

from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.inputs import bind
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.targets.llvm.library.build import link_model
from mirlo.targets.llvm.library.objects import pool_object, processor_of
from mirlo.targets.llvm.library.sources import run_time_files

TARGET = "llvm{cpu=neoverse-n1 triple=aarch64-linux-gnu}"
COMPILER, EMULATOR, SYSTEM = "aarch64-linux-gnu-gcc", "qemu-aarch64-static", "/usr/aarch64-linux-gnu"


def missing() -> str:
    """Return why there is no emulated AArch64 here; empty where there is one."""
    lacked = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    return (
        f"there is no {' and no '.join(lacked)}: install qemu-user-static and gcc-aarch64-linux-gnu" if lacked else ""
    )


def install() -> None:
    """Let models for other machines run when they are called."""
    UnloadedModel.__call__ = call  # type: ignore[method-assign]


def call(model: UnloadedModel, *arrays: Any, **named: Any) -> Any:
    """Run a model for AArch64 in place of `UnloadedModel.__call__`."""
    given = bind(model.inputs, arrays, named)
    folder = _folder()
    link_model(model.artifact, model._store, folder / "libmodel.so", "model")
    program = Program(model.artifact, folder, _runner(), (EMULATOR, "-L", SYSTEM))
    inputs = {spec.name: np.asarray(array) for spec, array in zip(model.inputs, given, strict=True)}
    try:
        results = program.run(inputs, 1, 1)
    except AssertionError as failure:  # a case that ends the process is one that fails, not the end of all checks
        raise ArtifactError(f"the program failed: {failure}") from None
    return results[0] if len(results) == 1 else tuple(results)


@cache
def _folder() -> Path:
    kept = tempfile.TemporaryDirectory(prefix="mirlo-aarch64-")
    _KEPT.append(kept)
    return Path(kept.name)


_KEPT: list[Any] = []


@cache
def _runner() -> Path:
    """Return a program that opens the library in the folder and runs its model."""
    folder = _folder()
    for name, content in run_time_files().items():
        (folder / name).write_bytes(content)
    processor = processor_of(_any_model().artifact)
    (folder / "mirlo_pool.o").write_bytes(pool_object(processor))
    command = [COMPILER, *FLAGS, f'-DLIBRARY="{folder}/libmodel.so"', '-DNAME="model"', f"-I{folder}", str(SOURCE)]
    command += [str(folder / "mirlo.c"), str(folder / "mirlo_pool.o"), "-o", str(folder / "runner")]
    subprocess.run([*command, "-lm", "-ldl", "-lpthread"], check=True)
    return folder / "runner"


def _any_model() -> UnloadedModel:
    from onnx_models import F32, make_model, node

    import mirlo

    model = make_model([node("Relu", "x", "y")], {"x": (F32, (4,))}, ["y"])
    made = mirlo.compile(model, TARGET, cache=False, jobs=1)
    assert isinstance(made, UnloadedModel)
    return made


def main(operators: list[str]) -> int:
    """Check operators, or all of them; return the number of checks that failed."""
    from mirlo.tools.conformance.check import FAILED, WRONG, check_target
    from mirlo.tools.conformance.matrix import text_lines

    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    install()
    matrix = check_target(TARGET, operators or None, lambda step: print(step, file=sys.stderr))
    print("\n".join(text_lines(matrix)))
    return min(matrix.count(WRONG) + matrix.count(FAILED), 100)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(sys.argv[1:]))
