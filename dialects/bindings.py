"""The one module that names the package of MLIR's Python bindings.

Everything else says `from mirlo.dialects.bindings import ir, arith`. Upstream dialect modules are imported on first
use, because each costs start-up time and most commands need few of them.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

PACKAGES = ("mlir", "torch_mlir")
"""Where the bindings may live, best first. A package counts when it has the API that Mirlo was written against."""

CORE_MODULES = ("ir", "passmanager", "rewrite", "execution_engine")
DIALECT_MODULES = (
    *("affine", "arith", "bufferization", "builtin", "cf", "func", "gpu", "index", "irdl", "linalg", "llvm", "math"),
    *("memref", "nvgpu", "nvvm", "scf", "spirv", "tensor", "transform", "ub", "vector", "x86"),
)

BUILT_DIALECTS = (
    *("affine", "arith", "cf", "func", "gpu", "index", "llvm", "math", "memref", "nvgpu", "nvvm", "scf", "tensor"),
    *("ub", "vector", "x86"),
)
"""Dialects whose operations Mirlo makes itself; those of others come with text, or from passes, which load them."""


def _find_package() -> str:
    for name in PACKAGES:
        try:
            if hasattr(importlib.import_module(f"{name}.ir"), "DynamicOpTrait"):
                return name
        except ImportError:
            continue
    raise ImportError(
        "the MLIR Python bindings are missing: install the wheel that Mirlo depends on with "
        "'pip install torch-mlir==20261001' (it needs no torch)"
    )


PACKAGE = _find_package()
ir: Any = importlib.import_module(f"{PACKAGE}.ir")


def _leave_views_out(namespace: str) -> None:
    """Let the bindings believe that they have imported a dialect's classes, which they do at its first operation.

    Operations are generic views until the module is imported by whoever wants to use its classes.
    """
    name = f"{PACKAGE}.dialects.{namespace}"
    if name in sys.modules:
        return
    sys.modules[name] = types.ModuleType(name)
    try:
        importlib.import_module(f"{PACKAGE}._mlir_libs._mlir").globals._check_dialect_module_loaded(namespace)
    finally:
        del sys.modules[name]


# Its classes take 20 ms to make, in every process that compiles, and code generation uses none of them.
_leave_views_out("llvm")


def __getattr__(name: str) -> Any:
    if name in CORE_MODULES:
        module: Any = importlib.import_module(f"{PACKAGE}.{name}")
    elif name in DIALECT_MODULES:
        module = importlib.import_module(f"{PACKAGE}.dialects.{name}")
    elif name == "_cext":
        module = importlib.import_module(f"{PACKAGE}.dialects._ods_common")._cext
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = module
    return module


def new_context(dialects: tuple[str, ...] = BUILT_DIALECTS) -> Any:
    """A context with these upstream dialects; others are loaded when text names them, or a pass makes them.

    To have all of them from the start, as the bindings would, takes several times as long, here and in passes.
    """
    context = ir.Context(load_on_create_dialects=())
    # Python verifiers called from MLIR's pool threads deadlock on the interpreter lock.
    context.enable_multithreading(False)
    for name in dialects:
        context.get_dialect_descriptor(name)
    return context


def load_irdl(module: Any) -> None:
    """Load the dialects that a module defines into its context."""
    # Not from the dialect's module, whose classes of IRDL's operations take a while to make, and nobody uses.
    importlib.import_module(f"{PACKAGE}._mlir_libs._mlirDialectsIRDL").load_dialects(module)


def claim_dialect_module(namespace: str) -> None:
    """Stop the bindings from searching for a module of this dialect at each operation they wrap: 40 times faster."""
    name = f"{PACKAGE}.dialects.{namespace}"
    sys.modules.setdefault(name, types.ModuleType(name))


def native_library() -> str:
    """Path of the shared library with MLIR's and LLVM's C API."""
    libs = importlib.import_module(f"{PACKAGE}._mlir_libs")
    import glob
    import os

    folder = os.path.dirname(libs.__file__ or "")
    found = glob.glob(os.path.join(folder, "*AggregateCAPI*")) or glob.glob(os.path.join(folder, "*PythonCAPI*"))
    if not found:
        raise ImportError(f"no MLIR C API library in {folder}")
    return found[0]
