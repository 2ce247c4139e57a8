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
